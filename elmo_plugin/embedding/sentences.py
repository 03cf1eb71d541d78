"""Sentences to embed: read from text, `.gz`, standard input and Parquet, checked, and cut into tokens."""

import glob
import gzip
import hashlib
import io
import os
import re
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import (
    IO,
    Any,
    BinaryIO,
    Callable,
    Dict,
    Iterable,
    Iterator,
    List,
    NamedTuple,
    Optional,
    Tuple,
    Union,
    cast,
)

from elmo_plugin.arguments import check_choices, option
from elmo_plugin.embedding.arrow import holds_tokens, import_pyarrow
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.files.text_lines import MAX_LINE_BYTES, decoded_lines, split_tokens, unreadable

STANDARD_INPUT = "-"
# Beside an output: where it is kept until it is complete.
PARTIAL = ".partial"
DEFAULT_COLUMN = "sentence"
WHITESPACE, SPACY = TOKENIZERS = ("whitespace", "spacy")

# Rows of a Parquet file that are decoded together, and bytes of it that are read ahead.
ROWS_PER_BATCH = 1024
BUFFER_BYTES = 2**20

# How names of files begin that are not data, such as `.crc` files and `_SUCCESS`.
_NOT_DATA = (".", "_")
_MAX_SHOWN = 10  # places that an error lists

# All control characters but the tab, which is white space. Other programs end lines or strings at them, and
# the biLM would read them as parts of words. (A carriage return before the line feed is stripped.)
_CONTROL_CHARACTER = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f]")

# Of each line or row: its index, its text, and its tokens where a Parquet file gives them.
_Texts = Iterator[Tuple[int, str, Optional[List[str]]]]


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


class Content(NamedTuple):
    """
    What a source holds.

    # Parameters

    name : `str`
        Of the source.
    num_sentences : `int`
        Blank lines that are skipped do not count.
    num_tokens : `int`
        Between white space; no tokenizer makes fewer.
    digest : `str`
        Of line numbers and texts.
    """

    name: str
    num_sentences: int
    num_tokens: int
    digest: str


class Tally:
    """Counts sentences that are read one after the other, and takes a digest of them."""

    def __init__(self) -> None:
        self.num_sentences = self.num_tokens = 0
        self._hash = hashlib.blake2b(digest_size=16)

    def add(self, line_index: int, text: str) -> None:
        """Count a sentence."""
        self.num_sentences += 1
        self.num_tokens += len(split_tokens(text))
        self._hash.update(f"{line_index}\t{text}\n".encode("utf-8", "surrogatepass"))

    @property
    def digest(self) -> str:
        """The digest of the sentences so far."""
        return self._hash.hexdigest()


@dataclass(frozen=True)
class InputOptions:
    """
    How sentences are read.

    # Raises

    `ConfigurationError` for an unknown tokenizer.
    """

    tokenizer: str = option(
        "whitespace, for text in tokens; spacy, for other text: spaCy's rules for English",
        WHITESPACE,
        choices=TOKENIZERS,
    )
    column: Optional[str] = option(
        f"of a Parquet file: what holds the sentences, or lists of tokens (default: {DEFAULT_COLUMN})",
        None,
    )
    skip_blank: bool = option(
        "leave blank lines out; others keep their numbers (default: stop before any work)",
        False,
    )

    def __post_init__(self) -> None:
        check_choices(self)


