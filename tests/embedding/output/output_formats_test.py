import json
from pathlib import Path
from typing import Any, Dict, List

import numpy
import pytest
from allennlp.common.checks import ConfigurationError

from elmo_plugin.embedding.output.output_formats import (
    about_output,
    check_output,
    embedding_writer,
    format_of,
)
from elmo_plugin.embedding.sentence_file import Sentence

SENTENCES = [
    Sentence(0, "The naïve 日本語 cat", ["The", "naïve", "日本語", "cat"]),
    Sentence(1, "Hi", ["Hi"]),
    Sentence(4, "a  b", ["a", "b"]),
]


def write(
    folder: Path, format: str, dtype: str, vectors: List[numpy.ndarray], **extra: Any
) -> Path:
    """Writes with a checkpoint after each sentence."""
    shape = vectors[0].shape
    writer = embedding_writer(format, "in.txt", (*shape[:-2], shape[-1]), dtype, **extra)
    with writer.open(folder, None):
        for sentence, array in zip(SENTENCES, vectors):
            writer.write(sentence, array.astype(dtype))
            writer.checkpoint()
        product = writer.finish({"made": "so"})
    return product


def made_vectors(*num_layers: int) -> List[numpy.ndarray]:
    generator = numpy.random.default_rng(0)
    return [
        generator.standard_normal((*num_layers, len(sentence.tokens), 6), dtype="float32")
        for sentence in SENTENCES
    ]


@pytest.mark.parametrize("dtype", ["float32", "float16"])
class TestParquet:
    pyarrow = pytest.importorskip("pyarrow")

    def test_a_row_is_a_sentence(self, tmp_path: Path, dtype: str) -> None:
        vectors = made_vectors()
        rows = self.read(write(tmp_path, "parquet", dtype, vectors))
        assert [list(row) for row in rows] == [
            ["source", "line", "sentence", "tokens", "vectors"]
        ] * 3
        for row, sentence, array in zip(rows, SENTENCES, vectors):
            assert row["source"] == "in.txt"
            assert Sentence(row["line"], row["sentence"], row["tokens"]) == sentence
            assert (numpy.array(row["vectors"], dtype=dtype) == array.astype(dtype)).all()

    def test_each_layer_has_a_column(self, tmp_path: Path, dtype: str) -> None:
        vectors = made_vectors(3)
        rows = self.read(write(tmp_path, "parquet", dtype, vectors))
        for row, array in zip(rows, vectors):
            assert list(row)[4:] == ["layer_0", "layer_1", "layer_2"]
            layers = [row[f"layer_{number}"] for number in range(3)]
            assert (numpy.array(layers, dtype=dtype) == array.astype(dtype)).all()

    def read(self, folder: Path) -> List[Dict[str, Any]]:
        import pyarrow.parquet

        rows: List[Dict[str, Any]] = pyarrow.parquet.read_table(folder).to_pylist()
        return rows


def test_parts_of_parquet_are_checkpoints(tmp_path: Path) -> None:
    product = write(tmp_path, "parquet", "float32", made_vectors())
    assert sorted(path.name for path in product.iterdir()) == [
        "_embedding.json",
        *(f"part-0000{number}.parquet" for number in range(3)),
    ]
    assert about_output(product, "parquet") == {"made": "so"}


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("num_layers", [(), (3,)])
def test_npy_can_be_mapped_and_has_an_index(tmp_path: Path, dtype: str, num_layers: Any) -> None:
    vectors = made_vectors(*num_layers)
    product = write(tmp_path, "npy", dtype, vectors)
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
    assert about_output(product, "npy") == {"made": "so"}


@pytest.mark.parametrize(
    "output, format", [("a.parquet", "parquet"), ("b.NPY", "npy"), ("c.h5", "hdf5"), ("d", "hdf5")]
)
def test_the_ending_decides_where_no_format_is_given(output: str, format: str) -> None:
    assert format_of(output) == format
    assert format_of(output, "npy") == "npy"


def test_an_unknown_format_is_refused() -> None:
    with pytest.raises(
        ConfigurationError, match="format is 'csv', expected one of hdf5, parquet, npy"
    ):
        format_of("out", "csv")


@pytest.mark.parametrize("format", ["parquet", "npy"])
def test_keys_are_for_hdf5_alone(format: str) -> None:
    for option in ("forget_sentences", "use_sentence_keys"):
        with pytest.raises(ConfigurationError, match=f"the format is {format}. Leave them out"):
            embedding_writer(format, "in.txt", (6,), "float32", **{option: True})


def test_a_folder_that_another_program_made_is_not_replaced(tmp_path: Path) -> None:
    folder = tmp_path / "photos"
    folder.mkdir()
    with pytest.raises(ConfigurationError, match=r"photos exists.*--overwrite"):
        check_output(folder, "npy", overwrite=False)
    with pytest.raises(ConfigurationError, match=r"photos is a folder without _embedding\.json"):
        check_output(folder, "npy", overwrite=True)
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match="file is a file, expected a new folder"):
        check_output(tmp_path / "file", "npy", overwrite=True)


def test_without_pyarrow_its_installation_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'elmo_plugin\[parquet\]'"):
        embedding_writer("parquet", "in.txt", (6,), "float32")
