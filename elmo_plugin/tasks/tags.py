"""Tags of tokens: the schemes IOB1, BIO and BIOUL, and the field of gold tags."""

from typing import Callable, Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple

from allennlp.data import Vocabulary
from allennlp.data.dataset_readers.dataset_utils.span_utils import (
    TypedStringSpan,
    bio_tags_to_spans,
    bioul_tags_to_spans,
    iob1_tags_to_spans,
)
from allennlp.data.fields import SequenceLabelField
from allennlp.modules.conditional_random_field.conditional_random_field import (
    is_transition_allowed,
)

# The rules of each scheme, for error messages.
SCHEME_RULES: Dict[str, str] = {
    "IOB1": "the tokens of a span are tagged I-LABEL, and B-LABEL only opens a span that directly "
    "follows another with the same label",
    "BIO": "a span opens with B-LABEL and continues with I-LABEL",
    "BIOUL": "a span of one token is tagged U-LABEL, a longer one B-LABEL, I-LABEL..., L-LABEL",
}
_PREFIXES = {"IOB1": "IB", "BIO": "BI", "BIOUL": "BIUL"}
_TAGS_TO_SPANS: Dict[str, Callable[[List[str]], List[TypedStringSpan]]] = {
    "IOB1": iob1_tags_to_spans,
    "BIO": bio_tags_to_spans,
    "BIOUL": bioul_tags_to_spans,
}


class Span(NamedTuple):
    """Tokens `start` to `end` (exclusive) with a label. Spans sort in the order of the text."""

    start: int
    end: int
    label: str


def split_tag(tag: str, scheme: str) -> Optional[Tuple[str, str]]:
    """Return prefix and label of a tag, `("O", "")` for `O`; `None` if `scheme` has no such tag."""
    if tag == "O":
        return "O", ""
    prefix, _, label = tag.partition("-")
    if len(prefix) == 1 and prefix in _PREFIXES[scheme] and label:
        return prefix, label
    return None


def find_tag_fault(tags: Sequence[str], scheme: str) -> Optional[Tuple[int, str]]:
    """
    Return the index and a description of the first tag of a sentence that is impossible in `scheme`; `None`
    if all are possible.
    """
    previous = ("START", "")
    for index, tag in enumerate(tags):
        parts = split_tag(tag, scheme)
        if parts is None:
            return index, f"tag '{tag}'"
        if not is_transition_allowed(scheme, *previous, *parts):
            where = f"after '{tags[index - 1]}'" if index else "at the start of a sentence"
            return index, f"tag '{tag}' {where}"
        previous = parts
    if tags and not is_transition_allowed(scheme, *previous, "END", ""):
        return len(tags) - 1, f"tag '{tags[-1]}' at the end of a sentence"
    return None


def tags_to_spans(tags: Sequence[str], scheme: str) -> List[Span]:
    """Return the spans that `tags` mark, in order. The tags must be valid in `scheme`."""
    # AllenNLP's spans include their last token.
    return sorted(
        Span(start, last + 1, label) for label, (start, last) in _TAGS_TO_SPANS[scheme](list(tags))
    )


def spans_to_tags(spans: Iterable[Span], num_tokens: int, scheme: str) -> List[str]:
    """Return the tags of `num_tokens` tokens in BIO or BIOUL. The spans must not overlap."""
    tags = ["O"] * num_tokens
    for start, end, label in spans:
        tags[start:end] = [f"B-{label}", *[f"I-{label}"] * (end - start - 1)]
        if scheme == "BIOUL":
            tags[end - 1] = f"U-{label}" if end - start == 1 else f"L-{label}"
    return tags


class TagField(SequenceLabelField):
    """
    A `SequenceLabelField` for data with tags that the model has not learned. Such a tag has the id after
    those of the vocabulary. `Tagger` counts its spans as missed.
    """

    def index(self, vocab: Vocabulary) -> None:
        known_tags = vocab.get_token_to_index_vocabulary("labels")
        self._indexed_labels = [known_tags.get(tag, len(known_tags)) for tag in self.labels]
