"""Files of sentences to embed: one on each line."""

import gzip
import io
import re
import sys
from os import PathLike
from pathlib import Path
from typing import IO, Any, BinaryIO, Callable, Iterator, List, NamedTuple, Union

import spacy
from allennlp.common.checks import ConfigurationError

from elmo_plugin.files.text_lines import decoded_lines, unreadable

STANDARD_INPUT = "-"

_LINE_CONTENT = "one sentence"
_MAX_SHOWN = 10  # lines that an error lists

# All control characters but the tab, which is white space. Other programs end lines or strings at them, and
# the biLM would read them as parts of words. (A carriage return before the line feed is stripped.)
_CONTROL_CHARACTER = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f]")


class Sentence(NamedTuple):
    """
    A line of the input.

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


class SentenceFile:
    """
    A source of sentences that never holds more than a line in memory. It can be read again from where it
    stood, unless it is a pipe.

    # Parameters

    source : `str`, `PathLike`, or an open file
        A path, unpacked as it is read if its name ends in `.gz`; `-` for standard input; or a file that
        is open for reading text or bytes.
    tokenizer : `str`, optional (default = `"whitespace"`)
        A key of `TOKENIZERS`.
    skip_blank : `bool`, optional (default = `False`)
        Leave blank lines out; they are counted all the same. Otherwise they are errors.

    # Raises

    `ConfigurationError` if there is no such tokenizer, or the file cannot be opened.
    """

    def __init__(
        self,
        source: Union[str, PathLike, IO[Any]],
        tokenizer: str = "whitespace",
        skip_blank: bool = False,
    ) -> None:
        if tokenizer not in TOKENIZERS:
            raise ConfigurationError(
                f"tokenizer is '{tokenizer}', expected one of {', '.join(TOKENIZERS)}."
            )
        self._tokenize = TOKENIZERS[tokenizer]()
        self._skip_blank = skip_blank
        self.name, self._file = _opened(source)
        self._is_text = isinstance(self._file, io.TextIOBase)
        self._start = _position(self._file)

    def __enter__(self) -> "SentenceFile":
        return self

    def __exit__(self, *exception: object) -> None:
        if self._file is not sys.stdin.buffer:
            self._file.close()

    @property
    def can_be_read_again(self) -> bool:
        """Whether the sentences can be looked at before they are embedded."""
        return self._start is not None

    def is_same_file(self, path: Union[str, PathLike]) -> bool:
        """Whether `path` leads to the file that is read."""
        path = Path(path)
        return path.exists() and Path(self.name).exists() and path.samefile(self.name)

    def sentences(self) -> Iterator[Sentence]:
        """
        The sentences in order.

        # Raises

        `ConfigurationError` naming the line, if it is blank, not UTF-8, longer than `MAX_LINE_BYTES`, or
        holds a control character; naming the file, if it is damaged or holds no sentence.
        """
        has_sentence = False
        for index, text in self._stripped_lines():
            if text:
                has_sentence = True
                yield Sentence(index, text, self._tokenize(text))
            elif not self._skip_blank:
                raise self._blank_lines([index + 1], num_blank=1)
        self._check_is_not_empty(has_sentence)

    def check(self, examine: Callable[[int, str], None]) -> None:
        """
        Read the file once without taking sentences apart, so that it fails before any work.

        # Parameters

        examine : `Callable[[int, str], None]`
            Is given the index and the text of each sentence.

        # Raises

        `ConfigurationError` as `sentences` does, with all blank lines at once.
        """
        blank: List[int] = []
        num_blank = 0
        has_sentence = False
        for index, text in self._stripped_lines():
            if text:
                has_sentence = True
                examine(index, text)
            elif not self._skip_blank:
                num_blank += 1
                if num_blank <= _MAX_SHOWN:
                    blank.append(index + 1)
        self._check_is_not_empty(has_sentence)
        if num_blank:
            raise self._blank_lines(blank, num_blank)

    def _stripped_lines(self) -> Iterator[Any]:
        """Index and text of each line."""
        if self._start is not None:
            self._file.seek(self._start)
        lines = (
            self._text_lines()
            if self._is_text
            else decoded_lines(self._file, self.name, _LINE_CONTENT)
        )
        for index, line in enumerate(lines):
            text = line.strip()
            control = _CONTROL_CHARACTER.search(text)
            if control is not None:
                raise ConfigurationError(
                    f"{self.name}, line {index + 1}: found the control character "
                    f"U+{ord(control.group()):04X} at character {control.start() + 1}, expected text. Remove "
                    r"such characters, for instance with: perl -CSD -pe 's/[^\P{Cc}\t\n]//g'"
                )
            yield index, text

    def _text_lines(self) -> Iterator[str]:
        try:
            yield from self._file
        except UnicodeDecodeError as error:
            raise ConfigurationError(
                f"{self.name}: found the bytes {error.object[error.start : error.end]!r}, expected "
                f"{error.encoding}. Convert the file, or open it with its encoding. (Give its path, or open "
                "it in mode 'rb', to be told the line.)"
            ) from error

    def _blank_lines(self, line_numbers: List[int], num_blank: int) -> ConfigurationError:
        listing = ", ".join(map(str, line_numbers)) + ", ..." * (num_blank > len(line_numbers))
        lines = f"line {listing} is" if num_blank == 1 else f"{num_blank:,} lines ({listing}) are"
        return ConfigurationError(
            f"{self.name}: {lines} blank, expected {_LINE_CONTENT} on each line. Remove blank lines, or "
            "give --skip-blank (skip_blank=True) to leave them out; other lines keep their numbers."
        )

    def _check_is_not_empty(self, has_sentence: bool) -> None:
        if not has_sentence:
            raise ConfigurationError(
                f"{self.name}: found no sentence, expected {_LINE_CONTENT} on each line. Give a file that "
                "holds text."
            )


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


def _opened(source: Union[str, PathLike, IO[Any]]) -> Any:
    """The name of a source, and the file."""
    if not isinstance(source, (str, PathLike)):
        return str(getattr(source, "name", "input_file")), source
    if str(source) == STANDARD_INPUT:
        return "standard input", sys.stdin.buffer
    path = Path(source)
    try:
        file: BinaryIO = open(path, "rb")  # noqa: SIM115 - closed by __exit__
    except OSError as error:
        raise unreadable(path, error) from error
    if path.suffix == ".gz":
        # GzipFile takes lines apart in Python, BufferedReader does it in C.
        file = io.BufferedReader(_GzipFile(file))
    return str(path), file


class _GzipFile(gzip.GzipFile):
    """A `GzipFile` that closes the file below it, and can be read again only if that can."""

    def __init__(self, stored: BinaryIO) -> None:
        super().__init__(fileobj=stored)
        self._stored = stored

    def seekable(self) -> bool:
        return self._stored.seekable()

    def close(self) -> None:
        super().close()
        self._stored.close()


def _position(file: IO[Any]) -> Any:
    """Where a file stands, or `None` if it cannot be put there again."""
    try:
        return file.tell() if file.seekable() else None
    except OSError:  # a text file of which lines were taken by `next`
        return None
