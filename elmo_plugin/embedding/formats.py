"""The output formats: how each writes a part, and how it makes the output from the parts."""

import itertools
import json
import logging
import math
import os
from abc import ABC, abstractmethod
from contextlib import contextmanager
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import (
    IO,
    Any,
    BinaryIO,
    Dict,
    Iterable,
    Iterator,
    Optional,
    Sequence,
    Tuple,
    Union,
)

import h5py
import numpy
from h5py import h5d, h5p, h5s, h5t
from numpy.lib import format as npy_format

from elmo_plugin.embedding.arrow import embedding_schema, embedding_table, import_pyarrow
from elmo_plugin.embedding.guarded_file import GuardedFile
from elmo_plugin.embedding.sentences import Sentence
from elmo_plugin.errors import ConfigurationError

HDF5, PARQUET, NPY = FORMATS = ("hdf5", "parquet", "npy")

# In a folder: how it was made. Readers of Parquet folders skip names that begin with an underscore.
ABOUT_FILE = "_embedding.json"
# In HDF5: an attribute of the file, so that it is not among the datasets.
ABOUT_ATTRIBUTE = "elmo_plugin"
INDEX_NAME = "sentence_to_index"
# HDF5 stores the length of a string in 32 bits.
MAX_INDEX_BYTES = 2**32 - 1
# Rows of a Parquet file that are written together.
ROWS_PER_TABLE = 256

_ENDINGS = {".hdf5": HDF5, ".h5": HDF5, ".parquet": PARQUET, ".npy": NPY}

logger = logging.getLogger(__name__)


def format_of(output: Union[str, PathLike], format: Optional[str] = None) -> str:
    """Return `format` if it is given, otherwise the format that the ending of `output` stands for."""
    if format is not None:
        return format
    ending = Path(output).suffix.lower()
    if ending not in _ENDINGS:
        raise ConfigurationError(
            f"output: {output} ends in '{ending}', expected one of {', '.join(_ENDINGS)}. Give another name, "
            "or the format with --format (format=...)."
        )
    return _ENDINGS[ending]


@dataclass(frozen=True)
class OutputFormat(ABC):
    """A format of the output and of its parts. Can be pickled, to be sent to workers."""

    # Of the vectors of one token, or of one sentence if they are pooled: `(dim,)` or `(num_layers, dim)`.
    vector_shape: Tuple[int, ...]
    dtype: str  # `float32` or `float16`
    # Whether there is one vector for each sentence, in place of one for each token.
    is_pooled: bool = field(default=False, kw_only=True)

    name = ""  # one of `FORMATS`
    # Ending of the names of parts.
    part_ending = "arrays"
    # Whether parts are copied into the output, which takes as much disk again.
    merges_parts = True

    @property
    def settings(self) -> Dict[str, Any]:
        """Settings that must be the same when a run is resumed. Can be written as JSON."""
        return {"format": self.name}

    @property
    def bytes_per_vector(self) -> int:
        """Size of the vectors of a token, or of a sentence if they are pooled."""
        return math.prod(self.vector_shape) * numpy.dtype(self.dtype).itemsize

    def num_vectors(self, num_sentences: int, num_tokens: int) -> int:
        """Return the number of vectors of these sentences, which have this number of tokens together."""
        return num_sentences if self.is_pooled else num_tokens

    def check(self, line_index: int, text: str) -> None:
        """Raise `ConfigurationError`, naming the line, if the format cannot hold a sentence."""
        return

    def write_part(
        self,
        file: BinaryIO,
        source: str,
        sentences: Sequence[Sentence],
        vectors: Sequence[numpy.ndarray],
    ) -> None:
        """
        Write a part: sentences of the source of this name, at least one. `vectors` has an array for each
        sentence, `(num_tokens, dim)` or `(num_layers, num_tokens, dim)`, without the dimension of tokens if
        they are pooled.
        """
        file.write(json.dumps(sentences).encode() + b"\n")
        for array in vectors:
            file.write(numpy.ascontiguousarray(array).data)

    def stored(self, parts: Iterable[Path]) -> Iterator[Tuple[Sentence, numpy.ndarray]]:
        """Read parts: yield each sentence with its vectors, as they were given to `write_part`."""
        for path in parts:
            with open(path, "rb") as file:
                for sentence in itertools.starmap(Sentence, json.loads(file.readline())):
                    num_vectors = self.num_vectors(1, len(sentence.tokens))
                    data = file.read(num_vectors * self.bytes_per_vector)
                    tokens = () if self.is_pooled else (num_vectors,)
                    shape = (*self.vector_shape[:-1], *tokens, self.vector_shape[-1])
                    yield sentence, numpy.frombuffer(data, self.dtype).reshape(shape)

    @abstractmethod
    def finish(self, parts: Sequence[Path], folder: Path, about: Dict[str, Any]) -> Path:
        """
        Make the output from all parts, and return its path.

        # Parameters

        parts : `Sequence[Path]`
            The files of the parts, in order, all in one folder. They are not changed.
        folder : `Path`
            Where the output is made. An unfinished one is replaced.
        about : `Dict[str, Any]`
            How the output was made, with `num_sentences` and `num_tokens`. Is written into it as JSON.
        """