class SentenceSource:
    """
    The sentences of one file, of standard input, or of an open file. Memory does not grow with the file.

    # Parameters

    source : `str`, `PathLike`, or an open file
        A path: Parquet if its name ends in `.parquet`, otherwise UTF-8 text with one sentence on each line,
        unpacked as it is read if the name ends in `.gz`; `-` for standard input; or a file that is open for
        reading text or bytes, which is read from where it stands, and stays open.
    options : `InputOptions`, optional
        How it is read.
    name : `str`, optional (default = the path)
        What errors and outputs call it.

    # Raises

    `ConfigurationError` if it cannot be opened, or is a Parquet file without that column; for a column where
    the file is text.
    """

    def __init__(
        self,
        source: Union[str, PathLike, IO[Any]],
        options: InputOptions = InputOptions(),
        name: Optional[str] = None,
    ) -> None:
        self.options = options
        self._file: Optional[IO[Any]] = None
        self._path = Path()
        if not isinstance(source, (str, PathLike)):
            self._file = source
            self.name = name or str(getattr(source, "name", "input_file"))
        elif str(source) == STANDARD_INPUT:
            self._file = sys.stdin.buffer
            self.name = "standard input"
        else:
            self._path = Path(source)
            self.name = name or str(source)
        self._start = None if self._file is None else _position(self._file)
        self._is_parquet = self._file is None and is_parquet(self._path)
        self._place = "row" if self._is_parquet else "line"
        self._expected = f"one sentence {'in each row' if self._is_parquet else 'on each line'}"
        if self._is_parquet:
            with self._parquet_file():
                pass
            return
        if options.column is not None:
            raise ConfigurationError(
                f"--column is '{options.column}', but {self.name} is text, expected a .parquet file. Leave "
                "it out."
            )
        if self._file is None and not self._is_pipe():
            self._open().close()

    @property
    def can_be_read_again(self) -> bool:
        """Whether the sentences can be checked before they are embedded."""
        return not self._is_pipe() if self._file is None else self._start is not None

    @property
    def is_file(self) -> bool:
        """Whether it is a file that other processes can read too."""
        return self._file is None and not self._is_pipe()

    def is_same_file(self, path: Union[str, PathLike]) -> bool:
        """Whether `path` leads to the file that is read."""
        path, own = Path(path), Path(self.name if self._file is not None else self._path)
        return path.exists() and own.exists() and path.samefile(own)

    def sentences(self) -> Iterator[Sentence]:
        """
        Read the sentences in order.

        # Raises

        `ConfigurationError` naming the place, if a text is blank, too long, holds a control character or
        cannot be decoded; naming the source, if it is damaged or holds no sentence.
        """
        tokenize = tokenizer_of(self.options.tokenizer)
        for index, text, tokens in self._checked(all_blanks=False):
            yield Sentence(index, text, tokenize(text) if tokens is None else tokens)

    def texts(self) -> Iterator[Tuple[int, str]]:
        """
        Read the indices and texts without cutting them into tokens.

        # Raises

        As `sentences`, but with all blank places at once, at the end.
        """
        for index, text, _ in self._checked(all_blanks=True):
            yield index, text

    def _checked(self, all_blanks: bool) -> _Texts:
        blanks: List[int] = []
        num_blanks = 0
        is_empty = True
        for index, text, tokens in self._rows() if self._is_parquet else self._lines():
            text = text.strip()
            if text:
                self._check_characters(index, text)
                is_empty = False
                yield index, text, tokens
            elif not self.options.skip_blank:
                num_blanks += 1
                if num_blanks <= _MAX_SHOWN:
                    blanks.append(index + 1)
                if not all_blanks:
                    raise self._blank(blanks, num_blanks)
        if is_empty:
            raise ConfigurationError(
                f"{self.name}: found no sentence, expected {self._expected}. Give a file that holds text."
            )
        if num_blanks:
            raise self._blank(blanks, num_blanks)

    def _check_characters(self, index: int, text: str) -> None:
        control = _CONTROL_CHARACTER.search(text)
        if control is not None:
            advice = (
                "Remove such characters."
                if self._is_parquet
                else r"Remove such characters, for instance with: perl -CSD -pe 's/[^\P{Cc}\t\n]//g'"
            )
            raise ConfigurationError(
                f"{self.name}, {self._place} {index + 1}: found the control character "
                f"U+{ord(control.group()):04X} at character {control.start() + 1}, expected text. {advice}"
            )

    def _blank(self, numbers: List[int], num_blanks: int) -> ConfigurationError:
        listing = ", ".join(map(str, numbers)) + ", ..." * (num_blanks > len(numbers))
        place = self._place
        places = (
            f"{place} {listing} is"
            if num_blanks == 1
            else f"{num_blanks:,} {place}s ({listing}) are"
        )
        return ConfigurationError(
            f"{self.name}: {places} blank, expected {self._expected}. Remove blank {place}s, or give "
            f"--skip-blank (skip_blank=True) to leave them out; other {place}s keep their numbers."
        )

    def _is_pipe(self) -> bool:
        return self._path.exists() and not (self._path.is_file() or self._path.is_dir())

    def _open(self) -> BinaryIO:
        try:
            stored = open(self._path, "rb")  # noqa: SIM115 - closed by the callers
        except OSError as error:
            raise unreadable(self.name, error) from error
        # GzipFile finds line ends in Python, BufferedReader does it in C.
        return io.BufferedReader(_GzipFile(stored)) if self._path.suffix == ".gz" else stored

    def _lines(self) -> _Texts:
        if self._file is None:
            with self._open() as file:
                for index, line in enumerate(decoded_lines(file, self.name, "one sentence")):
                    yield index, line, None
            return
        if self._start is not None:
            self._file.seek(self._start)
        if isinstance(self._file, io.TextIOBase):
            lines = self._text_lines()
        else:
            lines = decoded_lines(cast(BinaryIO, self._file), self.name, "one sentence")
        for index, line in enumerate(lines):
            yield index, line, None

    def _text_lines(self) -> Iterator[str]:
        assert self._file is not None
        try:
            yield from self._file
        except UnicodeDecodeError as error:
            raise ConfigurationError(
                f"{self.name}: found the bytes {error.object[error.start : error.end]!r}, expected "
                f"{error.encoding}. Convert the file, or open it with its encoding. (Give its path, or open "
                "it in mode 'rb', and the error names the line.)"
            ) from error

    def _rows(self) -> _Texts:
        index = 0
        column = self.options.column or DEFAULT_COLUMN
        with self._parquet_file() as (file, has_tokens):
            # One thread: workers read several files at a time, each with its own core.
            batches = file.iter_batches(ROWS_PER_BATCH, columns=[column], use_threads=False)
            while True:
                with self._readable():
                    batch = next(batches, None)
                if batch is None:
                    return
                for scalar in batch.column(0):
                    text, tokens = self._row(scalar, index, has_tokens)
                    yield index, text, tokens
                    index += 1

    def _row(self, scalar: Any, index: int, has_tokens: bool) -> Tuple[str, Optional[List[str]]]:
        """The text of a row, and its tokens if the column has them. Null counts as blank."""
        where = f"{self.name}, row {index + 1}"
        column = self.options.column or DEFAULT_COLUMN
        try:
            value = scalar.as_py()
        except UnicodeDecodeError as error:
            raise ConfigurationError(
                f"{where}: found the bytes {error.object[error.start : error.end]!r} in column '{column}', "
                "expected UTF-8. Write the file again with text in this encoding."
            ) from error
        if value is None:
            return "", None
        if has_tokens and None in value:
            raise ConfigurationError(
                f"{where}: token {value.index(None) + 1} in column '{column}' is null, expected a string. "
                "Remove such tokens."
            )
        text = " ".join(value) if has_tokens else value
        if len(text) > MAX_LINE_BYTES:
            raise ConfigurationError(
                f"{where}: found text of {len(text):,} characters in column '{column}', expected one "
                f"sentence of at most {MAX_LINE_BYTES:,}. Split the text."
            )
        return text, value if has_tokens else None

    @contextmanager
    def _parquet_file(self) -> Iterator[Tuple[Any, bool]]:
        """The open file, and whether its column holds tokens."""
        column = self.options.column or DEFAULT_COLUMN
        parquet = import_pyarrow().parquet
        with self._readable():
            file = parquet.ParquetFile(str(self._path), pre_buffer=False, buffer_size=BUFFER_BYTES)
        with file:
            schema = file.schema_arrow
            if column not in schema.names:
                raise ConfigurationError(
                    f"{self.name}: there is no column '{column}', expected one that holds sentences. The "
                    f"columns are {', '.join(schema.names)}; name one of them with --column (column=...)."
                )
            has_tokens = holds_tokens(schema.field(column).type)
            if has_tokens is None:
                raise ConfigurationError(
                    f"{self.name}: column '{column}' is of type {schema.field(column).type}, expected "
                    "string, or list<string> for tokens. Name another column with --column (column=...)."
                )
            yield file, has_tokens

    @contextmanager
    def _readable(self) -> Iterator[None]:
        try:
            yield
        except (OSError, import_pyarrow().ArrowException) as error:
            raise ConfigurationError(
                f"{self.name}: cannot be read as a Parquet file ({error}). The file may be missing, damaged, "
                "cut short or of another kind; correct the path, or get another copy."
            ) from error


