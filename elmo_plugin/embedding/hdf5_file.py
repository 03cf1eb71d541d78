"""Embedded sentences in HDF5, laid out as AllenNLP 0.9 did."""

import json
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Dict, Iterator, Optional, Union

import h5py
import numpy

from elmo_plugin.embedding.guarded_file import GuardedFile
from elmo_plugin.embedding.sentence_file import Sentence
from elmo_plugin.embedding.sentence_keys import LineKeys, SentenceKeys

INDEX_NAME = "sentence_to_index"


class HDF5Writer:
    """
    An `EmbeddingWriter` for HDF5: one dataset for each sentence, whose key is the zero-based number of the
    line as a string; and the dataset `sentence_to_index`, `(1,)`, a string that holds JSON: the key of each
    line, stripped; of lines that are the same, the last one's.

    # Parameters

    forget_sentences : `bool`, optional (default = `False`)
        Leave `sentence_to_index` out. It takes memory for each distinct line.
    use_sentence_keys : `bool`, optional (default = `False`)
        The key of a sentence is the stripped line; there is no `sentence_to_index`. See `SentenceKeys`.
    """

    def __init__(self, forget_sentences: bool = False, use_sentence_keys: bool = False) -> None:
        self._has_index = not (forget_sentences or use_sentence_keys)
        self._keys: Union[LineKeys, SentenceKeys] = (
            SentenceKeys() if use_sentence_keys else LineKeys(self._has_index)
        )
        self._sentence_to_index: Dict[str, str] = {}
        self._path = Path()
        self._guarded: Optional[GuardedFile] = None
        self._file: Optional[h5py.File] = None

    def check(self, index: int, text: str) -> None:
        """See `EmbeddingWriter`. Raises as the keys do."""
        self._keys.check(index, text)

    @contextmanager
    def open(self, path: Path) -> Iterator[None]:
        """See `EmbeddingWriter`."""
        self._path = path
        self._guarded = GuardedFile(path)
        try:
            self._file = h5py.File(self._guarded, "w")
            yield
            if self._has_index:
                self._add(
                    INDEX_NAME, numpy.array([json.dumps(self._sentence_to_index)], dtype=object)
                )
        except BaseException:
            # A second failure would hide the first.
            with suppress(OSError, RuntimeError, ValueError):
                self._close()
            raise
        self._close()

    def write(self, sentence: Sentence, vectors: numpy.ndarray) -> None:
        """See `EmbeddingWriter`."""
        key = self._keys.key_of(sentence.line_index, sentence.text)
        if self._has_index:
            self._sentence_to_index[sentence.text] = key
        self._add(key, vectors)

    def _add(self, key: str, data: numpy.ndarray) -> None:
        assert self._file is not None and self._guarded is not None
        dtype = h5py.string_dtype() if data.dtype == object else data.dtype
        self._file.create_dataset(key, data=data, dtype=dtype)
        self._guarded.check()

    def _close(self) -> None:
        assert self._guarded is not None
        try:
            if self._file is not None:
                self._file.close()
        finally:
            self._guarded.close()
        self._guarded.check()
