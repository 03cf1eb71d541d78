from typing import Any, List, Tuple

import pytest
from allennlp.data import Vocabulary
from allennlp.data.dataset_readers.dataset_utils.span_utils import to_bioul
from allennlp.data.fields import TextField
from allennlp.data.tokenizers import Token
from hypothesis import given
from hypothesis import strategies as st

from elmo_plugin.tasks.tags import (
    Span,
    TagField,
    find_tag_fault,
    spans_to_tags,
    tags_to_spans,
)

SCHEMES = ["IOB1", "BIO", "BIOUL"]
ALL_TAGS = ["O"] + [f"{prefix}-{label}" for prefix in "BIUL" for label in ("PER", "creative-work")]


@st.composite
def sentences_with_spans(draw: Any) -> Tuple[int, List[Span]]:
    """A number of tokens and spans over them, often side by side. Each piece has tokens."""
    spans, num_tokens = [], 0
    pieces = st.tuples(st.sampled_from(["PER", "creative-work", None]), st.integers(1, 4))
    for label, length in draw(st.lists(pieces, max_size=8)):
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


@given(sentences_with_spans(), st.sampled_from(SCHEMES))
def test_spans_survive_being_written_and_read(sentence, scheme):
    num_tokens, spans = sentence
    tags = write_tags(spans, num_tokens, scheme)
    assert len(tags) == num_tokens
    assert find_tag_fault(tags, scheme) is None
    assert tags_to_spans(tags, scheme) == spans
    if scheme != "BIOUL":
        # AllenNLP's conversion.
        assert spans_to_tags(spans, num_tokens, "BIOUL") == to_bioul(tags, encoding=scheme)


@given(st.lists(st.sampled_from(ALL_TAGS), max_size=5), st.sampled_from(SCHEMES))
def test_tags_without_fault_are_exactly_those_that_spans_can_have(tags, scheme):
    try:
        spans = tags_to_spans(tags, scheme)
        spans_can_have_them = write_tags(spans, len(tags), scheme) == tags
    except Exception:  # AllenNLP's function for BIOUL and tags of another scheme
        spans_can_have_them = False
    assert (find_tag_fault(tags, scheme) is None) == spans_can_have_them


@pytest.mark.parametrize(
    "scheme, tags, fault",
    [
        ("BIO", ["I-PER"], (0, "tag 'I-PER' at the start of a sentence")),
        ("BIO", ["B-PER", "I-LOC"], (1, "tag 'I-LOC' after 'B-PER'")),
        ("BIO", ["B-PER", "L-PER"], (1, "tag 'L-PER'")),
        ("IOB1", ["I-LOC", "B-PER"], (1, "tag 'B-PER' after 'I-LOC'")),
        ("BIOUL", ["O", "B-PER"], (1, "tag 'B-PER' at the end of a sentence")),
        ("IOB1", ["O", "PER"], (1, "tag 'PER'")),
        ("IOB1", ["I-"], (0, "tag 'I-'")),
    ],
)
def test_the_first_fault_is_found(scheme, tags, fault):
    assert find_tag_fault(tags, scheme) == fault


def test_an_unknown_tag_has_the_id_after_those_of_the_vocabulary():
    tokens = TextField([Token("It"), Token("rains"), Token("Rain")])
    vocab = Vocabulary(tokens_to_add={"labels": ["U-PER", "O"]})
    field = TagField(["U-PER", "U-LOC", "U-LOC"], tokens)
    field.index(vocab)
    assert field.as_tensor(field.get_padding_lengths()).tolist() == [0, 2, 2]
