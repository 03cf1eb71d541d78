import shutil
from pathlib import Path

import pytest
import torch
from allennlp.commands.train import train_model_from_file
from allennlp.common.checks import ConfigurationError

from elmo_plugin import BiLM
from elmo_plugin.report.named_bilm import bilm_files, load_named_bilm, random_bilm
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


class TestLoadNamedBilm:
    def test_the_default_is_the_one_that_comes_with_the_package(self) -> None:
        bilm = load_named_bilm()
        assert bilm.options == BiLM.from_files("elmo_mini").options
        assert bilm.is_frozen

    def test_a_folder_and_its_two_files_are_the_same(
        self, folder: Path, bilm_files: BiLMFiles
    ) -> None:
        named = load_named_bilm(str(folder))
        given = load_named_bilm(None, *bilm_files)
        assert torch.equal(parameters_of(named), parameters_of(given))
        assert named.is_frozen and given.is_frozen

    def test_a_zip_stands_for_both_files(self, folder: Path) -> None:
        archive = shutil.make_archive(str(folder), "zip", folder)
        assert torch.equal(
            parameters_of(load_named_bilm(archive)), parameters_of(load_named_bilm(str(folder)))
        )

    def test_an_archive_gives_the_bilm_in_it(self, tmp_path: Path) -> None:
        model = train_model_from_file(
            FIXTURES / "lm" / "experiment.jsonnet",
            tmp_path / "run",
            overrides='{"trainer.num_epochs": 1, "trainer.callbacks": []}',
        )
        assert model is not None
        bilm = load_named_bilm(str(tmp_path / "run" / "model.tar.gz"))
        assert torch.equal(parameters_of(bilm), parameters_of(model.bilm))
        assert bilm.is_frozen and not bilm.stateful

    def test_precision_and_kernel_are_those_asked_for(self, folder: Path) -> None:
        bilm = load_named_bilm(str(folder), precision="bfloat16", kernel="reference")
        assert (bilm.precision, bilm.kernel) == ("bfloat16", "reference")

    def test_a_name_beside_files_is_refused(self, bilm_files: BiLMFiles) -> None:
        with pytest.raises(ConfigurationError, match=r"--bilm elmo_mini stands for .* Leave one"):
            load_named_bilm("elmo_mini", *bilm_files)

    def test_a_name_that_is_none_lists_what_is_expected(self) -> None:
        with pytest.raises(
            ConfigurationError, match="--bilm elmo_maxi: there is no such folder, ex"
        ):
            load_named_bilm("elmo_maxi")

    def test_a_folder_without_weights_is_refused(self, folder: Path) -> None:
        (folder / "weights.hdf5").unlink()
        with pytest.raises(
            ConfigurationError, match=r"the folder holds no weights\.hdf5, expected"
        ):
            bilm_files(str(folder))


class TestRandomBilm:
    def test_the_seed_decides_the_weights(self) -> None:
        first, again, other = (parameters_of(random_bilm(TINY_OPTIONS, seed)) for seed in (1, 1, 2))
        assert torch.equal(first, again)
        assert not torch.equal(first, other)

    def test_the_random_numbers_of_others_are_left_alone(self) -> None:
        torch.manual_seed(5)
        expected = torch.rand(1)
        torch.manual_seed(5)
        random_bilm(TINY_OPTIONS, 1)
        assert torch.equal(torch.rand(1), expected)

    def test_it_is_frozen_and_of_the_same_sizes(self) -> None:
        bilm = random_bilm(TINY_OPTIONS, 1, kernel="reference")
        assert bilm.is_frozen
        assert (bilm.options, bilm.kernel) == (TINY_OPTIONS, "reference")
