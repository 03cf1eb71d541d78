"""Read sentences from text, `.gz`, standard input and Parquet, check them, and split them into tokens."""

import glob
import io
import os
import re
import sys
from contextlib import nullcontext
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import (
    IO,
    Any,
    Callable,
    ContextManager,
    Dict,
    Iterable,
    Iterator,
    List,
    NamedTuple,
    Optional,
    Tuple,
    Union,
)

from elmo_plugin.arguments import check_choices, option
from elmo_plugin.embedding.sentence_column import SentenceColumn, TextAndTokens
from elmo_plugin.errors import ConfigurationError, needing
from elmo_plugin.files.text import decoded_lines, open_text, split_tokens

STANDARD_INPUT = "-"
# Added to the path of an output: the folder that keeps finished parts until the output is complete.
PARTIAL = ".partial"
DEFAULT_COLUMN = "sentence"
WHITESPACE, SPACY = TOKENIZERS = ("whitespace", "spacy")

# First letters of the names of files that are not data, such as `.crc` files and `_SUCCESS`.
_NOT_DATA = (".", "_")

# All control characters except the tab, which is white space. Other programs end lines or strings at them,
# and the biLM would read them as parts of words. (A carriage return before the line feed is stripped.)
_CONTROL_CHARACTER = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f]")


class Sentence(NamedTuple):
    """A sentence and its position in the input."""

    line_index: int  # from 0
    text: str  # without white space around it
    tokens: List[str]  # at least one


@dataclass(frozen=True)
class InputOptions:
    """How sentences are read."""

    tokenizer: str = option("spacy: by its rules for English", WHITESPACE, choices=TOKENIZERS)
    column: Optional[str] = option(
        f"Parquet column of sentences or lists of tokens (default: {DEFAULT_COLUMN})",
        None,
        metavar="NAME",
    )
    skip_blank: bool = option("leave out blank lines; others keep their numbers", False)
    # Not an argument of commands. Pretraining accepts them: a large corpus has some.
    accept_control_characters: bool = False

    def __post_init__(self) -> None:
        check_choices(self)


class SentenceSource:
    """
    Read the sentences of one file, of standard input, or of an open file. Memory does not grow with the file.

    # Parameters

    source : `str`, `PathLike`, or an open file
        One of:
        - a path: a Parquet file if the name ends in `.parquet`, otherwise UTF-8 text with one sentence on
          each line, compressed if the name ends in `.gz`;
        - `-` for standard input;
        - a file open for reading text or bytes. It is read from its current position, and stays open.
    options : `InputOptions`, optional
        How sentences are read.
    name : `str`, optional (default = the path)
        Name of the source in errors and outputs.

    # Attributes

    is_file : `bool`
        Whether the source is a file that can be read again, also by other processes. Pipes and open files are
        read once.

    # Raises

    `ConfigurationError` if the file cannot be opened, if a Parquet file does not have the column, or if a
    column is given for a text file.
    """

    def __init__(
        self,
        source: Union[str, PathLike, IO[Any]],
        options: InputOptions = InputOptions(),
        name: Optional[str] = None,
    ) -> None:
        self._options = options
        self._path: Optional[Path] = None
        self._file: Optional[IO[Any]] = None
        if not isinstance(source, (str, PathLike)):
            self._file = source
            self.name = name or str(getattr(source, "name", "input_file"))
        elif str(source) == STANDARD_INPUT:
            self._file = sys.stdin.buffer
            self.name = "standard input"
        else:
            self._path = Path(source)
            self.name = name or str(source)
        self.is_file = self._path is not None and self._path.is_file()
        self._column = self._sentence_column()
        if self._column is None and self._path is not None and not self._path.is_fifo():
            with self._opened():  # fails here if it cannot be read
                pass
        is_row = self._column is not None
        self._place, self._expected = (
            ("row", "one sentence in each row") if is_row else ("line", "one sentence on each line")
        )

    def is_same_file(self, path: Union[str, PathLike]) -> bool:
        """Return whether `path` is the file that is read."""
        return self.is_file and os.path.exists(path) and os.path.samefile(str(self._path), path)

    def sentences(self) -> Iterator[Sentence]:
        """
        Yield the sentences in order.

        # Raises

        `ConfigurationError` naming the line or row, if a sentence is blank, too long, holds a control
        character or cannot be decoded; naming the source, if it is damaged or holds no sentence.
        """
        tokenize = tokenizer_of(self._options.tokenizer)
        for index, text, tokens in self._checked():
            yield Sentence(index, text, tokenize(text) if tokens is None else tokens)

    def texts(self) -> Iterator[Tuple[int, str]]:
        """Yield the line index and text of each sentence, not split into tokens. Raise as `sentences`."""
        for index, text, _ in self._checked():
            yield index, text

    def _checked(self) -> Iterator[Tuple[int, str, Optional[List[str]]]]:
        is_empty = True
        rows = self._lines() if self._column is None else self._column.rows()
        for index, (text, tokens) in enumerate(rows):
            text = text.strip()  # a line is blank if `split_tokens` finds no token in it
            if text:
                control = _CONTROL_CHARACTER.search(text)
                if control is not None and not self._options.accept_control_characters:
                    raise ConfigurationError(
                        f"{self.name}, {self._place} {index + 1}: found the control character "
                        f"U+{ord(control.group()):04X} at character {control.start() + 1}, expected text. "
                        "Remove such characters."
                    )
                is_empty = False
                yield index, text, tokens
            elif not self._options.skip_blank:
                raise ConfigurationError(
                    f"{self.name}: {self._place} {index + 1} is blank, expected {self._expected}. Remove "
                    f"blank {self._place}s, or give --skip-blank (skip_blank=True) to leave them out; other "
                    f"{self._place}s keep their numbers."
                )
        if is_empty:
            raise ConfigurationError(
                f"{self.name}: found no sentence, expected {self._expected}. Give a file that holds text."
            )

    def _sentence_column(self) -> Optional[SentenceColumn]:
        """Return the column of a Parquet file, `None` for text."""
        options = self._options
        if self._path is None or self._path.suffix.lower() != ".parquet":
            if options.column is not None:
                raise ConfigurationError(
                    f"--column is '{options.column}', but {self.name} is text, expected a .parquet file. "
                    "Leave it out."
                )
            return None
        column = SentenceColumn(self._path, self.name, options.column or DEFAULT_COLUMN)
        if column.holds_tokens and options.tokenizer != WHITESPACE:
            raise ConfigurationError(
                f"--tokenizer is '{options.tokenizer}', but column '{column.column}' of {self.name} holds "
                "tokens. Leave it out, or name a column of text with --column (column=...)."
            )
        return column

    def _lines(self) -> Iterator[TextAndTokens]:
        with self._opened() as file:
            is_text = isinstance(file, io.TextIOBase)
            for line in file if is_text else decoded_lines(file, self.name, "one sentence"):
                yield line, None

    def _opened(self) -> ContextManager[Any]:
        """Return the file, in a context that closes it if it was opened here."""
        return nullcontext(self._file) if self._path is None else open_text(self._path, self.name)


