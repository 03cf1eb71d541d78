"""Archives, checkpoints and embedded sentences that commit 91f3e79 wrote are read by this version."""

import json
import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any

import h5py
import numpy
import pytest
from allennlp.commands.train import train_model_from_file
from allennlp.models import load_archive
from allennlp.predictors import Predictor

from elmo_plugin import ElmoEmbedder

REPOSITORY = Path(__file__).parents[1]
EARLIER = REPOSITORY / "fixtures" / "earlier"


@pytest.fixture(autouse=True)
def in_the_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    """Paths in the files are relative to it."""
    monkeypatch.chdir(REPOSITORY)


def assert_alike(ours: Any, theirs: Any) -> None:
    """Equal, numbers up to rounding; `ours` may say more."""
    if isinstance(theirs, dict):
        for key, value in theirs.items():
            assert_alike(ours[key], value)
    elif isinstance(theirs, list):
        assert len(ours) == len(theirs)
        for own, other in zip(ours, theirs):
            assert_alike(own, other)
    elif isinstance(theirs, float):
        assert ours == pytest.approx(theirs, abs=1e-5)
    else:
        assert ours == theirs


@pytest.mark.parametrize("task", ["coref", "ner", "snli", "squad", "srl", "sst"])
def test_archives_predict_the_same(task: str) -> None:
    predictor = Predictor.from_archive(load_archive(EARLIER / f"{task}.tar.gz"))
    for line in (EARLIER / f"{task}.jsonl").read_text("utf-8").splitlines():
        earlier = json.loads(line)
        assert_alike(predictor.predict_json(earlier["input"]), earlier["output"])


def test_pretraining_is_recovered(tmp_path: Path) -> None:
    folder = tmp_path / "bilm"
    shutil.copytree(EARLIER / "bilm", folder)
    train_model_from_file(EARLIER / "bilm" / "config.json", folder, recover=True)
    first, last = (
        json.loads((folder / name).read_text())
        for name in ("metrics_epoch_0.json", "metrics_epoch_1.json")
    )
    assert last["epoch"] == 1 and (folder / "model.tar.gz").exists()
    assert last["validation_perplexity"] < first["validation_perplexity"]


def vectors_in(path: Path) -> Any:
    """Each sentence's, `(layers, tokens, dim)`, as docs/embed_a_corpus.md reads them."""
    if path.suffix == ".hdf5":
        with h5py.File(path) as file:
            return [file[str(number)][...] for number in range(3)]
    if path.suffix == ".npy":
        vectors = numpy.load(path / "vectors.npy").swapaxes(0, 1)
        offsets = numpy.load(path / "offsets.npy")
        return [vectors[:, start:end] for start, end in pairwise(offsets)]
    table = pytest.importorskip("pyarrow.parquet").read_table(path)
    columns = [table[f"layer_{number}"].to_pylist() for number in range(3)]
    return [numpy.array(layers) for layers in zip(*columns)]


@pytest.mark.parametrize("name", ["vectors.hdf5", "vectors.npy", "vectors.parquet"])
def test_embedded_sentences_are_those_of_today(name: str) -> None:
    bilm = REPOSITORY / "fixtures" / "bilm" / "tiny"
    embedder = ElmoEmbedder(bilm / "options.json", bilm / "weights.hdf5")
    sentences = [line.split() for line in (EARLIER / "sentences.txt").read_text().splitlines()]
    theirs = vectors_in(EARLIER / name)
    assert len(theirs) == len(sentences) == 3
    for sentence, vectors in zip(sentences, theirs):
        numpy.testing.assert_allclose(embedder.embed_sentence(sentence), vectors, atol=1e-5)