class ParquetFormat(OutputFormat):
    """
    A folder of Parquet files with a row for each sentence and the columns of `embedding_schema`, and
    `_embedding.json`. The parts are these files.
    """

    name = PARQUET
    part_ending = "parquet"
    merges_parts = False

    def write_part(
        self,
        file: BinaryIO,
        source: str,
        sentences: Sequence[Sentence],
        vectors: Sequence[numpy.ndarray],
    ) -> None:
        schema = embedding_schema(self.vector_shape, self.dtype, self.is_pooled)
        # A dictionary would not make vectors smaller: they hardly repeat a value.
        with import_pyarrow().parquet.ParquetWriter(
            file, schema, compression="zstd", use_dictionary=["source"]
        ) as writer:
            # In small tables, as each is a copy of its vectors.
            for start in range(0, len(sentences), ROWS_PER_TABLE):
                rows = slice(start, start + ROWS_PER_TABLE)
                writer.write_table(embedding_table(source, sentences[rows], vectors[rows], schema))

    def finish(self, parts: Sequence[Path], folder: Path, about: Dict[str, Any]) -> Path:
        parts_folder = parts[0].parent
        _write_about(parts_folder, about)
        return parts_folder


class NpyFormat(OutputFormat):
    """
    A folder with

    - `vectors.npy`: the vectors of all tokens in order, `(num_tokens, dim)` or
      `(num_tokens, num_layers, dim)`; if they are pooled, those of all sentences, `(num_sentences, dim)` or
      `(num_sentences, num_layers, dim)`;
    - `offsets.npy`, `(num_sentences + 1,)`, int64: the vectors of sentence i are
      `vectors[offsets[i] : offsets[i + 1]]`; not if they are pooled;
    - `lines.npy`, `(num_sentences,)`, int64: the line number of each sentence, from 0;
    - `sentences.jsonl`: for each sentence a JSON object with `line`, `sentence` and `tokens`;
    - `_embedding.json`: how the output was made.
    """

    name = NPY

    def finish(self, parts: Sequence[Path], folder: Path, about: Dict[str, Any]) -> Path:
        product = folder / "product"
        product.mkdir(exist_ok=True)
        num_sentences = about["num_sentences"]
        offsets = numpy.zeros(num_sentences + 1, dtype="int64")
        lines = numpy.zeros(num_sentences, dtype="int64")
        with (
            _synced_file(product / "vectors.npy") as vectors_file,
            _synced_file(product / "sentences.jsonl") as sentences_file,
        ):
            num_vectors = self.num_vectors(num_sentences, about["num_tokens"])
            _write_header(vectors_file, (num_vectors, *self.vector_shape), self.dtype)
            for row, (sentence, vectors) in enumerate(self.stored(parts)):
                if vectors.ndim == 3:
                    # Tokens first, so that the sentences are one array: (num_tokens, num_layers, dim)
                    vectors = vectors.swapaxes(0, 1)
                vectors_file.write(numpy.ascontiguousarray(vectors).data)
                line, text, tokens = sentence
                lines[row], offsets[row + 1] = line, offsets[row] + len(tokens)
                content = {"line": line, "sentence": text, "tokens": tokens}
                sentences_file.write(json.dumps(content, ensure_ascii=False).encode() + b"\n")
        arrays = {"lines": lines} if self.is_pooled else {"offsets": offsets, "lines": lines}
        for name, array in arrays.items():
            with _synced_file(product / f"{name}.npy") as file:
                numpy.save(file, array)
        _write_about(product, about)
        return product


