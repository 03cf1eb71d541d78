"""Sentences from Parquet files, and sentences with vectors as Arrow tables."""

import itertools
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Iterator, List, Optional, Sequence, Tuple

import numpy

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
        self._column = column
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
        with self._opened() as file:
            # One thread: on Ray, each file is read by a worker with one core.
            batches = file.iter_batches(ROWS_PER_BATCH, columns=[self._column], use_threads=False)
            numbers = itertools.count(1)
            while True:
                with self._readable():
                    batch = next(batches, None)
                if batch is None:
                    return
                for scalar, number in zip(batch.column(0), numbers):
                    yield self._text_and_tokens(scalar, number)

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

    def _text_and_tokens(self, scalar: Any, number: int) -> TextAndTokens:
        where = f"{self._name}, row {number}"
        try:
            value = scalar.as_py()
        except UnicodeDecodeError as error:
            found = error.object[error.start : error.end]
            raise ConfigurationError(
                f"{where}: found the bytes {found!r} in column '{self._column}', expected UTF-8. Write the "
                "file again with text in this encoding."
            ) from error
        if value is None:
            return "", None
        if self.holds_tokens and None in value:
            raise ConfigurationError(
                f"{where}: token {value.index(None) + 1} in column '{self._column}' is null, expected a "
                "string. Remove such tokens."
            )
        text = " ".join(value) if self.holds_tokens else value
        if len(text) > MAX_LINE_BYTES:
            raise ConfigurationError(
                f"{where}: found text of {len(text):,} characters in column '{self._column}', expected one "
                f"sentence of at most {MAX_LINE_BYTES:,}. Split the text."
            )
        return text, value if self.holds_tokens else None


def embedding_schema(vector_shape: Sequence[int], dtype: str, is_pooled: bool) -> Any:
    """
    Return the `pyarrow.Schema` of sentences with vectors.

    # Parameters

    vector_shape : `Sequence[int]`
        Of a token, or of a sentence if they are pooled. `(dim,)` is the column `vectors` (`vector`, if they
        are pooled); `(num_layers, dim)` are the columns `layer_0`, `layer_1` and so on, so that one layer can
        be read without the others.
    dtype : `str`
        Data type of the vectors.
    is_pooled : `bool`
        Whether there is one vector for each sentence, in place of a list of them.
    """
    pyarrow = import_pyarrow()
    vector = pyarrow.list_(pyarrow.from_numpy_dtype(numpy.dtype(dtype)), vector_shape[-1])
    names = ["vector" if is_pooled else "vectors"]
    if len(vector_shape) == 2:
        names = [f"layer_{number}" for number in range(vector_shape[0])]
    return pyarrow.schema(
        [
            ("source", pyarrow.string()),
            ("line", pyarrow.int64()),
            ("sentence", pyarrow.string()),
            ("tokens", pyarrow.list_(pyarrow.string())),
            *((name, vector if is_pooled else pyarrow.list_(vector)) for name in names),
        ]
    )


def embedding_table(
    source: str, sentences: Sequence[Any], vectors: Sequence[numpy.ndarray], schema: Any
) -> Any:
    """
    Make a `pyarrow.Table` with a row for each sentence.

    # Parameters

    source : `str`
        Name of the file that the sentences are from.
    sentences : `Sequence[Sentence]`
        At least one.
    vectors : `Sequence[numpy.ndarray]`
        For each sentence `(num_tokens, dim)` or `(num_layers, num_tokens, dim)`; without the dimension of
        tokens, if the schema is that of pooled vectors.
    schema : `pyarrow.Schema`
        See `embedding_schema`.
    """
    pyarrow = import_pyarrow()
    columns: List[Any] = [
        [source] * len(sentences),
        [sentence.line_index for sentence in sentences],
        [sentence.text for sentence in sentences],
        [sentence.tokens for sentence in sentences],
    ]
    offsets = numpy.zeros(len(sentences) + 1, dtype="int32")
    numpy.cumsum([len(sentence.tokens) for sentence in sentences], out=offsets[1:])
    fields = list(schema)[len(columns) :]
    has_layers = fields[0].name.startswith("layer_")
    for field, layer in zip(fields, zip(*vectors) if has_layers else [vectors]):
        values = pyarrow.array(numpy.concatenate(layer).ravel())
        if pyarrow.types.is_fixed_size_list(field.type):  # pooled
            columns.append(pyarrow.FixedSizeListArray.from_arrays(values, type=field.type))
            continue
        tokens = pyarrow.FixedSizeListArray.from_arrays(values, type=field.type.value_type)
        columns.append(pyarrow.ListArray.from_arrays(offsets, tokens, type=field.type))
    return pyarrow.table(columns, schema=schema)


def _is_text(column_type: Any) -> bool:
    types = import_pyarrow().types
    if types.is_dictionary(column_type):
        column_type = column_type.value_type
    return bool(
        types.is_string(column_type)
        or types.is_large_string(column_type)
        or types.is_string_view(column_type)
    )
