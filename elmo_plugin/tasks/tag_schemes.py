"""The schemes that write labelled spans as one tag per token: IOB1, BIO and BIOUL."""

from typing import Callable, Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple

from allennlp.common.checks import ConfigurationError
from allennlp.data.dataset_readers.dataset_utils.span_utils import (
    TypedStringSpan,
    bio_tags_to_spans,
    bioul_tags_to_spans,
    iob1_tags_to_spans,
)
from allennlp.modules.conditional_random_field.conditional_random_field import (
    is_transition_allowed,
)

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