@dataclass(frozen=True)
class HDF5Format(OutputFormat):
    """
    An HDF5 file in the layout of AllenNLP 0.9:

    - a dataset for each sentence, whose key is the line number, from 0, as a string: `(num_tokens, dim)` or
      `(num_layers, num_tokens, dim)`; if they are pooled, `(dim,)` or `(num_layers, dim)`;
    - the dataset `sentence_to_index`, `(1,)`: a JSON string that maps each stripped line to its key (of equal
      lines, to the key of the last);
    - the attribute `elmo_plugin` of the file: a JSON string that says how the file was made.

    # Parameters

    forget_sentences : `bool`, optional (default = `False`)
        Leave out `sentence_to_index`, which takes memory for each distinct line.
    use_sentence_keys : `bool`, optional (default = `False`)
        Use the stripped lines as keys, without `sentence_to_index`. Of equal lines the first is kept, with a
        warning. A slash in a key makes HDF5 groups: `file["km / h"]` finds the vectors, but `file.keys()`
        lists only the group `km `.
    """

    name = HDF5
    forget_sentences: bool = False
    use_sentence_keys: bool = False

    @property
    def settings(self) -> Dict[str, Any]:
        keys = "sentences" if self.use_sentence_keys else "line numbers"
        return {**super().settings, "keys": keys, "sentence_to_index": self._has_index}

    def check(self, line_index: int, text: str) -> None:
        # HDF5 ignores empty steps and single dots in a path.
        steps = [step for step in text.split("/") if step not in ("", ".")]
        if self.use_sentence_keys and (not steps or text.endswith("/")):
            raise ConfigurationError(
                f"line {line_index + 1}: '{text[:80]}' cannot be a key in HDF5, where it is the name of a "
                "group, expected text. Leave out --use-sentence-keys (use_sentence_keys) to have line "
                "numbers as keys, or remove the line."
            )

    def finish(self, parts: Sequence[Path], folder: Path, about: Dict[str, Any]) -> Path:
        product = folder / "product.hdf5"
        product.unlink(missing_ok=True)
        index: Dict[str, str] = {}
        with GuardedFile(product) as guarded, h5py.File(guarded, "w") as file:
            for (line, text, _), vectors in self.stored(parts):
                key = text if self.use_sentence_keys else str(line)
                if self.use_sentence_keys and not _has_room(file, key):
                    logger.warning(
                        "line %d: '%s' is skipped: it is the key of an earlier line, or conflicts with one.",
                        line + 1,
                        text[:80],
                    )
                    continue
                _add_dataset(file, key, vectors)
                guarded.raise_error()
                if self._has_index:
                    index[text] = key
            if self._has_index:
                file.create_dataset(
                    INDEX_NAME,
                    data=numpy.array([_checked_index(index)], dtype=object),
                    dtype=h5py.string_dtype(),
                )
            file.attrs[ABOUT_ATTRIBUTE] = json.dumps(about)
        return product

    @property
    def _has_index(self) -> bool:
        return not (self.forget_sentences or self.use_sentence_keys)


def about_output(output: Union[str, PathLike], format: str) -> Optional[Dict[str, Any]]:
    """Read how a complete output was made; `None` if it was not made by this package."""
    try:
        if format == HDF5:
            with h5py.File(output) as file:
                about = json.loads(file.attrs[ABOUT_ATTRIBUTE])
        else:
            about = json.loads((Path(output) / ABOUT_FILE).read_text(encoding="utf-8"))
        about["settings"].items()
    except (OSError, KeyError, ValueError, TypeError, AttributeError):
        return None
    return dict(about)


def _write_about(folder: Path, about: Dict[str, Any]) -> None:
    with _synced_file(folder / ABOUT_FILE) as file:
        file.write((json.dumps(about, indent=2, ensure_ascii=False) + "\n").encode())


def _write_header(file: IO[bytes], shape: Tuple[int, ...], dtype: Any) -> None:
    descr = npy_format.dtype_to_descr(numpy.dtype(dtype))
    npy_format.write_array_header_1_0(
        file, {"descr": descr, "fortran_order": False, "shape": shape}
    )


@contextmanager
def _synced_file(path: Path) -> Iterator[IO[bytes]]:
    """Open a new file, and sync it to the disk at the end of the context."""
    with open(path, "wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


def _add_dataset(file: h5py.File, key: str, array: numpy.ndarray) -> None:
    """Do what `file.create_dataset(key, data=array)` does, in half the time."""
    link = h5p.create(h5p.LINK_CREATE)
    link.set_create_intermediate_group(True)
    link.set_char_encoding(h5t.CSET_ASCII if key.isascii() else h5t.CSET_UTF8)
    properties = h5p.create(h5p.DATASET_CREATE)
    properties.set_obj_track_times(False)
    dataset = h5d.create(
        file.id,
        key.encode(),
        h5t.py_create(array.dtype, logical=True),
        h5s.create_simple(array.shape),
        dcpl=properties,
        lcpl=link,
    )
    dataset.write(h5s.ALL, h5s.ALL, array)


def _has_room(file: h5py.File, key: str) -> bool:
    """Return whether a dataset can get this key: it is free, and no dataset is on its path."""
    place: Any = file
    for step in key.split("/"):
        if step in ("", "."):
            continue
        if not isinstance(place, h5py.Group):
            return False
        if step not in place:
            return True
        place = place[step]
    return False


def _checked_index(index: Dict[str, str]) -> str:
    text = json.dumps(index)
    if len(text) > MAX_INDEX_BYTES:
        raise ConfigurationError(
            f"sentence_to_index takes {len(text):,} bytes, expected at most {MAX_INDEX_BYTES:,}, the limit "
            "of a string in HDF5. Give --forget-sentences (forget_sentences=True), or split the input."
        )
    return text