def find_sources(
    inputs: Union[Any, Iterable[Any]],
    options: InputOptions = InputOptions(),
    output: Optional[Union[str, PathLike]] = None,
) -> List[SentenceSource]:
    """
    Return the sources of an input: of files, folders and patterns.

    # Parameters

    inputs : `str`, `PathLike`, open file, or several of them
        Each is one of:
        - a source of `SentenceSource`;
        - a folder: its files are read, except those in subfolders and those whose names begin with `.` or
          `_`;
        - a pattern such as `texts/*.gz`, in which `**` matches folders at any depth.
    options : `InputOptions`, optional
        How sources are read.
    output : `str` or `PathLike`, optional
        The output of the run. Folders and patterns leave out this path and `OUTPUT.partial`.

    # Returns

    The sources in the order of `inputs`; files of a folder or pattern are sorted by name. No file is in the
    list twice.

    # Raises

    `ConfigurationError` if an input matches no file, or a file cannot be opened.
    """
    if isinstance(inputs, (str, PathLike)) or hasattr(inputs, "read"):
        inputs = [inputs]
    found: Dict[Any, None] = {}
    for one in inputs:
        is_path = isinstance(one, (str, PathLike)) and str(one) != STANDARD_INPUT
        found.update(dict.fromkeys(_file_names(str(one), output) if is_path else [one]))
    if not found:
        raise ConfigurationError("input: found none, expected files or folders. Name them.")
    return [
        # Absolute, since workers run in other folders.
        SentenceSource(os.path.abspath(one), options, name=one)
        if isinstance(one, str) and one != STANDARD_INPUT
        else SentenceSource(one, options)
        for one in found
    ]


def tokenizer_of(name: str) -> Callable[[str], List[str]]:
    """Return the tokenizer of this name, one of `TOKENIZERS`."""
    if name == WHITESPACE:
        return split_tokens
    with needing("--tokenizer spacy needs spaCy", "elmo-plugin[spacy]"):
        import spacy
    tokenizer = spacy.blank("en").tokenizer  # rules only: nothing is downloaded
    return lambda text: [token.text for token in tokenizer(text) if not token.is_space]


def _file_names(one_input: str, output: Optional[Union[str, PathLike]]) -> List[str]:
    path = Path(one_input)
    if path.exists() and not path.is_dir():
        return [one_input]
    if path.is_dir():
        files = [file for file in path.iterdir() if not file.name.startswith(_NOT_DATA)]
        reason = f"the folder {one_input} holds no files"
    else:
        files = [Path(name) for name in glob.glob(one_input, recursive=True)]
        reason = f"there is no file {one_input}, and as a pattern it matches no file"
    own = [] if output is None else [os.path.abspath(output), os.path.abspath(output) + PARTIAL]
    names = [
        str(file)
        for file in files
        if file.is_file() and not any(Path(os.path.abspath(file)).is_relative_to(o) for o in own)
    ]
    if not names:
        raise ConfigurationError(
            f"input: {reason}, expected text or Parquet files. Correct the path."
        )
    return sorted(names)
