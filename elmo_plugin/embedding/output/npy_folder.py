"""Embedded sentences as numpy arrays that can be mapped into memory, in a folder."""

import json
import os
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Dict, Iterator, NamedTuple, Optional, Tuple

import numpy

from elmo_plugin.embedding.output.about_file import write_about
from elmo_plugin.embedding.output.appended_array import AppendedArray
from elmo_plugin.embedding.output.embedding_writer import WriterState
from elmo_plugin.embedding.sentence_file import Sentence

_FOLDER_NAME = "vectors"


class _Files(NamedTuple):
    vectors: AppendedArray
    offsets: AppendedArray
    lines: AppendedArray
    sentences: BinaryIO


class NpyWriter:
    """
    An `EmbeddingWriter` for a folder with

    - `vectors.npy`, of all tokens one after the other, `(num_tokens, dim)` or
      `(num_tokens, num_layers, dim)`;
    - `offsets.npy`, `(num_sentences + 1,)`, int64: the tokens of sentence i are those from `offsets[i]` up to
      `offsets[i + 1]`;
    - `lines.npy`, `(num_sentences,)`, int64: the zero-based number of each sentence's line;
    - `sentences.jsonl`: for each sentence a JSON object with `line`, `sentence` and `tokens`;
    - `_embedding.json`: how they were made.

    # Parameters

    vector_shape : `Tuple[int, ...]`
        Of the vectors of one token: `(dim,)` or `(num_layers, dim)`.
    dtype : `str`
        Of the vectors: `float32` or `float16`.
    """

    def __init__(self, vector_shape: Tuple[int, ...], dtype: str) -> None:
        self._vector_shape = vector_shape
        self._dtype = dtype
        self._folder = Path()
        self._files: Optional[_Files] = None

    @property
    def settings(self) -> Dict[str, Any]:
        """See `EmbeddingWriter`."""
        return {"format": "npy"}

    def check(self, index: int, text: str) -> None:
        """See `EmbeddingWriter`. It can hold every sentence."""

    @contextmanager
    def open(self, folder: Path, state: Optional[WriterState]) -> Iterator[None]:
        """See `EmbeddingWriter`."""
        self._folder = folder / _FOLDER_NAME
        self._folder.mkdir(exist_ok=True)
        state = state or {"num_tokens": 0, "num_sentences": 0, "num_bytes": 0}
        num_tokens, num_sentences = state["num_tokens"], state["num_sentences"]
        with ExitStack() as stack:
            vectors, offsets, lines = (
                AppendedArray(self._folder / f"{name}.npy", shape, dtype, num_items)
                for name, shape, dtype, num_items in [
                    ("vectors", self._vector_shape, self._dtype, num_tokens),
                    ("offsets", (), "int64", num_sentences + 1 if num_sentences else 0),
                    ("lines", (), "int64", num_sentences),
                ]
            )
            for array in (vectors, offsets, lines):
                stack.callback(array.close)
            if not num_sentences:
                offsets.append(numpy.zeros(1))
            sentences = stack.enter_context(open(self._folder / "sentences.jsonl", "ab"))
            sentences.truncate(state["num_bytes"])
            sentences.seek(0, os.SEEK_END)
            self._files = _Files(vectors, offsets, lines, sentences)
            yield

    def skip(self, sentence: Sentence) -> None:
        """See `EmbeddingWriter`. There is nothing to note."""

    def write(self, sentence: Sentence, vectors: numpy.ndarray) -> None:
        """See `EmbeddingWriter`."""
        assert self._files is not None
        # Tokens first: (num_tokens, num_layers, dim)
        self._files.vectors.append(vectors if vectors.ndim == 2 else vectors.swapaxes(0, 1))
        self._files.offsets.append(numpy.array([self._files.vectors.num_items]))
        self._files.lines.append(numpy.array([sentence.line_index]))
        row = {"line": sentence.line_index, "sentence": sentence.text, "tokens": sentence.tokens}
        self._files.sentences.write(json.dumps(row, ensure_ascii=False).encode() + b"\n")

    def checkpoint(self) -> WriterState:
        """See `EmbeddingWriter`."""
        assert self._files is not None
        for array in self._files[:3]:
            array.sync()
        self._files.sentences.flush()
        os.fsync(self._files.sentences.fileno())
        return {
            "num_tokens": self._files.vectors.num_items,
            "num_sentences": self._files.lines.num_items,
            "num_bytes": self._files.sentences.tell(),
        }

    def finish(self, about: Dict[str, Any]) -> Path:
        """See `EmbeddingWriter`."""
        # The arrays themselves are completed as the context ends.
        write_about(self._folder, about)
        return self._folder
