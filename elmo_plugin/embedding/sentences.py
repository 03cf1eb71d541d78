"""Read sentences from text, `.gz`, standard input and Parquet, check them, and split them into tokens."""

import functools
import glob
import logging
import os
import re
import zlib
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import (
    IO,
    Any,
    Callable,
    Dict,
    Iterable,
    Iterator,
    List,
    NamedTuple,
    Optional,
    Sequence,
    Tuple,
    Union,
)

from elmo_plugin.arguments import Options, option
from elmo_plugin.errors import ConfigurationError, needing
from elmo_plugin.files.output import check_not_input
from elmo_plugin.files.spacy_rules import SpacyRules
from elmo_plugin.files.text import (
    MAX_LINE_BYTES,
    STANDARD_STREAM,
    FileId,
    FileName,
    decoded_lines,
    file_id,
    is_unicode,
    open_text,
    split_tokens,
    standard_input,
    unreadable,
)

logger = logging.getLogger(__name__)

# Added to the path of an output: the folder that keeps finished parts until the output is complete.
PARTIAL = ".partial"
DEFAULT_COLUMN = "sentence"
WHITESPACE, SPACY = TOKENIZERS = ("whitespace", "spacy")

# First letters of the names of files that are not data, such as `.crc` files and `_SUCCESS`.
_NOT_DATA = (".", "_")
# Rows of a Parquet file that are decoded together, and bytes of it that are read ahead.
_ROWS_PER_BATCH = 1024
_BUFFER_BYTES = 2**20

# All control characters except the tab, which is white space. Other programs end lines or strings at them,
# and the biLM would read them as parts of words. (A carriage return before the line feed is stripped.)
_CONTROL_CHARACTER = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f]")

# What `SentenceSource` reads: a path, or an open file.
TextInput = Union[FileName, IO[Any]]
# The text of a line or row, and its tokens if a Parquet file has them.
TextAndTokens = Tuple[str, Optional[List[str]]]


class Sentence(NamedTuple):
    """A sentence and its position in the input."""

    line_index: int  # from 0
    text: str  # without white space around it
    tokens: List[str]  # at least one


def tokenizer_of(name: str) -> Callable[[str], List[str]]:
    """Return the tokenizer of this name, one of `TOKENIZERS`."""
    if name == WHITESPACE:
        return split_tokens
    rules = _english_rules()
    return lambda text: [token.text for token in rules.tokens(text)]


@functools.cache
def _english_rules() -> SpacyRules:
    # It takes a sixth of a second.
    with needing("--tokenizer spacy needs spaCy", "elmo-plugin[spacy]"):
        return SpacyRules("en")


@dataclass(frozen=True)
class InputOptions(Options):
    """How sentences are read."""

    tokenizer: str = option(
        "spacy: split by spaCy's rules for English", WHITESPACE, choices=TOKENIZERS
    )
    column: Optional[str] = option(
        f"Parquet column of sentences or lists of tokens (default: {DEFAULT_COLUMN})",
        None,
        metavar="NAME",
    )
    skip_blank: bool = option(
        "leave out blank lines, which are an error otherwise; other lines keep their numbers", False
    )
    # Not an argument of commands. Pretraining accepts them: a large corpus has some.
    accept_control_characters: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        tokenizer_of(self.tokenizer)  # or it says now that spaCy is missing


