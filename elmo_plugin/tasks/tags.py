"""Tags of tokens: the schemes IOB1, BIO and BIOUL, the field of gold tags, and the checks of a tagger."""

from typing import Callable, Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple

from allennlp.common.checks import ConfigurationError
from allennlp.data import Vocabulary
from allennlp.data.dataset_readers.dataset_utils.span_utils import (
    TypedStringSpan,
    bio_tags_to_spans,
    bioul_tags_to_spans,
    iob1_tags_to_spans,
)
from allennlp.data.fields import SequenceLabelField
from allennlp.data.fields.sequence_field import SequenceField
from allennlp.modules.conditional_random_field.conditional_random_field import (
    is_transition_allowed,
)
from torch import Tensor

from elmo_plugin.tasks.conll import SentencePlace

# What tags look like in each scheme, in the words of an error message.
SCHEME_RULES: Dict[str, str] = {
    "IOB1": "the tokens of a span are tagged I-LABEL, and B-LABEL only opens a span that directly "
    "follows another with the same label",
    "BIO": "a span opens with B-LABEL and goes on with I-LABEL",
    "BIOUL": "a span of one token is tagged U-LABEL, a longer one B-LABEL, I-LABEL..., L-LABEL",
}
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
    """The token whose tag a scheme does not allow, and what is wrong with the tag."""

    token_index: int
    description: str


def check_scheme(key: str, scheme: str, expected: Iterable[str]) -> None:
    """Raise `ConfigurationError` unless `scheme`, the value of `key`, is one of `expected`."""
    if scheme not in expected:
        raise ConfigurationError(f"{key} is '{scheme}', expected one of: {', '.join(expected)}.")


def split_tag(tag: str, scheme: str) -> Optional[Tuple[str, str]]:
    """Prefix and label of a tag, `("O", "")` for `O`; `None` if `scheme` has no such tag."""
    if tag == "O":
        return "O", ""
    prefix, _, label = tag.partition("-")
    if len(prefix) == 1 and prefix in _PREFIXES[scheme] and label:
        return prefix, label
    return None


def find_tag_fault(tags: Sequence[str], scheme: str) -> Optional[TagFault]:
    """The first of a sentence's `tags` that is impossible in `scheme`; `None` if there is none."""
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


class SchemeCounts(NamedTuple):
    """
    How many sentences are possible in each scheme.

    # Parameters

    num_sentences : `int`
        Sentences with a span; those without one are possible in all schemes.
    num_possible : `Dict[str, int]`
        By scheme, how many of these are possible in it.
    """

    num_sentences: int
    num_possible: Dict[str, int]

    @classmethod
    def of_tags(cls, sentences: Iterable[Sequence[str]]) -> "SchemeCounts":
        """`sentences`: the tags of each."""
        num_sentences = 0
        num_possible = dict.fromkeys(SCHEME_RULES, 0)
        for tags in sentences:
            if any(tag != "O" for tag in tags):
                num_sentences += 1
                for scheme in num_possible:
                    num_possible[scheme] += find_tag_fault(tags, scheme) is None
        return cls(num_sentences, num_possible)

    @property
    def best(self) -> str:
        """The scheme in which the most sentences are possible."""
        return max(self.num_possible, key=self.num_possible.__getitem__)


def tags_to_spans(tags: Sequence[str], scheme: str) -> List[Span]:
    """The spans that `tags` mark, in order. The tags must be without fault in `scheme`."""
    # AllenNLP's spans include their last token.
    return sorted(
        Span(start, last + 1, label) for label, (start, last) in _TAGS_TO_SPANS[scheme](list(tags))
    )


def spans_to_tags(spans: Iterable[Span], num_tokens: int, scheme: str) -> List[str]:
    """
    One tag for each of `num_tokens` tokens, such that `tags_to_spans` finds the spans again.

    # Raises

    `ValueError` if spans overlap, are empty or reach beyond the tokens.
    """
    tags = ["O"] * num_tokens
    for span in sorted(spans):
        start, end, label = span
        if not 0 <= start < end <= num_tokens or any(tag != "O" for tag in tags[start:end]):
            raise ValueError(f"{span} is empty, overlaps another or is not in {num_tokens} tokens")
        tags[start:end] = [f"I-{label}"] * (end - start)
        if scheme == "IOB1":
            if start > 0 and tags[start - 1][2:] == label:
                tags[start] = f"B-{label}"
        elif scheme == "BIOUL" and end - start == 1:
            tags[start] = f"U-{label}"
        else:
            tags[start] = f"B-{label}"
            if scheme == "BIOUL":
                tags[end - 1] = f"L-{label}"
    return tags


