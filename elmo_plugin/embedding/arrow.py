"""Embedded sentences as Arrow tables, for Parquet files and Ray Data."""

from typing import Any, List, Optional, Sequence

import numpy

from elmo_plugin.errors import needing


def import_pyarrow() -> Any:
    """
    Return the module `pyarrow`, with `pyarrow.parquet` imported, or raise `ConfigurationError` if the extra
    is not installed.
    """
    with needing("Arrow tables and Parquet files need pyarrow", "elmo-plugin[parquet]"):
        import pyarrow
        import pyarrow.parquet
    return pyarrow


def holds_tokens(column_type: Any) -> Optional[bool]:
    """
    Return whether a column of this `pyarrow.DataType` holds lists of tokens: `True` for lists of strings,
    `False` for strings, `None` for other types.
    """
    types = import_pyarrow().types
    if _is_text(column_type):
        return False
    if types.is_list(column_type) or types.is_large_list(column_type):
        return True if _is_text(column_type.value_type) else None
    return None


def vector_columns(vector_shape: Sequence[int], is_pooled: bool = False) -> List[str]:
    """
    Return the names of the columns for vectors of this shape: `vectors` for `(dim,)` (`vector`, if they are
    pooled), and `layer_0`, `layer_1` and so on for `(num_layers, dim)`, so that one layer can be read without
    the others.
    """
    if len(vector_shape) == 1:
        return ["vector" if is_pooled else "vectors"]
    return [f"layer_{number}" for number in range(vector_shape[0])]


def embedding_schema(vector_shape: Sequence[int], dtype: str, is_pooled: bool = False) -> Any:
    """
    Return the `pyarrow.Schema` of sentences with vectors of this shape (of a token, or of a sentence if they
    are pooled) and data type.
    """
    pyarrow = import_pyarrow()
    vector = pyarrow.list_(pyarrow.from_numpy_dtype(numpy.dtype(dtype)), vector_shape[-1])
    of_sentence = vector if is_pooled else pyarrow.list_(vector)
    return pyarrow.schema(
        [
            ("source", pyarrow.string()),
            ("line", pyarrow.int64()),
            ("sentence", pyarrow.string()),
            ("tokens", pyarrow.list_(pyarrow.string())),
            *((name, of_sentence) for name in vector_columns(vector_shape, is_pooled)),
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
    offsets = numpy.zeros(len(sentences) + 1, dtype="int32")
    numpy.cumsum([len(sentence.tokens) for sentence in sentences], out=offsets[1:])
    names = schema.names[4:]
    per_layer = list(zip(*vectors)) if names[0].startswith("layer_") else [vectors]
    columns = [
        pyarrow.array([source] * len(sentences), type=pyarrow.string()),
        pyarrow.array([sentence.line_index for sentence in sentences], type=pyarrow.int64()),
        pyarrow.array([sentence.text for sentence in sentences], type=pyarrow.string()),
        pyarrow.array(
            [sentence.tokens for sentence in sentences], type=pyarrow.list_(pyarrow.string())
        ),
    ]
    for name, layer in zip(names, per_layer):
        list_type = schema.field(name).type
        values = pyarrow.array(numpy.concatenate(layer).ravel())
        if pyarrow.types.is_fixed_size_list(list_type):  # pooled
            columns.append(pyarrow.FixedSizeListArray.from_arrays(values, type=list_type))
            continue
        tokens = pyarrow.FixedSizeListArray.from_arrays(values, type=list_type.value_type)
        columns.append(pyarrow.ListArray.from_arrays(offsets, tokens, type=list_type))
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
