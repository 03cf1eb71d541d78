"""Parquet files of sentences to embed: one in each row."""

from contextlib import contextmanager
from os import PathLike
from typing import Any, Iterator, List, Optional, Tuple, Union

from allennlp.common.checks import ConfigurationError

from elmo_plugin.embedding.checked_sentences import CheckedSentences
from elmo_plugin.embedding.output.arrow_table import import_pyarrow
from elmo_plugin.files.text_lines import MAX_LINE_BYTES

# How much of a file is held: rows that are decoded together, and bytes that are read ahead.
ROWS_PER_BATCH = 1024
BUFFER_BYTES = 2**20


class ParquetSentences(CheckedSentences):
    """
    A source of sentences that holds a batch of rows in memory. The index of a sentence is the number of its
    row in the file, from 0. Null counts as blank.

    # Parameters

    path : `str` or `PathLike`
        A Parquet file.
    column : `str`, optional (default = `"sentence"`)
        The column that holds the sentences: strings, or lists of strings, which are then the tokens.
    tokenizer : `str`, optional (default = `"whitespace"`)
        A key of `TOKENIZERS`, for strings.
    skip_blank : `bool`, optional (default = `False`)
        Leave blank rows out; they are counted all the same. Otherwise they are errors.

    # Raises

    `ConfigurationError` if there is no such tokenizer, the file cannot be read as Parquet, or it has no such
    column, or one of another type; or if pyarrow is not installed.
    """

    _place = "row"
    _expected = "one sentence in each row"

    def __init__(
        self,
        path: Union[str, PathLike],
        column: str = "sentence",
        tokenizer: str = "whitespace",
        skip_blank: bool = False,
    ) -> None:
        super().__init__(str(path), tokenizer, skip_blank)
        self.settings["column"] = column
        self._column = column
        parquet = import_pyarrow().parquet
        with self._readable():
            self._file = parquet.ParquetFile(self.name, pre_buffer=False, buffer_size=BUFFER_BYTES)
        try:
            self._holds_tokens = self._check_column(self._file.schema_arrow)
        except ConfigurationError:
            self._file.close()
            raise

    def __exit__(self, *exception: object) -> None:
        self._file.close()

    def _check_column(self, schema: Any) -> bool:
        """Whether the column holds tokens."""
        if self._column not in schema.names:
            raise ConfigurationError(
                f"{self.name}: there is no column '{self._column}', expected one that holds sentences. The "
                f"columns are {', '.join(schema.names)}; name one of them with --column (column=...)."
            )
        column_type = schema.field(self._column).type
        answer = holds_tokens(column_type)
        if answer is None:
            raise ConfigurationError(
                f"{self.name}: column '{self._column}' is of type {column_type}, expected string, or "
                "list<string> for tokens. Name another column with --column (column=...)."
            )
        return answer

    def _texts(self) -> Iterator[Tuple[int, str, Optional[List[str]]]]:
        index = 0
        # One thread: workers read several files at a time, each with its own core.
        batches = self._file.iter_batches(ROWS_PER_BATCH, columns=[self._column], use_threads=False)
        while True:
            with self._readable():
                batch = next(batches, None)
            if batch is None:
                return
            for value in batch.column(0):
                text, tokens = self._text_of(value, index)
                yield index, text, tokens
                index += 1

    def _text_of(self, scalar: Any, index: int) -> Tuple[str, Optional[List[str]]]:
        """The text of a row, and its tokens if they are given."""
        where = f"{self.name}, row {index + 1}"
        try:
            value = scalar.as_py()
        except UnicodeDecodeError as error:
            raise ConfigurationError(
                f"{where}: found the bytes {error.object[error.start : error.end]!r} in column "
                f"'{self._column}', expected UTF-8. Write the file anew with text in this encoding."
            ) from error
        if value is None:
            return "", [] if self._holds_tokens else None
        if self._holds_tokens and None in value:
            raise ConfigurationError(
                f"{where}: token {value.index(None) + 1} in column '{self._column}' is null, expected a "
                "string. Remove such tokens."
            )
        text = " ".join(value) if self._holds_tokens else value
        if len(text) > MAX_LINE_BYTES:
            raise ConfigurationError(
                f"{where}: found text of {len(text):,} characters in column '{self._column}', expected one "
                f"sentence of at most {MAX_LINE_BYTES:,}. Split the text."
            )
        return text, value if self._holds_tokens else None

    @contextmanager
    def _readable(self) -> Iterator[None]:
        """What pyarrow finds wrong with the file becomes a `ConfigurationError`."""
        try:
            yield
        except (OSError, import_pyarrow().ArrowException) as error:
            raise ConfigurationError(
                f"{self.name}: cannot be read as a Parquet file ({error}). The file may be missing, damaged, "
                "cut short or of another kind; correct the path, or get another copy."
            ) from error


def holds_tokens(column_type: Any) -> Optional[bool]:
    """
    Whether a column of this `pyarrow.DataType` holds lists of tokens; `False` if it holds text, `None` if
    neither.
    """
    types = import_pyarrow().types
    if _is_text(column_type):
        return False
    if types.is_list(column_type) or types.is_large_list(column_type):
        return True if _is_text(column_type.value_type) else None
    return None


def _is_text(column_type: Any) -> bool:
    types = import_pyarrow().types
    if types.is_dictionary(column_type):
        column_type = column_type.value_type
    return bool(
        types.is_string(column_type)
        or types.is_large_string(column_type)
        or types.is_string_view(column_type)
    )