def find_sources(
    inputs: Union[Any, Iterable[Any]],
    options: InputOptions = InputOptions(),
    output: Optional[Union[str, PathLike]] = None,
) -> List[SentenceSource]:
    """
    Find the sources that are meant.

    # Parameters

    inputs : `str`, `PathLike`, open file, or several
        Each a source as in `SentenceSource`; a folder, of which all files are read, but none in folders
        within, and none whose names begin with `.` or `_`; or a pattern such as `texts/*.gz`, in which `**`
        stands for folders at any depth.
    options : `InputOptions`, optional
        How sources are read.
    output : `str` or `PathLike`, optional
        Where the vectors go. Folders and patterns do not match it, nor `OUTPUT.partial`.

    # Returns

    In the order of `inputs`; those of a folder or pattern by name. No file is there twice.

    # Raises

    `ConfigurationError` if one leads to no file, or cannot be opened.
    """
    if isinstance(inputs, (str, PathLike)) or hasattr(inputs, "read"):
        inputs = [inputs]
    found: Dict[Any, None] = {}
    for one in inputs:
        is_path = isinstance(one, (str, PathLike)) and str(one) != STANDARD_INPUT
        found.update(dict.fromkeys(_file_names(str(one), output) if is_path else [one]))
    if not found:
        raise ConfigurationError("input: there is none, expected files or folders. Name them.")
    return [
        # Workers run in other folders.
        SentenceSource(os.path.abspath(one), options, name=one)
        if isinstance(one, str) and one != STANDARD_INPUT
        else SentenceSource(one, options)
        for one in found
    ]