# How the text of a language model is read: a large corpus has some blank lines and control characters.
CORPUS_OPTIONS = InputOptions(skip_blank=True, accept_control_characters=True)


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

    # Attributes

    name : `str`
        The path as it was given, or what stands for it in errors and outputs.
    options : `InputOptions`
        How sentences are read.
    is_file : `bool`
        Whether the source is a file that can be read again, also by other processes. Pipes and open files are
        read once.
    holds_tokens : `bool`
        Whether the source has tokens: a Parquet column of lists. They can contain white space.

    # Raises

    `ConfigurationError` if the file cannot be opened, if a Parquet file does not have the column, or if a
    column is given for a text file.
    """

    def __init__(self, source: TextInput, options: InputOptions = InputOptions()) -> None:
        self.options = options
        self._path: Optional[Path] = None
        self._file: Optional[IO[Any]] = None
        if not isinstance(source, (str, PathLike)):
            self._file = source
            self.name = str(getattr(source, "name", "input_file"))
        elif str(source) == STANDARD_STREAM:
            self._file = standard_input()
            self.name = "standard input"
        else:
            self._path = Path(os.path.abspath(source))  # workers run in other folders
            self.name = str(source)
            if not is_unicode(self.name):
                raise ConfigurationError(
                    f"input: the file name {self.name!r} is not UTF-8, expected one that can be written in "
                    "UTF-8, since outputs name their input. Rename the file."
                )
        self.is_file = self._path is not None and self._path.is_file()
        self._column: Optional[_ParquetColumn] = None
        if self._path is not None and _is_parquet(source):
            self._column = _ParquetColumn(self._path, self.name, options)
        elif options.column is not None:
            raise ConfigurationError(
                f"--column is '{options.column}', but {self.name} is text, expected a .parquet file. "
                "Leave it out."
            )
        elif self._path is not None and not self._path.is_fifo():
            open_text(self._path, self.name).close()  # fails here if it cannot be read
        self.holds_tokens = self._column is not None and self._column.holds_tokens
        self.place = "line" if self._column is None else "row"

    @property
    def file_id(self) -> Optional[FileId]:
        """What is equal for two sources of the same file; nothing if it cannot be read again."""
        return file_id(self._path) if self._path is not None and self.is_file else None

    def sentences(self) -> Iterator[Sentence]:
        """
        Yield the sentences in order.

        # Raises

        `ConfigurationError` naming the line or row, if a sentence is blank, too long, holds a control
        character or cannot be decoded; naming the source, if it is damaged or holds no sentence.
        """
        tokenize = tokenizer_of(self.options.tokenizer)
        for index, text, tokens in self.texts():
            yield Sentence(index, text, tokenize(text) if tokens is None else tokens)

    def texts(self) -> Iterator[Tuple[int, str, Optional[List[str]]]]:
        """
        Yield the line index and text of each sentence, not split into tokens, and its tokens if the source
        `holds_tokens`. Raise as `sentences`.
        """
        expected = f"one sentence {'on' if self.place == 'line' else 'in'} each {self.place}"
        is_empty = True
        rows = self._lines() if self._column is None else self._column.rows()
        for index, (text, tokens) in enumerate(rows):
            if self._column is not None and len(text.encode()) > MAX_LINE_BYTES:
                raise ConfigurationError(
                    f"{self.name}, row {index + 1}: found a text of more than {MAX_LINE_BYTES:,} bytes, "
                    "expected a sentence. Split it."
                )
            stripped = text.strip()  # a line is blank if `split_tokens` finds no token in it
            if stripped:
                # White space around a text is no part of it, but tokens are read as they are.
                control = _CONTROL_CHARACTER.search(stripped if tokens is None else text)
                if control is not None and not self.options.accept_control_characters:
                    raise ConfigurationError(
                        f"{self.name}, {self.place} {index + 1}: found the control character "
                        f"U+{ord(control.group()):04X} at character {control.start() + 1}, expected text. "
                        "Replace such characters by spaces."
                    )
                is_empty = False
                yield index, stripped, tokens
            elif not self.options.skip_blank:
                raise ConfigurationError(
                    f"{self.name}: {self.place} {index + 1} is blank, expected {expected}. Remove blank "
                    f"{self.place}s, or give --skip-blank (skip_blank=True) to leave them out; other "
                    f"{self.place}s keep their numbers."
                )
        if is_empty:
            raise ConfigurationError(
                f"{self.name}: found no sentence, expected {expected}. Give a file that holds text."
            )

    def _lines(self) -> Iterator[TextAndTokens]:
        opened: Any = (
            nullcontext(self._file) if self._path is None else open_text(self._path, self.name)
        )
        with opened as file:
            if isinstance(file.read(0), str):
                lines = _lines_of_text(file, self.name)
            else:
                lines = decoded_lines(file, self.name, "one sentence")
            for line in lines:
                yield line, None


def read_sentences(sources: Iterable[SentenceSource]) -> Iterator[List[str]]:
    """
    Yield the words of all sentences as the training of a biLM reads them: tokens of a Parquet file are split
    at white space in them. Raise as `SentenceSource.sentences`.
    """
    for source in sources:
        for sentence in source.sentences():
            yield split_tokens(sentence.text) if source.holds_tokens else sentence.tokens


def _lines_of_text(file: Iterable[str], name: str) -> Iterator[str]:
    """
    Yield the lines of a file that is open for reading text, without a byte order mark. Raise
    `ConfigurationError` if it cannot be decoded.
    """
    try:
        for index, line in enumerate(file):
            yield line if index > 0 else line.removeprefix("\ufeff")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:  # such as a damaged .gz
        raise unreadable(name, error) from error


class _ParquetColumn:
    """
    The column of a Parquet file that holds sentences: strings, or lists of tokens. `name` is that of the file
    in errors.

    # Raises

    `ConfigurationError` if the file cannot be read, or the column does not exist or has another type.
    """

    def __init__(self, path: Path, name: str, options: InputOptions) -> None:
        self._path, self._name = path, name
        self._column = options.column or DEFAULT_COLUMN
        with self._opened() as file:
            schema = file.schema_arrow
        if schema.names.count(self._column) != 1:
            number = schema.names.count(self._column)
            found = f"{number} columns" if number else "no column"
            raise ConfigurationError(
                f"{name}: has {found} '{self._column}', expected one column of sentences. Its columns are "
                f"{', '.join(schema.names)}; name one of them with --column (column=...)."
            )
        column_type = schema.field(self._column).type
        types = import_pyarrow().types
        is_list = types.is_list(column_type) or types.is_large_list(column_type)
        self.holds_tokens = is_list and _is_text(column_type.value_type)
        if not self.holds_tokens and not _is_text(column_type):
            raise ConfigurationError(
                f"{name}: column '{self._column}' is of type {column_type}, expected string, or "
                "list<string> for tokens. Name another column with --column (column=...)."
            )
        if self.holds_tokens and options.tokenizer != WHITESPACE:
            raise ConfigurationError(
                f"--tokenizer is '{options.tokenizer}', but column '{self._column}' of {name} holds tokens. "
                "Leave it out, or name a column of text with --column (column=...)."
            )

    def rows(self) -> Iterator[TextAndTokens]:
        """Yield the text of each row, and its tokens if the column holds them. Null is an empty text."""
        number = 0
        with self._opened() as file:
            # One thread: on Ray, each file is read by a worker with one core.
            for batch in file.iter_batches(
                _ROWS_PER_BATCH, columns=[self._column], use_threads=False
            ):
                batch.validate(full=True)  # that strings are UTF-8
                for value in batch.column(0).to_pylist():
                    number += 1
                    if not self.holds_tokens or value is None:
                        yield value or "", None
                    elif None not in value:
                        yield " ".join(value), value
                    else:
                        raise ConfigurationError(
                            f"{self._name}, row {number}: token {value.index(None) + 1} in column "
                            f"'{self._column}' is null, expected a string. Remove such tokens."
                        )

    @contextmanager
    def _opened(self) -> Iterator[Any]:
        pyarrow = import_pyarrow()
        settings = {"pre_buffer": False, "buffer_size": _BUFFER_BYTES}
        try:
            with pyarrow.parquet.ParquetFile(str(self._path), **settings) as file:
                yield file
        # UnicodeDecodeError: the names of columns are damaged.
        except (OSError, UnicodeDecodeError, pyarrow.ArrowException) as error:
            raise ConfigurationError(
                f"{self._name}: cannot be read as a Parquet file ({error}). The file may be missing, "
                "damaged, cut short or of another kind; correct the path, or get another copy."
            ) from error


def _is_parquet(source: TextInput) -> bool:
    return isinstance(source, (str, PathLike)) and Path(source).suffix.lower() == ".parquet"


def _is_text(column_type: Any) -> bool:
    types = import_pyarrow().types
    if types.is_dictionary(column_type):
        column_type = column_type.value_type
    checks = (types.is_string, types.is_large_string, types.is_string_view)
    return any(check(column_type) for check in checks)


def import_pyarrow() -> Any:
    """Return the module `pyarrow`, with `pyarrow.parquet` imported."""
    with needing("Arrow tables and Parquet files need pyarrow", "elmo-plugin[parquet]"):
        import pyarrow
        import pyarrow.parquet
    return pyarrow


def find_sources(
    inputs: Any, options: InputOptions = InputOptions(), output: Optional[FileName] = None
) -> List[SentenceSource]:
    """
    Return the sources of an input, in its order; files of a folder or pattern are sorted by name. No path is
    in the list twice.

    # Parameters

    inputs : `str`, `PathLike`, open file, or several of them
        Each is one of:
        - a source of `SentenceSource`;
        - a folder: its files are read, except those in subfolders;
        - a pattern such as `texts/*.gz`, in which `**` matches folders at any depth.
        Files whose names begin with `.` or `_` are left out, unless the pattern's does too.
    output : `str` or `PathLike`, optional
        The output of the run. Folders and patterns leave out this path and `OUTPUT.partial`.

    # Raises

    `ConfigurationError` if an input matches no file, or a file cannot be opened.
    """
    if isinstance(inputs, (str, PathLike)) or hasattr(inputs, "read"):
        inputs = [inputs]
    found: Dict[Any, Any] = {}
    for one in inputs:
        if not isinstance(one, (str, PathLike)) or str(one) == STANDARD_STREAM:
            found[one] = one
            continue
        for name in _file_names(str(one), output):
            found.setdefault(os.path.abspath(name), name)
    if not found:
        raise ConfigurationError("input: found none, expected files or folders. Name them.")
    # A column is that of all Parquet files; text has none.
    is_parquet = [_is_parquet(one) for one in found.values()]
    of_text = replace(options, column=None) if any(is_parquet) else options
    return [
        SentenceSource(one, options if has_column else of_text)
        for one, has_column in zip(found.values(), is_parquet)
    ]


def check_not_read(sources: Sequence[SentenceSource], output: FileName, what: str) -> None:
    """Raise `ConfigurationError` if an output, which `what` names, is one of the files that are read."""
    check_not_input(output, [source.file_id for source in sources], what)


def _file_names(one_input: str, output: Optional[FileName]) -> List[str]:
    if not one_input:  # as a path, it would be the current folder
        raise ConfigurationError(
            "input: the name is empty, expected a file, a folder or a pattern. Name one."
        )
    path = Path(one_input)
    if path.exists() and not path.is_dir():
        return [one_input]
    are_named = not path.is_dir() and path.name.startswith(_NOT_DATA)
    if path.is_dir():
        found = list(path.iterdir())
        reason = f"the folder {one_input} holds no files"
    else:
        found = [Path(name) for name in glob.glob(one_input, recursive=True)]
        reason = f"there is no file {one_input}, and as a pattern it matches no file"
    # Of a link and of what it points to.
    outputs = [] if output is None else [os.path.abspath(output), os.path.realpath(output)]
    own = [*outputs, *(path + PARTIAL for path in outputs)]
    data = [
        one
        for one in found
        if (are_named or not one.name.startswith(_NOT_DATA))
        and not any(Path(os.path.abspath(one)).is_relative_to(o) for o in own)
    ]
    names = [str(one) for one in data if one.is_file()]
    folders = [str(one) for one in data if one.is_dir()]
    if path.is_dir() and folders:
        logger.warning(
            "input: files in subfolders of %s are not read, such as %s. To read them too, give the pattern "
            "'%s/**/*'.",
            one_input,
            min(folders),
            one_input.rstrip("/"),
        )
    if not names:
        raise ConfigurationError(
            f"input: {reason}, expected text or Parquet files. Correct the path."
        )
    return sorted(names)
