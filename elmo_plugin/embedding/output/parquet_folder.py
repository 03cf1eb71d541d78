"""Embedded sentences as Parquet files in a folder."""

import os
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Tuple

import numpy

from elmo_plugin.embedding.output.about_file import write_about
from elmo_plugin.embedding.output.arrow_table import (
    embedding_schema,
    embedding_table,
    import_pyarrow,
)
from elmo_plugin.embedding.output.embedding_writer import WriterState
from elmo_plugin.embedding.sentence_file import Sentence

_FOLDER_NAME = "vectors"


class ParquetWriter:
    """
    An `EmbeddingWriter` for a folder of Parquet files, a part at each checkpoint: `part-00000.parquet` and so
    on, with a row for each sentence and the columns of `embedding_schema`; and `_embedding.json`, which says
    how they were made.

    Holds the vectors of one part in memory.

    # Parameters

    source : `str`
        Where the sentences are from.
    vector_shape : `Tuple[int, ...]`
        Of the vectors of one token: `(dim,)` or `(num_layers, dim)`.
    dtype : `str`
        Of the vectors: `float32` or `float16`.

    # Raises

    `ConfigurationError` if pyarrow is not installed.
    """

    def __init__(self, source: str, vector_shape: Tuple[int, ...], dtype: str) -> None:
        self._source = source
        self._schema = embedding_schema(vector_shape, dtype)
        self._folder = Path()
        self._num_parts = 0
        self._sentences: List[Sentence] = []
        self._vectors: List[numpy.ndarray] = []

    @property
    def settings(self) -> Dict[str, Any]:
        """See `EmbeddingWriter`."""
        return {"format": "parquet"}

    def check(self, index: int, text: str) -> None:
        """See `EmbeddingWriter`. It can hold every sentence."""

    @contextmanager
    def open(self, folder: Path, state: Optional[WriterState]) -> Iterator[None]:
        """See `EmbeddingWriter`."""
        self._folder = folder / _FOLDER_NAME
        self._folder.mkdir(exist_ok=True)
        self._num_parts = state["num_parts"] if state is not None else 0
        kept = {self._part_path(number) for number in range(self._num_parts)}
        for path in self._folder.iterdir():
            if path not in kept:
                path.unlink()
        yield

    def skip(self, sentence: Sentence) -> None:
        """See `EmbeddingWriter`. There is nothing to note."""

    def write(self, sentence: Sentence, vectors: numpy.ndarray) -> None:
        """See `EmbeddingWriter`."""
        self._sentences.append(sentence)
        self._vectors.append(vectors)

    def checkpoint(self) -> WriterState:
        """See `EmbeddingWriter`."""
        if self._sentences:
            source = [self._source] * len(self._sentences)
            table = embedding_table(source, self._sentences, self._vectors, self._schema)
            write_part(table, self._part_path(self._num_parts))
            self._num_parts += 1
            self._sentences, self._vectors = [], []
        return {"num_parts": self._num_parts}

    def finish(self, about: Dict[str, Any]) -> Path:
        """See `EmbeddingWriter`."""
        self.checkpoint()
        write_about(self._folder, about)
        return self._folder

    def _part_path(self, number: int) -> Path:
        return self._folder / f"part-{number:05d}.parquet"


def write_part(table: Any, path: Path) -> None:
    """
    Write a `pyarrow.Table` of embedded sentences to a Parquet file, and to the disk.

    # Raises

    `OSError` if it cannot be written.
    """
    # Vectors have no value twice, for which a dictionary would pay.
    with open(path, "wb") as file:
        import_pyarrow().parquet.write_table(
            table, file, compression="zstd", use_dictionary=["source"]
        )
        file.flush()
        os.fsync(file.fileno())