def is_parquet(path: Union[str, PathLike]) -> bool:
    """Whether a file is to be read as Parquet, and not as text."""
    return Path(path).suffix.lower() == ".parquet"


def tokenizer_of(name: str) -> Callable[[str], List[str]]:
    """The tokenizer of this name, one of `TOKENIZERS`."""
    if name == WHITESPACE:
        return split_tokens
    try:
        import spacy
    except ImportError as error:
        raise ConfigurationError(
            f"--tokenizer spacy needs spaCy, which cannot be imported ({error}). Install it: "
            "pip install spacy"
        ) from error
    tokenizer = spacy.blank("en").tokenizer  # rules alone: nothing is downloaded
    return lambda text: [token.text for token in tokenizer(text) if not token.is_space]


def _file_names(one_input: str, output: Optional[Union[str, PathLike]]) -> List[str]:
    path = Path(one_input)
    if path.exists() and not path.is_dir():
        return [one_input]
    if path.is_dir():
        names = [
            str(file)
            for file in path.iterdir()
            if file.is_file() and not file.name.startswith(_NOT_DATA)
        ]
        reason = f"the folder {one_input} holds no files"
    else:
        names = [name for name in glob.glob(one_input, recursive=True) if Path(name).is_file()]
        reason = f"there is no file {one_input}, and none that matches it as a pattern"
    if output is not None:
        own = [Path(os.path.abspath(f"{os.fspath(output)}{suffix}")) for suffix in ("", PARTIAL)]
        names = [
            name
            for name in names
            if not any(Path(os.path.abspath(name)).is_relative_to(path) for path in own)
        ]
    if not names:
        raise ConfigurationError(
            f"input: {reason}, expected text or Parquet files. Correct the path."
        )
    return sorted(names)


class _GzipFile(gzip.GzipFile):
    """A `GzipFile` that closes the file below it."""

    def __init__(self, stored: BinaryIO) -> None:
        super().__init__(fileobj=stored)
        self._stored = stored

    def close(self) -> None:
        super().close()
        self._stored.close()


def _position(file: IO[Any]) -> Any:
    """Where a file stands, or `None` if it cannot be put there again."""
    try:
        return file.tell() if file.seekable() else None
    except OSError:  # a text file of which lines were taken by `next`
        return None
