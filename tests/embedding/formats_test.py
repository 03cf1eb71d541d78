"""Formats: the content of a part, and the output that is made from all parts."""

import json
import sys
from pathlib import Path
from typing import Any, Dict, List

import h5py
import numpy
import pytest

from elmo_plugin.embedding import formats
from elmo_plugin.embedding.formats import (
    FORMATS,
    HDF5Format,
    OutputFormat,
    OutputOptions,
    about_output,
    format_of,
)
from elmo_plugin.embedding.sentences import Sentence
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.files.text import FileName
from tests.conftest import run_program

SENTENCES = [
    Sentence(0, "The naïve 日本語 cat", ["The", "naïve", "日本語", "cat"]),
    Sentence(1, "Hi", ["Hi"]),
    Sentence(4, "a  b", ["a", "b"]),
]
ABOUT = {"settings": {"layers": "top"}}


def write(
    folder: Path, format: OutputFormat, vectors: List[Any], sentences: List[Sentence] = SENTENCES
) -> Path:
    """Write a part for each two sentences, and make the output."""
    parts = []
    arrays = [array.astype(format.options.dtype) for array in vectors]
    for start in range(0, len(sentences), 2):
        rows = slice(start, start + 2)
        parts.append(folder / f"part-{start}.{format.part_ending}")
        with open(parts[-1], "wb") as file:
            format.write_part(file, "in.txt", sentences[rows], arrays[rows])
    num_tokens = sum(len(sentence.tokens) for sentence in sentences)
    counts = {"num_sentences": len(sentences), "num_tokens": num_tokens}
    return format.finish(parts, folder / "product", {**ABOUT, **counts})


def hdf5_datasets(product: FileName) -> Dict[str, Any]:
    with h5py.File(product) as file:
        return {key: file[key][...] for key in file}


def hdf5_vectors(product: Path) -> List[numpy.ndarray]:
    datasets = hdf5_datasets(product)
    assert datasets.keys() == {"0", "1", "4", "sentence_to_index"}
    return [datasets[key] for key in ("0", "1", "4")]


def npy_vectors(product: Path, is_pooled: bool) -> List[numpy.ndarray]:
    """Tokens are the first dimension of the file, and the second one of what is returned."""
    rows = (product / "sentences.jsonl").read_text(encoding="utf-8").splitlines()
    contents = map(json.loads, rows)
    assert [
        Sentence(content["line"] - 1, content["sentence"], content["tokens"])
        for content in contents
    ] == SENTENCES
    assert numpy.load(product / "lines.npy").tolist() == [1, 2, 5]
    vectors = numpy.load(product / "vectors.npy", mmap_mode="r")
    if is_pooled:
        assert not (product / "offsets.npy").exists()
        return list(vectors)
    offsets = numpy.load(product / "offsets.npy")
    assert offsets.tolist() == [0, 4, 5, 7]
    of_sentences = numpy.split(vectors, offsets[1:-1])
    return [array.swapaxes(0, 1) if array.ndim == 3 else array for array in of_sentences]


def parquet_vectors(product: Path, columns: List[str], dtype: str) -> List[numpy.ndarray]:
    table = pytest.importorskip("pyarrow.parquet").read_table(product)
    assert table.column_names == ["source", "line", "sentence", "tokens", *columns]
    rows = table.to_pylist()
    assert [Sentence(row["line"] - 1, row["sentence"], row["tokens"]) for row in rows] == SENTENCES
    assert {row["source"] for row in rows} == {"in.txt"}
    arrays = [numpy.array([row[column] for column in columns], dtype=dtype) for row in rows]
    return arrays if len(columns) > 1 else [array[0] for array in arrays]


