import os
import signal
from pathlib import Path
from typing import Any, Dict, List

import numpy
import pytest

from elmo_plugin import BiLM, ElmoEmbedder
from elmo_plugin.embedding import ray_dataset
from elmo_plugin.embedding.layers import LayerChoice, layer_choice
from elmo_plugin.embedding.ray_dataset import RowEmbedder, embed_dataset
from elmo_plugin.embedding.ray_engine import RayWorkers, SharedBiLM
from elmo_plugin.embedding.sentence_batches import BatchOptions
from elmo_plugin.errors import ConfigurationError
from tests.conftest import BiLMFiles

pyarrow = pytest.importorskip("pyarrow", reason="pyarrow (elmo_plugin[parquet]) is not installed")

ONE_WORKER = RayWorkers(number=1, num_cpus=1, num_gpus=0)
TEXTS = [" ".join(["word"] * (number % 7)) + f" no {number} ." for number in range(60)]


@pytest.fixture(scope="module")
def bilm(tiny_files: BiLMFiles) -> BiLM:
    return BiLM.from_files(*tiny_files)


@pytest.fixture(scope="module")
def expected(tiny_files: BiLMFiles) -> List[numpy.ndarray]:
    """All layers of each text, of one process."""
    embedder = ElmoEmbedder(*tiny_files)
    return list(embedder.embed_sentences(text.split() for text in TEXTS))


def row_embedder(bilm: BiLM, layers: Any = "all", **changes: Any) -> RowEmbedder:
    arguments: Dict[str, Any] = {
        "shared": SharedBiLM(bilm),
        "workers": ONE_WORKER,
        "layers": layer_choice(layers) if isinstance(layers, str) else layers,
        "column": "sentence",
        "tokenizer": "whitespace",
        "dtype": "float32",
        "batches": BatchOptions(4),
        **changes,
    }
    return RowEmbedder(**arguments)


def vectors_of(row: Dict[str, Any]) -> numpy.ndarray:
    """`(num_layers, num_tokens, dim)` of a row with all layers."""
    return numpy.array([row[f"layer_{number}"] for number in range(3)], dtype="float32")


class TestOnRay:
    def test_vectors_are_those_of_one_process(
        self, ray_on_two_cores: Any, bilm: BiLM, expected: List[numpy.ndarray]
    ) -> None:
        # Two batches of 16 times 2: a block for each worker.
        rows = [{"id": number, "text": text} for number, text in enumerate(TEXTS)]
        dataset = ray_on_two_cores.data.from_items(rows)
        embedded = embed_dataset(
            dataset, bilm, "all", "text", num_workers=2, batches=BatchOptions(2)
        )
        result = {row["id"]: row for row in embedded.take_all()}
        assert sorted(result) == list(range(len(TEXTS)))
        for number, layers in enumerate(expected):
            row = result[number]
            assert list(row) == ["id", "text", "tokens", "layer_0", "layer_1", "layer_2"]
            assert row["text"] == TEXTS[number]
            assert list(row["tokens"]) == TEXTS[number].split()
            numpy.testing.assert_allclose(vectors_of(row), layers, atol=1e-5)

    def test_a_killed_worker_loses_no_row(
        self, ray_on_two_cores: Any, bilm: BiLM, expected: List[numpy.ndarray], tmp_path: Path
    ) -> None:
        driver = os.getpid()

        def killed_once(layers: numpy.ndarray) -> numpy.ndarray:
            killed = tmp_path / "killed"
            if os.getpid() != driver and layers.shape[1] == 9 and not killed.exists():
                killed.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            return layers[-1]

        rows = [{"id": number, "tokens": text.split()} for number, text in enumerate(TEXTS)]
        dataset = ray_on_two_cores.data.from_items(rows)
        layers = LayerChoice("killed once", killed_once)
        embedded = embed_dataset(dataset, bilm, layers, "tokens", batches=BatchOptions(1))
        result = embedded.take_all()
        assert (tmp_path / "killed").exists()
        assert sorted(row["id"] for row in result) == list(range(len(TEXTS)))
        for row in result:
            assert list(row) == ["id", "tokens", "vectors"]
            vectors = numpy.array(list(row["vectors"]), dtype="float32")
            numpy.testing.assert_allclose(vectors, expected[row["id"]][-1], atol=1e-5)

    def test_an_invalid_argument_is_an_error_at_once(
        self, ray_on_two_cores: Any, bilm: BiLM, tiny_files: BiLMFiles
    ) -> None:
        dataset = ray_on_two_cores.data.from_items([{"sentence": "a"}])
        stateful = BiLM.from_files(*tiny_files, stateful=True)
        for used, arguments, match in [
            (stateful, {}, "The biLM is stateful.*stateful=False"),
            (bilm, {"dtype": "int8"}, "dtype is 'int8', expected one of float32, float16"),
            (bilm, {"layers": "best"}, "expected one of all, top, average"),
            (bilm, {"tokenizer": "moses"}, "expected one of whitespace, spacy"),
            (bilm, {"column": "text"}, "no column 'text'.*Its columns are sentence;"),
            (bilm, {"num_workers": 0}, "num_workers is 0.*at least one"),
            (bilm, {"num_cpus_per_worker": 0}, "expected at least one worker, a positive"),
        ]:
            with pytest.raises(ConfigurationError, match=match):
                embed_dataset(dataset, used, **arguments)


