"""Embedded sentences in HDF5, laid out as AllenNLP 0.9 did."""

import json
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Dict, Iterator, Optional, Union

import h5py
import numpy

from elmo_plugin.embedding.output.embedding_writer import WriterState
from elmo_plugin.embedding.output.guarded_file import GuardedFile
from elmo_plugin.embedding.output.undo_log import UndoLog, roll_back
from elmo_plugin.embedding.sentence_file import Sentence
from elmo_plugin.embedding.sentence_keys import LineKeys, SentenceKeys

INDEX_NAME = "sentence_to_index"
ABOUT_NAME = "elmo_plugin"  # an attribute of the file, which readers of datasets do not meet

_FILE_NAME = "vectors.hdf5"


class HDF5Writer:
    """
    An `EmbeddingWriter` for HDF5: one dataset for each sentence, whose key is the zero-based number of the
    line as a string; and the dataset `sentence_to_index`, `(1,)`, a string that holds JSON: the key of each
    line, stripped; of lines that are the same, the last one's. The file's attribute `elmo_plugin`, a string
    that holds JSON, says how it was made.

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
        self._folder = Path()
        self._guarded: Optional[GuardedFile] = None
        self._file: Optional[h5py.File] = None
        self._num_checkpoints = 0
        self._undo_log: Optional[UndoLog] = None

    @property
    def settings(self) -> Dict[str, Any]:
        """See `EmbeddingWriter`."""
        keys = "sentences" if isinstance(self._keys, SentenceKeys) else "line numbers"
        return {"format": "hdf5", "keys": keys, "sentence_to_index": self._has_index}

    def check(self, index: int, text: str) -> None:
        """See `EmbeddingWriter`. Raises as the keys do."""
        self._keys.check(index, text)

    @contextmanager
    def open(self, folder: Path, state: Optional[WriterState]) -> Iterator[None]:
        """See `EmbeddingWriter`."""
        self._folder = folder
        path = folder / _FILE_NAME
        if state is None:
            path.unlink(missing_ok=True)
        else:
            self._num_checkpoints = state["num_checkpoints"]
            roll_back(path, self._log_path(self._num_checkpoints), state["num_bytes"])
        self._guarded = GuardedFile(path)
        try:
            self._file = h5py.File(self._guarded, "w" if state is None else "r+")
            if state is not None:
                self._begin_log(state["num_bytes"])
            yield
        except BaseException:
            # A second failure would hide the first.
            with suppress(OSError, RuntimeError, ValueError):
                self._close()
            raise
        self._close()

    def skip(self, sentence: Sentence) -> None:
        """See `EmbeddingWriter`."""
        if self._has_index:
            self._sentence_to_index[sentence.text] = self._key_of(sentence)

    def write(self, sentence: Sentence, vectors: numpy.ndarray) -> None:
        """See `EmbeddingWriter`."""
        self.skip(sentence)
        self._add(self._key_of(sentence), vectors)

    def checkpoint(self) -> WriterState:
        """See `EmbeddingWriter`."""
        assert self._file is not None and self._guarded is not None
        self._file.flush()
        num_bytes = self._guarded.sync()
        self._guarded.check()
        # Until the caller has kept the new state, the log of the former one is needed; then no more.
        self._log_path(self._num_checkpoints - 1).unlink(missing_ok=True)
        self._num_checkpoints += 1
        self._begin_log(num_bytes)
        return {"num_bytes": num_bytes, "num_checkpoints": self._num_checkpoints}

    def finish(self, about: Dict[str, Any]) -> Path:
        """See `EmbeddingWriter`."""
        assert self._file is not None
        if self._has_index:
            index = json.dumps(self._sentence_to_index)
            self._add(INDEX_NAME, numpy.array([index], dtype=object))
        self._file.attrs[ABOUT_NAME] = json.dumps(about)
        self._close()
        return self._folder / _FILE_NAME

    def _key_of(self, sentence: Sentence) -> str:
        return self._keys.key_of(sentence.line_index, sentence.text)

    def _add(self, key: str, data: numpy.ndarray) -> None:
        assert self._file is not None and self._guarded is not None
        dtype = h5py.string_dtype() if data.dtype == object else data.dtype
        self._file.create_dataset(key, data=data, dtype=dtype)
        self._guarded.check()

    def _log_path(self, num_checkpoints: int) -> Path:
        return self._folder / f"undo-{num_checkpoints}.log"

    def _begin_log(self, num_bytes: int) -> None:
        assert self._guarded is not None
        if self._undo_log is not None:
            self._undo_log.close()
        self._undo_log = UndoLog(self._log_path(self._num_checkpoints), num_bytes)
        self._guarded.undo_log = self._undo_log

    def _close(self) -> None:
        if self._guarded is None:
            return
        guarded, self._guarded = self._guarded, None
        try:
            if self._file is not None:
                self._file.close()
        finally:
            guarded.close()
            if self._undo_log is not None:
                self._undo_log.close()
        guarded.check()


def about_hdf5(path: Path) -> Optional[Dict[str, Any]]:
    """How the embedding in a file was made; `None` if the file does not say."""
    try:
        with h5py.File(path) as file:
            return json.loads(file.attrs[ABOUT_NAME])
    except (OSError, KeyError, ValueError):
        return None
