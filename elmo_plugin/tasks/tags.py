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
from elmo_plugin.tasks.checks import check_gold_labels, check_label_vocabulary
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
_PREFIXES: Dict[str, str] = {"IOB1": "IB", "BIO": "BI", "BIOUL": "BIUL"}
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


class TagFault(NamedTuple):
    """The token whose tag a scheme does not allow, and a description of the fault."""

    token_index: int
    description: str


def split_tag(tag: str, scheme: str) -> Optional[Tuple[str, str]]:
    """Return prefix and label of a tag, `("O", "")` for `O`; `None` if `scheme` has no such tag."""
    if tag == "O":
        return "O", ""
    prefix, _, label = tag.partition("-")
    if len(prefix) == 1 and prefix in _PREFIXES[scheme] and label:
        return prefix, label
    return None


def find_tag_fault(tags: Sequence[str], scheme: str) -> Optional[TagFault]:
    """Return the first tag of a sentence that is impossible in `scheme`; `None` if there is none."""
    previous = ("START", "")
    for index, tag in enumerate(tags):
        parts = split_tag(tag, scheme)
        if parts is None:
            return TagFault(index, f"tag '{tag}'")
        if not is_transition_allowed(scheme, *previous, *parts):
            where = f"after '{tags[index - 1]}'" if index else "at the start of a sentence"
            return TagFault(index, f"tag '{tag}' {where}")
        previous = parts
    if tags and not is_transition_allowed(scheme, *previous, "END", ""):
        return TagFault(len(tags) - 1, f"tag '{tags[-1]}' at the end of a sentence")
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
        self,
        tags: List[str],
        tokens: SequenceField,
        label_namespace: str,
        place: Optional[SentencePlace] = None,
    ) -> None:
        super().__init__(tags, tokens, label_namespace)
        self.place = place

    def index(self, vocab: Vocabulary) -> None:
        known_tags = vocab.get_token_to_index_vocabulary(self._label_namespace)
        for index, tag in enumerate(self.labels):
            if tag not in known_tags:
                place = f"{self.place.of_token(index)}: " if self.place else ""
                raise ConfigurationError(
                    f"{place}found tag '{tag}', expected one in the namespace "
                    f"'{self._label_namespace}' of the model's vocabulary: "
                    f"{', '.join(sorted(known_tags)) or '(none)'}. A tagger knows the tags of the "
                    "data that it was trained on: correct the tag, or train again with this file "
                    "among the data, or with the tag in the vocabulary's `tokens_to_add`."
                )
        super().index(vocab)


def check_tags(
    tags: Sequence[str],
    scheme: str,
    place: Optional[SentencePlace] = None,
    scheme_key: Optional[str] = None,
) -> None:
    """
    Raise `ConfigurationError` for the first tag of a sentence that is impossible in a scheme. If the reader
    has a key that chooses the scheme, `scheme_key`, the error names the schemes that fit.
    """
    fault = find_tag_fault(tags, scheme)
    if fault is None:
        return
    fitting = [other for other in SCHEME_RULES if find_tag_fault(tags, other) is None]
    advice = "Correct the tag."
    if scheme_key is not None and fitting:
        advice = (
            f"This sentence is possible in {' and '.join(fitting)}: if that is its scheme, give the "
            f'reader "{scheme_key}": "{fitting[0]}". If not, correct the tag.'
        )
    raise ConfigurationError(
        f"{place.of_token(fault.token_index) if place else f'Token {fault.token_index}'}: found "
        f"{fault.description}, impossible in the {scheme} scheme: a token outside of spans is tagged O, "
        f"{SCHEME_RULES[scheme]}. {advice}"
    )


def check_tag_vocabulary(vocab: Vocabulary, label_namespace: str, scheme: str) -> List[str]:
    """
    Return the tags of a namespace in the order of their ids. Raise `ConfigurationError` for tags that would
    make decoding or metrics fail later, or give wrong results: no tags at all, tags that `scheme` does not
    have, a missing `O`, or only one of two tags that always occur together.
    """
    tags = check_label_vocabulary(vocab, label_namespace)
    place = f"The vocabulary's namespace '{label_namespace}'"
    impossible = sorted(tag for tag in tags if split_tag(tag, scheme) is None)
    if impossible:
        raise ConfigurationError(
            f"{place} has {', '.join(map(repr, impossible))}, expected only tags of the {scheme} scheme. "
            "Give reader and model the same label_scheme and label_namespace."
        )
    if "O" not in tags:
        raise ConfigurationError(
            f"{place} has no tag 'O', expected it for the tokens outside of all spans. Check the tags of the "
            "training data."
        )
    # Each tag needs another one: valid data never has one without the other.
    needed = {"BIO": {"I": "B"}, "BIOUL": {"I": "B", "B": "L", "L": "B"}}[scheme]
    for tag in tags:
        prefix, _, label = tag.partition("-")
        needed_tag = f"{needed.get(prefix)}-{label}"
        if prefix in needed and needed_tag not in tags:
            raise ConfigurationError(
                f"{place} has '{tag}' but not '{needed_tag}', expected both in the {scheme} scheme. Give "
                "reader and model the same label_scheme."
            )
    return tags