class TestBlocks:
    """What a worker does, in this process."""

    @pytest.mark.parametrize("layers", ["all", "top"])
    def test_pooled_vectors_are_columns_without_lists_of_tokens(
        self, ray_on_two_cores: Any, bilm: BiLM, expected: List[numpy.ndarray], layers: str
    ) -> None:
        embedder = row_embedder(bilm, layers=layer_choice(layers, "max"))
        (table,) = embedder(pyarrow.table({"sentence": TEXTS}))
        names = ["vector"] if layers == "top" else ["layer_0", "layer_1", "layer_2"]
        assert table.column_names == ["sentence", "tokens", *names]
        for row, of_tokens in zip(table.to_pylist(), expected, strict=True):
            found = numpy.array([row[name] for name in names])
            chosen = of_tokens[-1:] if layers == "top" else of_tokens
            numpy.testing.assert_allclose(found, chosen.max(axis=1), atol=1e-5)

    def test_a_block_is_returned_in_tables_of_bounded_size(
        self,
        ray_on_two_cores: Any,
        bilm: BiLM,
        expected: List[numpy.ndarray],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(ray_dataset, "BYTES_PER_TABLE", 5000)
        embedder = row_embedder(bilm, dtype="float16")
        block = pyarrow.table({"sentence": TEXTS, "id": range(len(TEXTS))})
        tables = list(embedder(block))
        assert len(tables) > 3
        # More than the limit by one row at most: 10 tokens of 3 layers of 12 float16.
        assert all(
            table.select(["layer_0", "layer_1", "layer_2"]).nbytes < 6500 for table in tables
        )
        joined = pyarrow.concat_tables(tables)
        assert joined.column("id").to_pylist() == list(range(len(TEXTS)))
        assert str(joined.schema.field("layer_1").type.value_type.value_type) == "halffloat"
        for row, layers in zip(joined.to_pylist(), expected):
            numpy.testing.assert_allclose(vectors_of(row), layers, rtol=1e-3, atol=1e-3)

    def test_spacys_rules_split_text(self, ray_on_two_cores: Any, bilm: BiLM) -> None:
        embedder = row_embedder(bilm, tokenizer="spacy")
        (table,) = embedder(pyarrow.table({"sentence": ["He didn't go."]}))
        assert table.column("tokens").to_pylist() == [["He", "did", "n't", "go", "."]]

    def test_sentences_without_tokens_have_no_vectors(
        self, ray_on_two_cores: Any, bilm: BiLM
    ) -> None:
        embedder = row_embedder(bilm, "top")
        (table,) = embedder(pyarrow.table({"sentence": ["", "a b", " "]}))
        assert [len(vectors) for vectors in table.column("vectors").to_pylist()] == [0, 2, 0]

    @pytest.mark.parametrize(
        "columns, error, match",
        [
            ({"text": ["a"]}, ConfigurationError, "no column 'sentence'.*Its columns are text;"),
            ({"sentence": [1]}, ConfigurationError, "is of type int64, expected string"),
            ({"sentence": ["a"], "tokens": [1]}, ConfigurationError, "column 'tokens' already"),
            ({"sentence": ["a"], "vectors": [1]}, ConfigurationError, "column 'vectors' already"),
            ({"sentence": ["a", None]}, ValueError, "Row 1 of a block has null"),
            ({"sentence": [["a", None]]}, ValueError, "Token 1 of sentence 0 is None"),
        ],
    )
    def test_a_block_that_cannot_be_embedded_is_an_error(
        self, ray_on_two_cores: Any, bilm: BiLM, columns: Any, error: Any, match: str
    ) -> None:
        embedder = row_embedder(bilm, "top")
        with pytest.raises(error, match=match):
            list(embedder(pyarrow.table(columns)))

    def test_a_worker_uses_its_first_visible_gpu(
        self, ray_on_two_cores: Any, bilm: BiLM, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        devices = []
        from_bilm = ElmoEmbedder.from_bilm

        def noted(bilm: BiLM, cuda_device: int = -1) -> ElmoEmbedder:
            devices.append(cuda_device)
            return from_bilm(bilm)  # there may be no GPU here

        monkeypatch.setattr(ElmoEmbedder, "from_bilm", noted)
        row_embedder(bilm, workers=ONE_WORKER._replace(num_gpus=0.5))
        row_embedder(bilm)
        assert devices == [0, -1]