def convert_tags(tags: Sequence[str], scheme: str, new_scheme: str) -> List[str]:
    """The spans of `tags` written in `new_scheme`. The tags must be without fault in `scheme`."""
    return spans_to_tags(tags_to_spans(tags, scheme), len(tags), new_scheme)


class TagField(SequenceLabelField):
    """
    A `SequenceLabelField` that says which tag of which file is not in the vocabulary.

    # Parameters

    tags : `List[str]`
        One for each token.
    tokens : `SequenceField`
        The tokens.
    label_namespace : `str`
        The vocabulary's namespace of the tags.
    place : `SentencePlace`, optional
        Where the sentence stands, to be named in errors.
    """

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
        """
        Look up the ids of the tags.

        # Raises

        `ConfigurationError` if a tag is not in the vocabulary.
        """
        known_tags = vocab.get_token_to_index_vocabulary(self._label_namespace)
        for index, tag in enumerate(self.labels):
            if tag not in known_tags:
                place = f"{self.place.of_token(index)}: " if self.place else ""
                raise ConfigurationError(
                    f"{place}found tag '{tag}', expected one in the namespace "
                    f"'{self._label_namespace}' of the model's vocabulary: "
                    f"{', '.join(sorted(known_tags)) or '(none)'}. A tagger knows the tags of the "
                    "data that it was trained on: correct the tag, or train anew with this file "
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
    Refuse tags that are impossible in a scheme.

    # Parameters

    tags : `Sequence[str]`
        Of a sentence.
    scheme : `str`
    place : `SentencePlace`, optional
        Where the sentence stands, to be named in errors.
    scheme_key : `str`, optional
        The reader's key that chooses the scheme, if there is one: errors name the schemes that fit.

    # Raises

    `ConfigurationError` naming the first tag that is impossible.
    """
    fault = find_tag_fault(tags, scheme)
    if fault is None:
        return
    fitting = [other for other in SCHEME_RULES if find_tag_fault(tags, other) is None]
    advice = "Correct the tag."
    if scheme_key is not None and fitting:
        advice = (
            f"This sentence is possible in {' and '.join(fitting)}: if the data is tagged so, give the "
            f'reader "{scheme_key}": "{fitting[0]}". If not, correct the tag.'
        )
    raise ConfigurationError(
        f"{place.of_token(fault.token_index) if place else f'Token {fault.token_index}'}: found "
        f"{fault.description}, impossible in the {scheme} scheme: a token outside of spans is tagged O, "
        f"{SCHEME_RULES[scheme]}. {advice}"
    )


def check_label_vocabulary(vocab: Vocabulary, label_namespace: str) -> List[str]:
    """
    The labels of a namespace in the order of their ids.

    # Raises

    `ConfigurationError` if there are none, or the namespace has entries for padding.
    """
    labels = vocab.get_index_to_token_vocabulary(label_namespace)
    place = f"The vocabulary's namespace '{label_namespace}'"
    if not labels:
        raise ConfigurationError(
            f"{place} is empty, expected the labels of the training data. Train on labelled data, and give "
            "reader and model the same label_namespace."
        )
    if vocab.is_padded(label_namespace):
        raise ConfigurationError(
            f"{place} has an entry for padding, expected only labels. Let the namespace's name end in "
            "'labels' or 'tags': others have entries for padding and unknown words."
        )
    return [labels[index] for index in range(len(labels))]


def check_tag_vocabulary(vocab: Vocabulary, label_namespace: str, scheme: str) -> List[str]:
    """
    The tags of a namespace in the order of their ids.

    # Raises

    `ConfigurationError` as for `check_label_vocabulary`; and for tags with which decoding or measuring would
    fail later, or mean something else: tags that `scheme` does not have, a missing `O`, and one half of a
    pair of tags that only occur together.
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
    # Each needs another: data of the scheme never has the one without the other.
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


def check_gold_labels(
    label_ids: Tensor, num_labels: int, vocab: Vocabulary, label_namespace: str
) -> None:
    """
    Raise `ConfigurationError` if one of these ids, of any shape, is none of the `num_labels` that a model was
    built for. The vocabulary can grow after that, for instance by `allennlp evaluate --extend-vocab`.
    """
    highest = int(label_ids.max()) if label_ids.numel() else 0
    if highest >= num_labels:
        names = vocab.get_index_to_token_vocabulary(label_namespace)
        known = ", ".join(names[index] for index in range(num_labels))
        raise ConfigurationError(
            f"Found the gold label '{names.get(highest, highest)}', expected one of those that the model was "
            f"built for: {known}. Correct the data, or train a model on data that has the label."
        )
