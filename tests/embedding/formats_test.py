"""Formats: the content of a part, and the output that is made from all parts."""

import json
from pathlib import Path
from typing import Any, Dict, List, Sequence

import h5py
import numpy
import pytest

from elmo_plugin.embedding import formats
from elmo_plugin.embedding.formats import (
    FORMATS,
    HDF5Format,
    NpyFormat,
    OutputFormat,
    ParquetFormat,
    about_output,
    format_of,
)
from elmo_plugin.embedding.sentences import Sentence
from elmo_plugin.errors import ConfigurationError

SENTENCES = [
    Sentence(0, "The naïve 日本語 cat", ["The", "naïve", "日本語", "cat"]),
    Sentence(1, "Hi", ["Hi"]),
    Sentence(4, "a  b", ["a", "b"]),
]
ABOUT = {"settings": {"layers": "top"}}


def made_as_described(output: Path, format: str) -> bool:
    about = about_output(output, format)
    return about is not None and about["settings"] == ABOUT["settings"]


def write(
    folder: Path,
    format: OutputFormat,
    vectors: Sequence[numpy.ndarray],
    sentences: Sequence[Sentence] = SENTENCES,
) -> Path:
    """Write a part for each sentence, and make the output."""
    parts = []
    for sentence, array in zip(sentences, vectors):
        parts.append(folder / f"part-{sentence.line_index}.{format.part_ending}")
        with open(parts[-1], "wb") as file:
            format.write_part(file, "in.txt", [sentence], [array.astype(format.dtype)])
    num_tokens = sum(len(sentence.tokens) for sentence in sentences)
    counts = {"num_sentences": len(sentences), "num_tokens": num_tokens}
    return format.finish(parts, folder, {**ABOUT, **counts})


def made_vectors(*num_layers: int) -> List[numpy.ndarray]:
    generator = numpy.random.default_rng(0)
    return [
        generator.standard_normal((*num_layers, len(sentence.tokens), 6), dtype="float32")
        for sentence in SENTENCES
    ]


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("num_layers", [(), (3,)])
def test_a_row_of_parquet_is_a_sentence_with_a_column_for_each_layer(
    tmp_path: Path, dtype: str, num_layers: Any
) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    vectors = made_vectors(*num_layers)
    folder = write(tmp_path, ParquetFormat((*num_layers, 6), dtype), vectors)
    columns = ["layer_0", "layer_1", "layer_2"] if num_layers else ["vectors"]
    for row, sentence, array in zip(
        parquet.read_table(folder).to_pylist(), SENTENCES, vectors, strict=True
    ):
        assert list(row) == ["source", "line", "sentence", "tokens", *columns]
        assert row["source"] == "in.txt"
        assert Sentence(row["line"], row["sentence"], row["tokens"]) == sentence
        found = numpy.array([row[column] for column in columns], dtype=dtype)
        assert (found.reshape(array.shape) == array.astype(dtype)).all()
    assert made_as_described(tmp_path, "parquet")


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("num_layers", [(), (3,)])
def test_npy_can_be_memory_mapped_and_has_an_index(
    tmp_path: Path, dtype: str, num_layers: Any
) -> None:
    vectors = made_vectors(*num_layers)
    product = write(tmp_path, NpyFormat((*num_layers, 6), dtype), vectors)
    arrays = {
        name: numpy.load(product / f"{name}.npy", mmap_mode="r")
        for name in ("vectors", "offsets", "lines")
    }
    assert arrays["vectors"].shape == (7, *num_layers, 6)
    assert arrays["vectors"].dtype == dtype
    assert arrays["offsets"].tolist() == [0, 4, 5, 7]
    assert arrays["lines"].tolist() == [0, 1, 4]
    for number, array in enumerate(vectors):
        start, end = arrays["offsets"][number : number + 2]
        expected = array.astype(dtype)
        expected = expected.swapaxes(0, 1) if num_layers else expected
        assert (arrays["vectors"][start:end] == expected).all()
    rows = (product / "sentences.jsonl").read_text(encoding="utf-8").splitlines()
    assert [Sentence(*json.loads(row).values()) for row in rows] == SENTENCES
    assert made_as_described(product, "npy")


def write_lines(folder: Path, lines: List[str], **keys: bool) -> Path:
    """Write vectors `(2, 3)` that hold the number of the line."""
    sentences = [Sentence(index, line, ["a", "b"]) for index, line in enumerate(lines)]
    format = HDF5Format((3,), "float32", **keys)
    vectors = [numpy.full((2, 3), index) for index in range(len(lines))]
    return write(folder, format, vectors, sentences)


