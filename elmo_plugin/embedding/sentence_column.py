"""Read sentences from a column of a Parquet file."""

from contextlib import contextmanager
from pathlib import Path
from typing import Any, Iterator, List, Optional, Tuple

from elmo_plugin.errors import ConfigurationError, needing
from elmo_plugin.files.text import MAX_LINE_BYTES

# Rows of a Parquet file that are decoded together, and bytes of it that are read ahead.
ROWS_PER_BATCH = 1024
BUFFER_BYTES = 2**20

# The text of a line or row, and its tokens if a Parquet file has them.
TextAndTokens = Tuple[str, Optional[List[str]]]


def import_pyarrow() -> Any:
    """
    Return the module `pyarrow`, with `pyarrow.parquet` imported. Raise `ConfigurationError` if the extra is
    not installed.
    """
    with needing("Arrow tables and Parquet files need pyarrow", "elmo-plugin[parquet]"):
        import pyarrow
        import pyarrow.parquet
    return pyarrow


class SentenceColumn:
    """
    The column of a Parquet file that holds sentences: strings, or lists of tokens.

    # Parameters

    path : `Path`
        The file.
    name : `str`
        Name of the file in errors.
    column : `str`
        Name of the column.

    # Raises

    `ConfigurationError` if the file cannot be read, or the column does not exist or has another type.
    """

    def __init__(self, path: Path, name: str, column: str) -> None:
        self._path = path
        self._name = name
        self.column = column
        with self._opened() as file:
            schema = file.schema_arrow
        if column not in schema.names:
            raise ConfigurationError(
                f"{name}: has no column '{column}', expected a column of sentences. Its columns are "
                f"{', '.join(schema.names)}; name one of them with --column (column=...)."
            )
        column_type = schema.field(column).type
        types = import_pyarrow().types
        is_list = types.is_list(column_type) or types.is_large_list(column_type)
        self.holds_tokens = is_list and _is_text(column_type.value_type)
        if not self.holds_tokens and not _is_text(column_type):
            raise ConfigurationError(
                f"{name}: column '{column}' is of type {column_type}, expected string, or list<string> for "
                "tokens. Name another column with --column (column=...)."
            )

    def rows(self) -> Iterator[TextAndTokens]:
        """Yield the text of each row, and its tokens if the column holds them. Null is an empty text."""
        number = 0
        with self._opened() as file:
            # One thread: on Ray, each file is read by a worker with one core.
            batches = file.iter_batches(ROWS_PER_BATCH, columns=[self.column], use_threads=False)
            while True:
                with self._readable():
                    batch = next(batches, None)
                    if batch is None:
                        return
                    batch.validate(full=True)  # that strings are UTF-8
                for value in batch.column(0).to_pylist():
                    number += 1
                    yield self._text_and_tokens(value, f"{self._name}, row {number}")

    @contextmanager
    def _opened(self) -> Iterator[Any]:
        parquet = import_pyarrow().parquet
        with self._readable():
            file = parquet.ParquetFile(str(self._path), pre_buffer=False, buffer_size=BUFFER_BYTES)
        with file:
            yield file

    @contextmanager
    def _readable(self) -> Iterator[None]:
        try:
            yield
        except (OSError, import_pyarrow().ArrowException) as error:
            raise ConfigurationError(
                f"{self._name}: cannot be read as a Parquet file ({error}). The file may be missing, "
                "damaged, cut short or of another kind; correct the path, or get another copy."
            ) from error

    def _text_and_tokens(self, value: Any, where: str) -> TextAndTokens:
        if value is None:
            return "", None
        if self.holds_tokens and None in value:
            raise ConfigurationError(
                f"{where}: token {value.index(None) + 1} in column '{self.column}' is null, expected a "
                "string. Remove such tokens."
            )
        text = " ".join(value) if self.holds_tokens else value
        if len(text) > MAX_LINE_BYTES:
            raise ConfigurationError(
                f"{where}: found text of {len(text):,} characters in column '{self.column}', expected one "
                f"sentence of at most {MAX_LINE_BYTES:,}. Split the text."
            )
        return text, value if self.holds_tokens else None


def _is_text(column_type: Any) -> bool:
    types = import_pyarrow().types
    if types.is_dictionary(column_type):
        column_type = column_type.value_type
    return bool(
        types.is_string(column_type)
        or types.is_large_string(column_type)
        or types.is_string_view(column_type)
    )