class Tagger(Model):
    """
    Base class of taggers. A task calls `_set_scheme` in its constructor, and defines `_best_tags`,
    `_span_metrics` and `forward`, which starts from `_output`. In training nothing is decoded or measured,
    unless `training_metrics` is set: decoding a batch takes longer than its loss.

    # Parameters

    label_namespace : `str`, optional (default = `"labels"`)
        The reader's `label_namespace`. It holds the tags.
    training_metrics : `bool`, optional (default = `False`)
        Decode and measure in training too.
    verbose_metrics : `bool`, optional (default = `False`)
        Show the metrics of each label in progress bars. They are measured in any case.
    """

    def __init__(
        self,
        vocab: Vocabulary,
        label_namespace: str = "labels",
        training_metrics: bool = False,
        verbose_metrics: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(vocab, **kwargs)
        self.label_namespace = label_namespace
        self._training_metrics = training_metrics
        self._label_metric_prefix = "" if verbose_metrics else "_"

    def _set_scheme(self, label_scheme: str) -> None:
        self.label_scheme = label_scheme
        self.tags = check_tag_vocabulary(self.vocab, self.label_namespace, label_scheme)

    def make_output_human_readable(self, output_dict: Dict[str, Any]) -> Dict[str, Any]:
        """Return the output of `forward` with the names of tags. Decode them first if the output has none."""
        best_tags = output_dict.get("tags")
        if best_tags is None:
            best_tags = self._best_tags(output_dict["logits"], output_dict["mask"])
        return {**output_dict, "tags": self._names(best_tags)}

    def get_metrics(self, reset: bool = False) -> Dict[str, float]:
        """
        Return `precision`, `recall` and `f1` of exactly matching spans since the last reset, and the same for
        each label with a gold or a predicted span, such as `_f1-PER` (with `verbose_metrics`: `f1-PER`).
        AllenNLP writes all of them to its metrics files, but leaves names with a leading underscore out of
        progress bars. Empty in training without `training_metrics`.
        """
        if not self._is_measured():
            return {}
        return {
            f"{self._label_metric_prefix}{name}" if "-" in name else name: value
            for name, value in self._span_metrics(reset).items()
        }

    def _output(
        self,
        logits: Tensor,
        mask: BoolTensor,
        gold_tags: Optional[Tensor],
        metadata: Optional[List[Dict[str, Any]]],
    ) -> Dict[str, Any]:
        """
        Return `logits` `(batch_size, timesteps, num_tags)` and `mask` `(batch_size, timesteps)`; `words`, if
        metadata is given; and, outside of training or with `training_metrics`, `tags`, the list of the best
        tag ids of each sentence. Raise `ConfigurationError` for gold tags that the model was not built for.
        """
        output: Dict[str, Any] = {"logits": logits, "mask": mask}
        if metadata is not None:
            output["words"] = [sentence["words"] for sentence in metadata]
        if self._is_measured():
            output["tags"] = self._best_tags(logits, mask)
            if gold_tags is not None:
                check_gold_labels(gold_tags, self.tags, self.vocab, self.label_namespace)
        return output

    def _is_measured(self) -> bool:
        return self._training_metrics or not self.training

    def _names(self, tag_ids: Iterable[Iterable[int]]) -> List[List[str]]:
        return [[self.tags[tag_id] for tag_id in sentence] for sentence in tag_ids]

    def _best_tags(self, logits: Tensor, mask: BoolTensor) -> List[List[int]]:
        """Return the ids of the best allowed tags of each sentence, one per real token."""
        raise NotImplementedError

    def _span_metrics(self, reset: bool) -> Dict[str, float]:
        """Return the metrics, such as `f1` and `f1-PER`."""
        raise NotImplementedError