@pytest.mark.parametrize("is_pooled", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("num_layers", [(), (3,)])
@pytest.mark.parametrize("name", FORMATS)
def test_vectors_and_sentences_are_read_as_they_were_written(
    tmp_path: Path,
    name: str,
    num_layers: Any,
    dtype: str,
    is_pooled: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if name == "parquet":
        pytest.importorskip("pyarrow")
        monkeypatch.setattr(formats, "ROWS_PER_TABLE", 1)  # two tables for the first part
    generator = numpy.random.default_rng(0)
    tokens_of_sentences = [() if is_pooled else (len(tokens),) for _, _, tokens in SENTENCES]
    vectors = [
        generator.standard_normal((*num_layers, *num_tokens, 6), dtype="float32")
        for num_tokens in tokens_of_sentences
    ]
    format_class = format_of("out", name)
    format = format_class((*num_layers, 6), is_pooled, OutputOptions(dtype=dtype))
    product = write(tmp_path, format, vectors)
    about = about_output(product, format_class)
    assert about is not None and about["settings"] == ABOUT["settings"]
    if name == "hdf5":
        found = hdf5_vectors(product)
    elif name == "npy":
        found = npy_vectors(product, is_pooled)
    elif num_layers:
        found = parquet_vectors(product, ["layer_0", "layer_1", "layer_2"], dtype)
    else:
        found = parquet_vectors(product, ["vector" if is_pooled else "vectors"], dtype)
    for array, expected in zip(found, vectors, strict=True):
        assert array.dtype == dtype
        numpy.testing.assert_array_equal(array, expected.astype(dtype))


def write_lines(folder: Path, lines: List[str], **keys: bool) -> Path:
    """Write vectors `(2, 3)` that hold the number of the line."""
    sentences = [Sentence(index, line, ["a", "b"]) for index, line in enumerate(lines)]
    format = HDF5Format((3,), options=OutputOptions(**keys))
    vectors = [numpy.full((2, 3), index) for index in range(len(lines))]
    return write(folder, format, vectors, sentences)


class TestHDF5:
    def test_lines_can_be_keys(self, tmp_path: Path) -> None:
        lines = ["a b", "é : .", "sentence_to_index", "x" * 10_000, "..", "0"]
        datasets = hdf5_datasets(write_lines(tmp_path, lines, use_sentence_keys=True))
        assert datasets.keys() == set(lines)
        assert all((datasets[line] == index).all() for index, line in enumerate(lines))

    def test_lines_that_cannot_be_keys_are_skipped(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        kept = ["60 km / h", "and/or", "/ a", "60 km / s", "./b", "a", "1//2", ". / .", "c/d/e"]
        skipped = ["a", "and//or", "./and/./or", "a/f", "c/d", ".", "/", "a /"]
        path = write_lines(tmp_path, [*kept, *skipped], use_sentence_keys=True)
        with h5py.File(path) as file:
            for index, line in enumerate(kept):
                assert (file[line][...] == index).all()
        warnings = [record.getMessage() for record in caplog.records]
        assert len(warnings) == len(skipped)
        assert warnings[0].startswith("line 10: 'a' cannot be a key in HDF5 and is skipped")

    def test_without_lines_as_keys_no_vectors_are_skipped(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        create_dataset = h5py.File.create_dataset

        def fail(file: h5py.File, key: str, **keywords: Any) -> Any:
            if key == "0":
                raise ValueError("unable to create dataset")
            return create_dataset(file, key, **keywords)

        monkeypatch.setattr(h5py.File, "create_dataset", fail)
        with pytest.raises(ValueError, match="unable to create dataset"):
            write_lines(tmp_path, ["a b"])

    def test_the_process_lives_on_after_a_failed_write(self, tmp_path: Path) -> None:
        """In a separate process, since HDF5 crashes it if a plain file fails."""
        result = run_program(sys.executable, "-c", WRITE_ON_A_SMALL_DISK, tmp_path)
        assert result.stdout.split() == ["27"] * 7, result.stderr
        assert result.returncode == 0 and "Exception ignored" not in result.stderr


WRITE_ON_A_SMALL_DISK = """
import resource, sys
from pathlib import Path
import numpy
from elmo_plugin.embedding.formats import HDF5Format

class Format(HDF5Format):
    def stored(self, parts):
        for number in range(1000):
            yield (number, str(number), []), numpy.zeros((3, 5, 12), "float32")

for limit in (0, 294, 1_000, 16_386, 40_000, 49_550, 200_000):
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    try:
        Format((3, 12)).finish([], Path(sys.argv[1], str(limit)), {})
    except OSError as error:
        print(error.errno)
"""


def test_without_a_format_the_ending_decides() -> None:
    endings = {"a.parquet": "parquet", "b.NPY": "npy", "c.h5": "hdf5", "d.hdf5": "hdf5"}
    for output, format in endings.items():
        assert format_of(output).name == format
    for output in ("out.npz", "out"):
        with pytest.raises(ConfigurationError, match=r"expected one of \.hdf5, .*--format"):
            format_of(output)
        assert format_of(output, "hdf5") is HDF5Format