def read(path: Path) -> Dict[str, Any]:
    with h5py.File(path) as file:
        return {key: file[key][...] for key in file}


class TestHDF5:
    def test_layers_are_the_first_dimension(self, tmp_path: Path) -> None:
        vectors = made_vectors(3)
        datasets = read(write(tmp_path, HDF5Format((3, 6), "float16"), vectors))
        assert datasets.keys() == {"0", "1", "4", "sentence_to_index"}
        for sentence, array in zip(SENTENCES, vectors):
            assert datasets[str(sentence.line_index)].dtype == "float16"
            assert (datasets[str(sentence.line_index)] == array.astype("float16")).all()

    def test_keys_are_line_numbers_and_the_index_has_the_last_of_equal_lines(
        self, tmp_path: Path
    ) -> None:
        path = write_lines(tmp_path, ["a b", "é", "a b"])
        datasets = read(path)
        index = datasets.pop("sentence_to_index")
        assert datasets.keys() == {"0", "1", "2"}
        assert all((datasets[key] == int(key)).all() for key in datasets)
        assert index.shape == (1,)
        assert json.loads(index[0]) == {"a b": "2", "é": "1"}
        assert made_as_described(path, "hdf5")

    def test_sentence_to_index_can_be_left_out(self, tmp_path: Path) -> None:
        path = write_lines(tmp_path, ["a b", "a b"], forget_sentences=True)
        assert read(path).keys() == {"0", "1"}

    def test_lines_can_be_keys(self, tmp_path: Path) -> None:
        lines = ["a b", "é : .", "sentence_to_index", "x" * 10_000, "..", "0"]
        datasets = read(write_lines(tmp_path, lines, use_sentence_keys=True))
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
            assert "60 km " in set(file)
        warnings = [record.getMessage() for record in caplog.records]
        assert len(warnings) == len(skipped)
        assert warnings[0].startswith("line 10: 'a' cannot be a key in HDF5 and is skipped")

    def test_an_index_too_large_for_hdf5_is_an_error(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(formats, "MAX_INDEX_BYTES", 100)
        lines = [f"a {number}" for number in range(20)]
        with pytest.raises(ConfigurationError, match=r"at most 100, .*--forget-sentences"):
            write_lines(tmp_path, lines)
        write_lines(tmp_path, lines, forget_sentences=True)

    def test_outputs_of_other_programs_have_no_description(self, tmp_path: Path) -> None:
        path = tmp_path / "other.hdf5"
        with h5py.File(path, "w"):
            pass
        assert about_output(path, "hdf5") is None
        path.write_text("no HDF5")
        assert about_output(path, "hdf5") is None
        assert about_output(tmp_path, "npy") is None


def test_without_a_format_the_ending_decides() -> None:
    endings = {"a.parquet": "parquet", "b.NPY": "npy", "c.h5": "hdf5", "d.hdf5": "hdf5"}
    for output, format in endings.items():
        assert format_of(output) == format
        assert format_of(output, "npy") == "npy"
    for output in ("out.npz", "out", "out.txt"):
        with pytest.raises(ConfigurationError, match=r"expected one of \.hdf5, .*--format"):
            format_of(output)
        assert format_of(output, "hdf5") == "hdf5"


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("num_layers", [(), (3,)])
@pytest.mark.parametrize("name", FORMATS)
def test_pooled_vectors_have_no_dimension_of_tokens(
    tmp_path: Path, name: str, dtype: str, num_layers: Any
) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    vectors = [array[..., 0, :] for array in made_vectors(*num_layers)]
    expected = numpy.stack(vectors).astype(dtype)
    format_class = {"hdf5": HDF5Format, "npy": NpyFormat, "parquet": ParquetFormat}[name]
    product = write(tmp_path, format_class((*num_layers, 6), dtype, is_pooled=True), vectors)
    if name == "npy":
        found = numpy.load(product / "vectors.npy", mmap_mode="r")
        assert numpy.load(product / "lines.npy").tolist() == [0, 1, 4]
        assert not (product / "offsets.npy").exists()
    elif name == "hdf5":
        with h5py.File(product) as file:
            found = numpy.stack([file[key][...] for key in ("0", "1", "4")])
    else:
        columns = ["layer_0", "layer_1", "layer_2"] if num_layers else ["vector"]
        table = parquet.read_table(product)
        assert table.column_names == ["source", "line", "sentence", "tokens", *columns]
        rows = table.to_pylist()
        assert [row["tokens"] for row in rows] == [sentence.tokens for sentence in SENTENCES]
        found = numpy.array([[row[column] for column in columns] for row in rows], dtype=dtype)
        found = found.reshape(expected.shape)
    assert found.dtype == dtype
    assert (found == expected).all()
