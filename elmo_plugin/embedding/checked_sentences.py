"""What sources of sentences have in common: how text becomes tokens, and which text is refused."""

import re
from os import PathLike
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Tuple, Union

import spacy
from allennlp.common.checks import ConfigurationError

_MAX_SHOWN = 10  # places that an error lists

# All control characters but the tab, which is white space. Other programs end lines or strings at them, and
# the biLM would read them as parts of words. (A carriage return before the line feed is stripped.)
_CONTROL_CHARACTER = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f]")


class Sentence(NamedTuple):
    """
    A line or row of the input.

    # Parameters

    line_index : `int`
        Zero-based number of the line.
    text : `str`
        The line without white space around it.
    tokens : `List[str]`
        Its tokens; at least one.
    """

    line_index: int
    text: str
    tokens: List[str]


class CheckedSentences:
    """
    A source of sentences whose subclass reads texts; what makes a text a sentence is decided here.

    # Parameters

    name : `str`
        Names the source in errors and in outputs.
    tokenizer : `str`
        A key of `TOKENIZERS`.
    skip_blank : `bool`
        Leave blank texts out; they are counted all the same. Otherwise they are errors.

    # Raises

    `ConfigurationError` if there is no such tokenizer.
    """

    # How errors speak of the place of a sentence, and what they advise against control characters.
    _place = "line"
    _expected = "one sentence on each line"
    _control_advice = "Remove such characters."

    def __init__(self, name: str, tokenizer: str, skip_blank: bool) -> None:
        self.name = name
        self.settings: Dict[str, Any] = {"tokenizer": tokenizer, "skip_blank": skip_blank}
        self._tokenize = tokenizer_of(tokenizer)
        self._skip_blank = skip_blank

    @property
    def can_be_read_again(self) -> bool:
        """Whether the sentences can be looked at before they are embedded."""
        return True

    def __enter__(self) -> "CheckedSentences":
        return self

    def __exit__(self, *exception: object) -> None:
        raise NotImplementedError

    def is_same_file(self, path: Union[str, PathLike]) -> bool:
        """Whether `path` leads to the file that is read."""
        path = Path(path)
        return path.exists() and Path(self.name).exists() and path.samefile(self.name)

    def sentences(self) -> Iterator[Sentence]:
        """
        The sentences in order.

        # Raises

        `ConfigurationError` naming the place, if a text is blank, too long, holds a control character or
        cannot be decoded; naming the source, if it is damaged or holds no sentence.
        """
        has_sentence = False
        for index, text, tokens in self._stripped_texts():
            if text:
                has_sentence = True
                yield Sentence(index, text, self._tokenize(text) if tokens is None else tokens)
            elif not self._skip_blank:
                raise self._blank([index + 1], num_blank=1)
        self._check_is_not_empty(has_sentence)

    def check(self, examine: Callable[[int, str], None]) -> None:
        """
        Read all once without taking sentences apart, so that it fails before any work.

        # Parameters

        examine : `Callable[[int, str], None]`
            Is given the index and the text of each sentence.

        # Raises

        `ConfigurationError` as `sentences` does, with all blank places at once.
        """
        blank: List[int] = []
        num_blank = 0
        has_sentence = False
        for index, text, _ in self._stripped_texts():
            if text:
                has_sentence = True
                examine(index, text)
            elif not self._skip_blank:
                num_blank += 1
                if num_blank <= _MAX_SHOWN:
                    blank.append(index + 1)
        self._check_is_not_empty(has_sentence)
        if num_blank:
            raise self._blank(blank, num_blank)

    def _texts(self) -> Iterator[Tuple[int, str, Optional[List[str]]]]:
        """From the beginning, for each place: its index, its text, and its tokens if they are given."""
        raise NotImplementedError

    def _stripped_texts(self) -> Iterator[Tuple[int, str, Optional[List[str]]]]:
        for index, text, tokens in self._texts():
            text = text.strip()
            control = _CONTROL_CHARACTER.search(text)
            if control is not None:
                raise ConfigurationError(
                    f"{self.name}, {self._place} {index + 1}: found the control character "
                    f"U+{ord(control.group()):04X} at character {control.start() + 1}, expected text. "
                    f"{self._control_advice}"
                )
            yield index, text, tokens

    def _blank(self, numbers: List[int], num_blank: int) -> ConfigurationError:
        listing = ", ".join(map(str, numbers)) + ", ..." * (num_blank > len(numbers))
        place = self._place
        places = (
            f"{place} {listing} is" if num_blank == 1 else f"{num_blank:,} {place}s ({listing}) are"
        )
        return ConfigurationError(
            f"{self.name}: {places} blank, expected {self._expected}. Remove blank {place}s, or give "
            f"--skip-blank (skip_blank=True) to leave them out; other {place}s keep their numbers."
        )

    def _check_is_not_empty(self, has_sentence: bool) -> None:
        if not has_sentence:
            raise ConfigurationError(
                f"{self.name}: found no sentence, expected {self._expected}. Give a file that holds text."
            )


def tokenizer_of(name: str) -> Callable[[str], List[str]]:
    """
    The tokenizer of that name.

    # Raises

    `ConfigurationError` if there is none.
    """
    if name not in TOKENIZERS:
        raise ConfigurationError(f"tokenizer is '{name}', expected one of {', '.join(TOKENIZERS)}.")
    return TOKENIZERS[name]()


def _whitespace_tokenizer() -> Callable[[str], List[str]]:
    # White space of any kind, no-break spaces too, as AllenNLP 0.9 did.
    return str.split


def _spacy_tokenizer() -> Callable[[str], List[str]]:
    # Only the tokenizer: no model is needed, and nothing is downloaded.
    tokenizer = spacy.blank("en").tokenizer

    def tokenize(text: str) -> List[str]:
        return [token.text for token in tokenizer(text) if not token.is_space]

    return tokenize


TOKENIZERS = {"whitespace": _whitespace_tokenizer, "spacy": _spacy_tokenizer}
