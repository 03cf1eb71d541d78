"""Random labelled spans, for property tests."""

from typing import Any, List, Tuple

from hypothesis import strategies as st

from elmo_plugin.tasks.tags import Span, spans_to_tags


@st.composite
def sentences_with_spans(draw: Any, min_pieces: int = 0) -> Tuple[int, List[Span]]:
    """A number of tokens and spans over them, often side by side. Each piece has tokens."""
    spans, num_tokens = [], 0
    pieces = st.tuples(st.sampled_from(["PER", "creative-work", None]), st.integers(1, 4))
    for label, length in draw(st.lists(pieces, min_size=min_pieces, max_size=8)):
        if label is not None:
            spans.append(Span(num_tokens, num_tokens + length, label))
        num_tokens += length
    return num_tokens, spans


def write_tags(spans: List[Span], num_tokens: int, scheme: str) -> List[str]:
    """`spans_to_tags`, in IOB1 too, which the package only reads."""
    if scheme != "IOB1":
        return spans_to_tags(spans, num_tokens, scheme)
    labels = [""] * num_tokens
    tags = ["O"] * num_tokens
    for start, end, label in sorted(spans):
        labels[start:end] = [label] * (end - start)
        tags[start:end] = [f"I-{label}"] * (end - start)
        if start > 0 and labels[start - 1] == label:
            tags[start] = f"B-{label}"
    return tags
