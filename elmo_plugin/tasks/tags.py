"""Tags of tokens: the schemes IOB1, BIO and BIOUL, the field of gold tags, and the base class of taggers."""

from typing import Any, Callable, Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple

from allennlp.data import Vocabulary
from allennlp.data.dataset_readers.dataset_utils.span_utils import (
    TypedStringSpan,
    bio_tags_to_spans,
    bioul_tags_to_spans,
    iob1_tags_to_spans,
)
from allennlp.data.fields import SequenceLabelField
from allennlp.data.fields.sequence_field import SequenceField
from allennlp.models import Model
from allennlp.modules.conditional_random_field.conditional_random_field import (
    is_transition_allowed,
)
from torch import BoolTensor, Tensor

from elmo_plugin.errors import ConfigurationError
from elmo_plugin.tasks.checks import labels_of
from elmo_plugin.tasks.conll import SentencePlace

# The rules of each scheme, for error messages.
SCHEME_RULES: Dict[str, str] = {
    "IOB1": "the tokens of a span are tagged I-LABEL, and B-LABEL only opens a span that directly "
    "follows another with the same label",
    "BIO": "a span opens with B-LABEL and continues with I-LABEL",
    "BIOUL": "a span of one token is tagged U-LABEL, a longer one B-LABEL, I-LABEL..., L-LABEL",
}
LABEL_SCHEMES = ("BIO", "BIOUL")
"""The schemes of tags that a model can learn."""
_PREFIXES = {"IOB1": "IB", "BIO": "BI", "BIOUL": "BIUL"}
_TAGS_TO_SPANS: Dict[str, Callable[[List[str]], List[TypedStringSpan]]] = {
    "IOB1": iob1_tags_to_spans,
    "BIO": bio_tags_to_spans,
    "BIOUL": bioul_tags_to_spans,
}
# A prefix that occurs in data, and one that then occurs with the same label.
_IMPLIED_PREFIXES = {"BIO": {"I": "B"}, "BIOUL": {"I": "B", "B": "L", "L": "B"}}


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
    """A `SequenceLabelField` whose error names a tag that is not in the vocabulary, and its `place`."""

    __slots__ = ["place"]

    def __init__(
        self, tags: List[str], tokens: SequenceField, place: Optional[SentencePlace] = None
    ) -> None:
        super().__init__(tags, tokens)
        self.place = place

    def index(self, vocab: Vocabulary) -> None:
        known_tags = vocab.get_token_to_index_vocabulary("labels")
        for index, tag in enumerate(self.labels):
            if tag not in known_tags:
                place = self.place.of_token(index) if self.place else f"Token {index}"
                raise ConfigurationError(
                    f"{place}: found tag '{tag}', expected one of those that the "
                    f"model learns: {', '.join(sorted(known_tags))}. Correct the tag, or train on data "
                    "that has it."
                )
        super().index(vocab)


def check_tag_vocabulary(vocab: Vocabulary, scheme: str) -> List[str]:
    """
    Return the tags of the training data in the order of their ids. Raise `ConfigurationError` if they are
    not those of the scheme, which would make decoding or metrics fail later, or give wrong results.
    """
    tags = labels_of(vocab)
    impossible = {tag for tag in tags if split_tag(tag, scheme) is None}
    # Valid data with the first tag has the second one, too.
    implied_prefixes = _IMPLIED_PREFIXES[scheme]
    missing = {"O", *(f"{implied_prefixes.get(tag[0], tag[0])}{tag[1:]}" for tag in tags)}
    missing -= set(tags)
    if impossible or missing:
        found = (
            f"has {', '.join(sorted(impossible))}"
            if impossible
            else f"has {', '.join(tags)}, but not {', '.join(sorted(missing))}"
        )
        raise ConfigurationError(
            f"The vocabulary's namespace 'labels' {found}, expected the tags of data in the {scheme} "
            "scheme. Give reader and model the same label_scheme."
        )
    return tags


class Tagger(Model):
    """
    Base class of taggers. A task defines `_best_tags`, `_span_metrics` and `forward`, which starts from
    `_output`. In training nothing is decoded or measured: decoding a batch takes longer than its loss.
    """

    def __init__(self, vocab: Vocabulary, label_scheme: str = "BIOUL", **kwargs: Any) -> None:
        super().__init__(vocab, **kwargs)
        self.label_scheme = label_scheme
        self.tags = check_tag_vocabulary(vocab, label_scheme)

    def make_output_human_readable(self, output_dict: Dict[str, Any]) -> Dict[str, Any]:
        """Return the output of `forward` with the names of tags. Decode them first if the output has none."""
        best_tags = output_dict.get("tags")
        if best_tags is None:
            best_tags = self._best_tags(output_dict["logits"], output_dict["mask"])
        return {**output_dict, "tags": self._names(best_tags)}

    def get_metrics(self, reset: bool = False) -> Dict[str, float]:
        """
        Return `precision`, `recall` and `f1` of exactly matching spans since the last reset, and the same for
        each label with a gold or a predicted span, such as `_f1-PER`. AllenNLP writes names with a leading
        underscore to its metrics files, but not into progress bars. Empty in training.
        """
        if self.training:
            return {}
        return {
            f"_{name}" if "-" in name else name: value
            for name, value in self._span_metrics(reset).items()
        }

    def _output(
        self, logits: Tensor, mask: BoolTensor, metadata: Optional[List[Dict[str, Any]]]
    ) -> Dict[str, Any]:
        """
        Return `logits` `(batch_size, timesteps, num_tags)` and `mask` `(batch_size, timesteps)`; `words`, if
        metadata is given; and, outside of training, `tags`, the list of the best tag ids of each sentence.
        """
        output: Dict[str, Any] = {"logits": logits, "mask": mask}
        if metadata is not None:
            output["words"] = [sentence["words"] for sentence in metadata]
        if not self.training:
            output["tags"] = self._best_tags(logits, mask)
        return output

    def _names(self, tag_ids: Iterable[Iterable[int]]) -> List[List[str]]:
        return [[self.tags[tag_id] for tag_id in sentence] for sentence in tag_ids]

    def _best_tags(self, logits: Tensor, mask: BoolTensor) -> List[List[int]]:
        """Return the ids of the best allowed tags of each sentence, one per real token."""
        raise NotImplementedError

    def _span_metrics(self, reset: bool) -> Dict[str, float]:
        """Return the metrics, such as `f1` and `f1-PER`."""
        raise NotImplementedError
