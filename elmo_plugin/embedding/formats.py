"""The output formats: how each writes a part, and how it makes the output from the parts."""

import itertools
import json
import logging
import math
import os
from abc import ABC, abstractmethod
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import (
    IO,
    Any,
    BinaryIO,
    ClassVar,
    Dict,
    Iterable,
    Iterator,
    List,
    Optional,
    Sequence,
    Tuple,
    Type,
)

import h5py
import numpy
from numpy.lib import format as npy_format

from elmo_plugin.arguments import Options, option
from elmo_plugin.embedding.sentences import Sentence, import_pyarrow
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.files.fail_safe import FailSafeFile
from elmo_plugin.files.progress import progress_bar
from elmo_plugin.files.text import FileName

FORMATS = ("hdf5", "parquet", "npy")  # the names of the classes below
DTYPES = ("float32", "float16")

# In a folder: how it was made. Readers of Parquet folders skip names that begin with an underscore.
ABOUT_FILE = "_embedding.json"
# In HDF5: an attribute of the file, so that it is not among the datasets.
ABOUT_ATTRIBUTE = "elmo_plugin"
INDEX_NAME = "sentence_to_index"
# HDF5 stores the length of a string in 32 bits.
MAX_INDEX_BYTES = 2**32 - 1
# Rows of a Parquet file that are written together.
ROWS_PER_TABLE = 256

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class OutputOptions(Options):
    """Format of the output, and what happens to an output that exists."""

    format: Optional[str] = option(
        "format of OUTPUT (default: by its ending, .hdf5 or .h5, .npy, .parquet)",
        None,
        choices=FORMATS,
    )
    dtype: str = option("data type of the vectors", "float32", choices=DTYPES)
    forget_sentences: bool = option(
        "hdf5: leave out sentence_to_index, which needs memory for each line", False
    )
    use_sentence_keys: bool = option(
        "hdf5: lines as keys; of equal lines, only the first is kept",
        False,
    )
    overwrite: bool = option("replace OUTPUT and OUTPUT.partial if they exist", False)
    resume: bool = option("continue an interrupted run, or start if there is none", False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.overwrite and self.resume:
            raise ConfigurationError(
                "--overwrite and --resume are given, expected one of them: --overwrite starts again, "
                "--resume continues an interrupted run."
            )


@dataclass(frozen=True)
class OutputFormat(ABC):
    """A format of the output and of its parts. Can be pickled, to be sent to workers."""

    # Of a class: the name of the format, in `FORMATS`, and the endings of outputs.
    name: ClassVar[str]
    endings: ClassVar[Tuple[str, ...]]
    # Whether the output is a folder, and whether it holds the name of the input file of each sentence.
    is_folder: ClassVar[bool] = True
    holds_sources: ClassVar[bool] = False
    # Ending of the names of parts.
    part_ending: ClassVar[str] = "arrays"
    # Whether parts are copied into the output, which takes as much disk space again.
    merges_parts: ClassVar[bool] = True
    # Whether vectors take less space than their numbers, and what a sentence takes beside them.
    is_compressed: ClassVar[bool] = False
    bytes_per_sentence: ClassVar[int] = 0
    # Whether sentences have keys, which some options choose.
    has_keys: ClassVar[bool] = False

    # Shape of the vectors of a token, or of a sentence if they are pooled: `(dim,)` or `(num_layers, dim)`.
    vector_shape: Tuple[int, ...]
    # Whether there is one vector for each sentence, in place of one for each token.
    is_pooled: bool = False
    options: OutputOptions = OutputOptions()

    @classmethod
    def check_options(cls, options: OutputOptions) -> None:
        """Raise an error if the format lacks an option or a package."""
        if not cls.has_keys and (options.forget_sentences or options.use_sentence_keys):
            raise ConfigurationError(
                "--forget-sentences and --use-sentence-keys (forget_sentences, use_sentence_keys) are "
                f"options of HDF5, but the format is {cls.name}. Leave them out."
            )

    @classmethod
    def read_about(cls, output: FileName) -> str:
        """Read the JSON that `finish` has written into an output. Raise an error if there is none."""
        return (Path(output) / ABOUT_FILE).read_text(encoding="utf-8")

    @property
    def bytes_per_vector(self) -> int:
        """Size of the vectors of a token, or of a sentence if they are pooled."""
        return math.prod(self.vector_shape) * numpy.dtype(self.options.dtype).itemsize

    def num_vectors(self, num_sentences: int, num_tokens: int) -> int:
        """Return the number of vectors of these sentences, which have this number of tokens together."""
        return num_sentences if self.is_pooled else num_tokens

    def write_part(
        self, file: BinaryIO, source: str, sentences: List[Sentence], vectors: List[numpy.ndarray]
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
        for path in progress_bar(parts, "merging", unit=" parts", delay=1):
            with open(path, "rb") as file:
                for sentence in _sentences(file):
                    num_vectors = self.num_vectors(1, len(sentence.tokens))
                    data = file.read(num_vectors * self.bytes_per_vector)
                    tokens = () if self.is_pooled else (num_vectors,)
                    shape = (*self.vector_shape[:-1], *tokens, self.vector_shape[-1])
                    yield sentence, numpy.frombuffer(data, self.options.dtype).reshape(shape)

    @abstractmethod
    def finish(self, parts: Sequence[Path], product: Path, about: Dict[str, Any]) -> Path:
        """
        Make the output from all parts, and return its path.

        # Parameters

        parts : `Sequence[Path]`
            The files of the parts, in order, and nothing else in their folder. They are not changed.
        product : `Path`
            Where the output is made, unless it is the folder of the parts. Does not exist.
        about : `Dict[str, Any]`
            How the output was made, with `num_sentences` and `num_tokens`. Is written into it as JSON.
        """


class ParquetFormat(OutputFormat):
    """
    A folder of Parquet files with a row for each sentence, and `_embedding.json`. The parts are these files.

    The columns are `source`, `line`, `sentence` and `tokens`, and `vectors` (a list of vectors for each
    sentence; `vector` if they are pooled). Several layers are the columns `layer_0`, `layer_1` and so on, so
    that one can be read without the others.
    """

    name = "parquet"
    endings = (".parquet",)
    holds_sources = True
    part_ending = "parquet"
    merges_parts = False
    is_compressed = True

    @classmethod
    def check_options(cls, options: OutputOptions) -> None:
        super().check_options(options)
        import_pyarrow()

    def write_part(
        self, file: BinaryIO, source: str, sentences: List[Sentence], vectors: List[numpy.ndarray]
    ) -> None:
        starts = range(0, len(sentences), ROWS_PER_TABLE)
        groups = [slice(start, start + ROWS_PER_TABLE) for start in starts]
        # In small tables, as each is a copy of its vectors.
        tables = (self._table(source, sentences[rows], vectors[rows]) for rows in groups)
        first = next(tables)
        # A dictionary would not make vectors smaller: they hardly repeat a value.
        with import_pyarrow().parquet.ParquetWriter(
            file, first.schema, compression="zstd", use_dictionary=["source"]
        ) as writer:
            for table in itertools.chain([first], tables):
                writer.write_table(table)

    def finish(self, parts: Sequence[Path], product: Path, about: Dict[str, Any]) -> Path:
        parts_folder = parts[0].parent
        _write_about(parts_folder, about)
        return parts_folder

    def _table(self, source: str, sentences: List[Sentence], vectors: List[numpy.ndarray]) -> Any:
        pyarrow = import_pyarrow()
        lines, texts, tokens = map(list, zip(*sentences))
        columns = {
            "source": [source] * len(sentences),
            "line": [line + 1 for line in lines],
            "sentence": texts,
            "tokens": tokens,
        }
        offsets = numpy.cumsum([0, *map(len, tokens)], dtype="int32")
        has_layers = len(self.vector_shape) == 2
        for number, layer in enumerate(zip(*vectors) if has_layers else [vectors]):
            numbers = pyarrow.array(numpy.concatenate(layer).ravel())
            column = pyarrow.FixedSizeListArray.from_arrays(numbers, self.vector_shape[-1])
            if not self.is_pooled:
                column = pyarrow.ListArray.from_arrays(offsets, column)
            name = "vector" if self.is_pooled else "vectors"
            columns[f"layer_{number}" if has_layers else name] = column
        return pyarrow.table(columns)


class NpyFormat(OutputFormat):
    """
    A folder with

    - `vectors.npy`: the vectors of all tokens in order, `(num_tokens, dim)` or
      `(num_tokens, num_layers, dim)`; if they are pooled, those of all sentences, `(num_sentences, dim)` or
      `(num_sentences, num_layers, dim)`;
    - `offsets.npy`, `(num_sentences + 1,)`, int64: the vectors of sentence i are
      `vectors[offsets[i] : offsets[i + 1]]`; not if they are pooled;
    - `lines.npy`, `(num_sentences,)`, int64: the line number of each sentence, from 1;
    - `sentences.jsonl`: for each sentence a JSON object with `line`, `sentence` and `tokens`;
    - `_embedding.json`: how the output was made.
    """

    name = "npy"
    endings = (".npy",)

    def finish(self, parts: Sequence[Path], product: Path, about: Dict[str, Any]) -> Path:
        product.mkdir()
        num_sentences = about["num_sentences"]
        offsets = numpy.zeros(num_sentences + 1, dtype="int64")
        lines = numpy.zeros(num_sentences, dtype="int64")
        header = {
            "descr": npy_format.dtype_to_descr(numpy.dtype(self.options.dtype)),
            "fortran_order": False,
            "shape": (self.num_vectors(num_sentences, about["num_tokens"]), *self.vector_shape),
        }
        with (
            _synced_file(product / "vectors.npy") as vectors_file,
            _synced_file(product / "sentences.jsonl") as sentences_file,
        ):
            npy_format.write_array_header_1_0(vectors_file, header)
            for row, (sentence, vectors) in enumerate(self.stored(parts)):
                if vectors.ndim == 3:
                    # Tokens first, so that the sentences are one array: (num_tokens, num_layers, dim)
                    vectors = vectors.swapaxes(0, 1)
                vectors_file.write(numpy.ascontiguousarray(vectors).data)
                line_index, text, tokens = sentence
                line = line_index + 1
                lines[row], offsets[row + 1] = line, offsets[row] + len(tokens)
                content = {"line": line, "sentence": text, "tokens": tokens}
                sentences_file.write(json.dumps(content, ensure_ascii=False).encode() + b"\n")
        arrays = {"lines": lines} if self.is_pooled else {"offsets": offsets, "lines": lines}
        for name, array in arrays.items():
            with _synced_file(product / f"{name}.npy") as file:
                numpy.save(file, array)
        _write_about(product, about)
        return product


class HDF5Format(OutputFormat):
    """
    An HDF5 file in the layout of AllenNLP 0.9:

    - a dataset for each sentence, whose key is the line number, from 0, as a string: `(num_tokens, dim)` or
      `(num_layers, num_tokens, dim)`; if they are pooled, `(dim,)` or `(num_layers, dim)`;
    - the dataset `sentence_to_index`, `(1,)`: a JSON string that maps each stripped line to its key (of equal
      lines, to the key of the last);
    - the attribute `elmo_plugin` of the file: a JSON string that says how the file was made.

    With `forget_sentences` there is no `sentence_to_index`. With `use_sentence_keys` there is none either,
    and the stripped lines are keys. A line that cannot be a key is skipped with a warning: a repeated one,
    and some with slashes, at which HDF5 makes groups (`file["km / h"]` finds the vectors, but `file.keys()`
    lists only the group `km `), and a line `.`.
    """

    name = "hdf5"
    endings = (".hdf5", ".h5")
    is_folder = False
    bytes_per_sentence = 350  # the header of a dataset and its entry in the group
    has_keys = True

    @classmethod
    def read_about(cls, output: FileName) -> str:
        with h5py.File(output) as file:
            return file.attrs[ABOUT_ATTRIBUTE]

    def finish(self, parts: Sequence[Path], product: Path, about: Dict[str, Any]) -> Path:
        has_index = not (self.options.forget_sentences or self.options.use_sentence_keys)
        with FailSafeFile(product, "w+") as checked_file, h5py.File(checked_file, "w") as file:
            if has_index:  # first, since it can be too large
                index = [_index_json(parts)]
                file.create_dataset(INDEX_NAME, data=index, dtype=h5py.string_dtype())
                del index
            for (line, text, _), vectors in self.stored(parts):
                key = text if self.options.use_sentence_keys else str(line)
                try:
                    file.create_dataset(key, data=vectors)
                except (ValueError, TypeError) as error:
                    checked_file.raise_error()  # if it is the cause
                    if not self.options.use_sentence_keys:
                        raise
                    message = "line %d: '%s' cannot be a key in HDF5 and is skipped (%s)."
                    logger.warning(message, line + 1, key[:80], error)
                checked_file.raise_error()
            file.attrs[ABOUT_ATTRIBUTE] = json.dumps(about)
        return product


FORMAT_CLASSES: Tuple[Type[OutputFormat], ...] = (HDF5Format, ParquetFormat, NpyFormat)


def format_of(output: FileName, name: Optional[str] = None) -> Type[OutputFormat]:
    """Return the format of this name, if it is given, otherwise the one of the ending of `output`."""
    ending = Path(output).suffix.lower()
    for format in FORMAT_CLASSES:
        if (format.name == name) if name is not None else (ending in format.endings):
            return format
    endings = [ending for format in FORMAT_CLASSES for ending in format.endings]
    raise ConfigurationError(
        f"output: {output} ends in '{ending}', expected one of {', '.join(endings)}. Give another name, or "
        "the format with --format (format=...)."
    )


def about_output(output: FileName, format: Type[OutputFormat]) -> Optional[Dict[str, Any]]:
    """Read how a complete output was made; `None` if it was not made by this package."""
    try:
        about = json.loads(format.read_about(output))
        return about if isinstance(about["settings"], dict) else None
    except (OSError, KeyError, ValueError, TypeError):
        return None


def _write_about(folder: Path, about: Dict[str, Any]) -> None:
    with _synced_file(folder / ABOUT_FILE) as file:
        file.write((json.dumps(about, indent=2, ensure_ascii=False) + "\n").encode())


@contextmanager
def _synced_file(path: Path) -> Iterator[IO[bytes]]:
    """Open a new file, and sync it to the disk at the end of the context."""
    with open(path, "wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


def _sentences(file: IO[bytes]) -> Iterator[Sentence]:
    """Read the first line of a part."""
    return itertools.starmap(Sentence, json.loads(file.readline()))


def _index_json(parts: Sequence[Path]) -> str:
    index: Dict[str, str] = {}
    for path in parts:
        with open(path, "rb") as file:
            index.update((text, str(line)) for line, text, _ in _sentences(file))
    text = json.dumps(index)
    if len(text) > MAX_INDEX_BYTES:
        raise ConfigurationError(
            f"sentence_to_index takes {len(text):,} bytes, expected at most {MAX_INDEX_BYTES:,}, the limit "
            "of a string in HDF5. Give --forget-sentences (forget_sentences=True), with --resume to keep "
            "what is embedded, or split the input."
        )
    return text
