import shutil
from pathlib import Path
from typing import Any, Dict

import numpy
import pytest
import torch
from allennlp.commands.train import train_model_from_file

from elmo_plugin import BiLM
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.report import probes
from elmo_plugin.report.probes import BiLMChoice, named_layers
from tests.conftest import TINY_OPTIONS, BiLMFiles

FIXTURES = Path(__file__).parents[2] / "fixtures"


@pytest.fixture
def folder(bilm_files: BiLMFiles, tmp_path: Path) -> Path:
    folder = tmp_path / "my_bilm"
    folder.mkdir()
    shutil.copy(bilm_files.options_file, folder / "options.json")
    shutil.copy(bilm_files.weight_file, folder / "weights.hdf5")
    return folder


def vectors_of(**choice: Any) -> numpy.ndarray:
    chosen = BiLMChoice(**choice)
    return chosen.embedder(chosen.load()).embed_sentence(["a", "word"])


def test_the_default_comes_with_the_package() -> None:
    assert BiLMChoice().load().options == BiLM.from_files("elmo_mini").options
    assert BiLMChoice().name == "elmo_mini"


def test_a_folder_a_zip_and_two_files_are_the_same(folder: Path, bilm_files: BiLMFiles) -> None:
    archive = shutil.make_archive(str(folder), "zip", folder)
    options_file, weight_file = map(str, bilm_files)
    expected = vectors_of(bilm=str(folder))
    assert numpy.array_equal(vectors_of(bilm=archive), expected)
    files = {"options_file": options_file, "weight_file": weight_file}
    assert numpy.array_equal(vectors_of(**files), expected)


def test_the_bilm_of_an_archive_is_loaded(tmp_path: Path) -> None:
    model = train_model_from_file(
        FIXTURES / "lm" / "experiment.jsonnet",
        tmp_path / "run",
        overrides='{"trainer.num_epochs": 1, "trainer.callbacks": []}',
    )
    assert model is not None
    choice = BiLMChoice(bilm=str(tmp_path / "run" / "model.tar.gz"))
    found, expected = choice.load().state_dict(), model.bilm.state_dict()
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    assert not choice.embedder(choice.load()).stateful


def test_the_precision_is_the_one_asked_for(folder: Path) -> None:
    exact = vectors_of(bilm=str(folder), kernel="reference")
    rounded = vectors_of(bilm=str(folder), precision="bfloat16", kernel="reference")
    assert not numpy.array_equal(exact, rounded)


@pytest.mark.parametrize(
    "choice, message",
    [
        ({"bilm": "a", "options_file": "b", "weight_file": "c"}, r"--bilm a names .* Leave --bilm"),
        ({"bilm": "no"}, "--bilm no: no such folder, expected one of: elmo_mini"),
    ],
)
def test_invalid_choices(choice: Dict[str, str], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        BiLMChoice(**choice).load()


def test_a_folder_without_weights_is_refused(folder: Path) -> None:
    (folder / "weights.hdf5").unlink()
    with pytest.raises(ConfigurationError, match=r"holds no weights\.hdf5, expected"):
        probes.bilm_files(str(folder))


def test_random_weights_depend_only_on_the_seed() -> None:
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    bilm = BiLM(TINY_OPTIONS)
    torch.manual_seed(5)
    vectors = [BiLMChoice().random_embedder(bilm, seed).embed_sentence(["a"]) for seed in (1, 1, 2)]
    assert numpy.array_equal(vectors[0], vectors[1])
    assert not numpy.array_equal(vectors[0], vectors[2])
    assert torch.equal(torch.rand(1), expected)


def test_layers_are_named_and_their_mean_is_the_last() -> None:
    layers = dict(named_layers(numpy.arange(6.0).reshape(3, 2, 1)))
    assert list(layers) == ["0 (characters)", "1", "2", "mean of all"]
    assert layers["2"].tolist() == [[4.0], [5.0]]
    assert layers["mean of all"].tolist() == [[2.0], [3.0]]
