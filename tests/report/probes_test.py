import shutil
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from allennlp.commands.train import train_model_from_file

from elmo_plugin import BiLM
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.report.probes import BiLMChoice, bilm_files, named_layers
from tests.conftest import TINY_OPTIONS, BiLMFiles

FIXTURES = Path(__file__).parents[2] / "fixtures"


def parameters_of(bilm: BiLM) -> torch.Tensor:
    return torch.cat([parameter.flatten() for parameter in bilm.parameters()])


@pytest.fixture
def folder(bilm_files: BiLMFiles, tmp_path: Path) -> Path:
    folder = tmp_path / "my_bilm"
    folder.mkdir()
    shutil.copy(bilm_files.options_file, folder / "options.json")
    shutil.copy(bilm_files.weight_file, folder / "weights.hdf5")
    return folder


def loaded(**choice: Any) -> BiLM:
    return BiLMChoice(**choice).load()


class TestBiLMChoice:
    def test_the_default_is_the_one_that_comes_with_the_package(self) -> None:
        bilm = loaded()
        assert bilm.options == BiLM.from_files("elmo_mini").options
        assert bilm.is_frozen

    def test_a_folder_a_zip_and_two_files_are_the_same(
        self, folder: Path, bilm_files: BiLMFiles
    ) -> None:
        named = loaded(bilm=str(folder))
        archive = shutil.make_archive(str(folder), "zip", folder)
        options_file, weight_file = map(str, bilm_files)
        for bilm in (
            loaded(bilm=archive),
            loaded(options_file=options_file, weight_file=weight_file),
        ):
            assert torch.equal(parameters_of(named), parameters_of(bilm))
            assert bilm.is_frozen

    def test_the_bilm_of_an_archive_is_loaded(self, tmp_path: Path) -> None:
        model = train_model_from_file(
            FIXTURES / "lm" / "experiment.jsonnet",
            tmp_path / "run",
            overrides='{"trainer.num_epochs": 1, "trainer.callbacks": []}',
        )
        assert model is not None
        bilm = loaded(bilm=str(tmp_path / "run" / "model.tar.gz"))
        assert torch.equal(parameters_of(bilm), parameters_of(model.bilm))
        assert bilm.is_frozen and not bilm.stateful

    def test_precision_and_kernel_are_those_asked_for(self, folder: Path) -> None:
        bilm = loaded(bilm=str(folder), precision="bfloat16", kernel="reference")
        assert (bilm.precision, bilm.kernel) == ("bfloat16", "reference")

    def test_a_name_beside_files_is_refused(self) -> None:
        with pytest.raises(
            ConfigurationError, match=r"--bilm elmo_mini stands for .* Leave --bilm"
        ):
            loaded(bilm="elmo_mini", options_file="a", weight_file="b")

    def test_an_unknown_name_lists_what_is_expected(self) -> None:
        with pytest.raises(
            ConfigurationError, match="--bilm no: there is no such folder, expected"
        ):
            loaded(bilm="no")

    def test_a_folder_without_weights_is_refused(self, folder: Path) -> None:
        (folder / "weights.hdf5").unlink()
        with pytest.raises(ConfigurationError, match=r"holds no weights\.hdf5, expected"):
            bilm_files(str(folder))

    def test_random_weights_depend_only_on_the_seed(self) -> None:
        torch.manual_seed(5)
        expected = torch.rand(1)
        torch.manual_seed(5)
        bilm = BiLM(TINY_OPTIONS)
        torch.manual_seed(5)
        vectors = [
            BiLMChoice().random_embedder(bilm, seed).embed_sentence(["a"]) for seed in (1, 1, 2)
        ]
        assert numpy.array_equal(vectors[0], vectors[1])
        assert not numpy.array_equal(vectors[0], vectors[2])
        assert torch.equal(torch.rand(1), expected)


def test_layers_are_named_and_their_mean_is_the_last() -> None:
    layers = dict(named_layers(numpy.arange(6.0).reshape(3, 2, 1)))
    assert list(layers) == ["0 (characters)", "1", "2", "mean of all"]
    assert layers["2"].tolist() == [[4.0], [5.0]]
    assert layers["mean of all"].tolist() == [[2.0], [3.0]]
