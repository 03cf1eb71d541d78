"""Embedded sentences as Arrow tables: what Parquet files hold, and what Ray Data passes on."""

from typing import Any, List, Sequence

import numpy
from allennlp.common.checks import ConfigurationError

from elmo_plugin.embedding.sentence_file import Sentence


def import_pyarrow() -> Any:
    """
    The module `pyarrow`, with `pyarrow.parquet` loaded.

    # Raises

    `ConfigurationError` if it is not installed: it comes with extras.
    """
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise ConfigurationError(
            "Arrow tables and Parquet files need the package pyarrow, which is not installed. Install it: "
            "pip install 'elmo_plugin[parquet]'"
        ) from error
    return pyarrow


def vector_columns(vector_shape: Sequence[int]) -> List[str]:
    """
    The names of the columns that hold vectors.

    # Parameters

    vector_shape : `Sequence[int]`
        Shape of one token's vectors: `(dim,)` gives `vectors`, `(num_layers, dim)` gives `layer_0` and so
        on, so that one layer can be read without the others.
    """
    if len(vector_shape) == 1:
        return ["vectors"]
    return [f"layer_{number}" for number in range(vector_shape[0])]


def embedding_schema(vector_shape: Sequence[int], dtype: str) -> Any:
    """
    The `pyarrow.Schema` of embedded sentences.

    # Parameters

    vector_shape : `Sequence[int]`
        See `vector_columns`.
    dtype : `str`
        Of the vectors: `float32` or `float16`.
    """
    pyarrow = import_pyarrow()
    vector = pyarrow.list_(pyarrow.from_numpy_dtype(numpy.dtype(dtype)), vector_shape[-1])
    return pyarrow.schema(
        [
            ("source", pyarrow.string()),
            ("line", pyarrow.int64()),
            ("sentence", pyarrow.string()),
            ("tokens", pyarrow.list_(pyarrow.string())),
            *((name, pyarrow.list_(vector)) for name in vector_columns(vector_shape)),
        ]
    )


def embedding_table(
    source: Sequence[str],
    sentences: Sequence[Sentence],
    vectors: Sequence[numpy.ndarray],
    schema: Any,
) -> Any:
    """
    A `pyarrow.Table` with a row for each sentence.

    # Parameters

    source : `Sequence[str]`
        Of each sentence the file that it is from.
    sentences : `Sequence[Sentence]`
        Their line numbers (from 0), texts and tokens are written.
    vectors : `Sequence[numpy.ndarray]`
        Of each sentence `(num_tokens, dim)` or `(num_layers, num_tokens, dim)`, in the type of the schema.
    schema : `pyarrow.Schema`
        What `embedding_schema` made for vectors of this shape.
    """
    pyarrow = import_pyarrow()
    offsets = numpy.zeros(len(sentences) + 1, dtype="int32")
    numpy.cumsum([len(sentence.tokens) for sentence in sentences], out=offsets[1:])
    names = schema.names[4:]
    per_layer = [vectors] if names == ["vectors"] else list(zip(*vectors))
    columns = [
        pyarrow.array(source, type=pyarrow.string()),
        pyarrow.array([sentence.line_index for sentence in sentences], type=pyarrow.int64()),
        pyarrow.array([sentence.text for sentence in sentences], type=pyarrow.string()),
        pyarrow.array(
            [sentence.tokens for sentence in sentences], type=pyarrow.list_(pyarrow.string())
        ),
    ]
    for name, layer in zip(names, per_layer):
        list_type = schema.field(name).type
        values = pyarrow.array(numpy.concatenate(layer).ravel())
        tokens = pyarrow.FixedSizeListArray.from_arrays(values, type=list_type.value_type)
        columns.append(pyarrow.ListArray.from_arrays(offsets, tokens, type=list_type))
    return pyarrow.table(columns, schema=schema)
