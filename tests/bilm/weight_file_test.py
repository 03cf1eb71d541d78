import os
from dataclasses import replace
from pathlib import Path
from typing import Callable

import h5py
import numpy
import pytest
import torch
from allennlp.common.checks import ConfigurationError
from allennlp.modules.elmo import Elmo as AllenNlpElmo

from elmo_plugin import BiLM, batch_to_ids
from tests.conftest import SENTENCES, TINY_OPTIONS, BiLMFiles

WriteBiLM = Callable[..., BiLMFiles]

CELL = "RNN_0/RNN/MultiRNNCell/Cell0/LSTMCell"


def test_load_save_load_is_the_identity(bilm_files: BiLMFiles, tmp_path: Path) -> None:
    again = (str(tmp_path / "again.json"), str(tmp_path / "again.hdf5"))
    bilm = BiLM.from_files(*bilm_files)
    bilm.save(*again)
    state, state_again = bilm.state_dict(), BiLM.from_files(*again).state_dict()
    assert state.keys() == state_again.keys()
    assert all(torch.equal(state[name], state_again[name]) for name in state)
    assert BiLM.from_files(*again).options == bilm.options


def test_saved_datasets_are_those_that_were_loaded(bilm_files: BiLMFiles, tmp_path: Path) -> None:
    BiLM.from_files(*bilm_files).save(tmp_path / "again.json", tmp_path / "again.hdf5")
    with h5py.File(bilm_files.weight_file) as first, h5py.File(tmp_path / "again.hdf5") as second:

        def compare(name: str, item: object) -> None:
            if isinstance(item, h5py.Dataset):
                assert numpy.array_equal(item[...], second[name][...]), name
                assert second[name].dtype == numpy.float32

        first.visititems(compare)


def test_allennlp_loads_what_we_save(bilm_files: BiLMFiles) -> None:
    character_ids = batch_to_ids(SENTENCES)
    theirs = AllenNlpElmo(*bilm_files, 1, dropout=0.0)(character_ids)["elmo_representations"][0]
    layers = torch.stack(BiLM.from_files(*bilm_files)(character_ids)["activations"])
    ours = layers.mean(dim=0)[:, 1:-1]
    for row, sentence in enumerate(SENTENCES):
        assert torch.allclose(ours[row, : len(sentence)], theirs[row, : len(sentence)], atol=1e-5)


@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_other_float_types_are_read_as_the_float32_values_they_hold(
    dtype: str, bilm_files: BiLMFiles, tmp_path: Path
) -> None:
    # Not compared with AllenNLP: it adds the forget bias of 1 in float16 to float16 files, and rounds.
    for name, types in {"other": [dtype], "same": [dtype, "float32"]}.items():
        with h5py.File(bilm_files.weight_file) as source, h5py.File(tmp_path / name, "w") as target:

            def convert(
                path: str, item: object, types: list = types, target: h5py.File = target
            ) -> None:
                if isinstance(item, h5py.Dataset):
                    array = item[...]
                    for one_type in types:
                        array = array.astype(one_type)
                    target.create_dataset(path, data=array)

            source.visititems(convert)
    other = BiLM.from_files(bilm_files.options_file, tmp_path / "other").state_dict()
    same = BiLM.from_files(bilm_files.options_file, tmp_path / "same").state_dict()
    for name in other:
        assert other[name].dtype == torch.float32
        assert torch.equal(other[name], same[name]), name


def test_a_softmax_beside_the_bilm_is_no_error(bilm_files: BiLMFiles) -> None:
    with h5py.File(bilm_files.weight_file, "a") as file:
        file.create_dataset("softmax/W", data=numpy.zeros((3, 3)))
    BiLM.from_files(*bilm_files)


def test_a_missing_dataset_is_named(bilm_files: BiLMFiles) -> None:
    with h5py.File(bilm_files.weight_file, "a") as file:
        del file[f"{CELL}/B"]
    with pytest.raises(
        ConfigurationError,
        match=rf"weights\.hdf5: dataset {CELL}/B is missing, expected shape \(80,\)",
    ):
        BiLM.from_files(*bilm_files)


def test_a_group_in_place_of_a_dataset_is_no_dataset(bilm_files: BiLMFiles) -> None:
    with h5py.File(bilm_files.weight_file, "a") as file:
        del file["char_embed"]
        file.create_group("char_embed")
    with pytest.raises(ConfigurationError, match="dataset char_embed is missing"):
        BiLM.from_files(*bilm_files)


@pytest.mark.parametrize(
    "change, dataset",
    [
        ({"cell_size": 21}, f"{CELL}/W_0 has shape"),
        ({"filters": ((1, 4), (2, 8), (4, 12))}, r"CNN/W_cnn_2 has shape"),
        ({"num_layers": 3}, "Cell2/LSTMCell/W_0 is missing"),
        ({"num_layers": 1}, "Cell1/LSTMCell/B is there, but the options describe a smaller model"),
        ({"num_highway": 0}, "CNN_high_0/W_carry is there"),
        ({"character_embedding_dim": 5}, "char_embed has shape"),
    ],
)
def test_weights_that_contradict_the_options_are_named(
    change: dict, dataset: str, write_bilm: WriteBiLM
) -> None:
    weights = write_bilm(TINY_OPTIONS, name="right").weight_file
    options = write_bilm(replace(TINY_OPTIONS, **change), name="other").options_file
    with pytest.raises(ConfigurationError, match=f"{dataset}.*must belong to the same model"):
        BiLM.from_files(options, weights)


@pytest.mark.parametrize("value", [numpy.nan, numpy.inf])
def test_weights_that_are_not_finite_are_named(value: float, bilm_files: BiLMFiles) -> None:
    with h5py.File(bilm_files.weight_file, "a") as file:
        file[f"{CELL}/W_0"][2, 3] = value
    with pytest.raises(
        ConfigurationError, match=f"dataset {CELL}/W_0 holds NaN or infinite values"
    ):
        BiLM.from_files(*bilm_files)


def test_weights_beyond_float32_are_named(bilm_files: BiLMFiles) -> None:
    with h5py.File(bilm_files.weight_file, "a") as file:
        del file[f"{CELL}/B"]
        file.create_dataset(f"{CELL}/B", data=numpy.full(80, 1e300))
    with pytest.raises(ConfigurationError, match=f"dataset {CELL}/B holds NaN or infinite values"):
        BiLM.from_files(*bilm_files)


def test_integer_weights_are_refused(bilm_files: BiLMFiles) -> None:
    with h5py.File(bilm_files.weight_file, "a") as file:
        del file[f"{CELL}/B"]
        file.create_dataset(f"{CELL}/B", data=numpy.zeros(80, dtype="int64"))
    with pytest.raises(
        ConfigurationError, match=f"dataset {CELL}/B has type int64, expected float16"
    ):
        BiLM.from_files(*bilm_files)


@pytest.mark.parametrize("kept_share", [0.0, 0.1, 0.5, 0.9])
def test_a_file_cut_short_is_refused(kept_share: float, bilm_files: BiLMFiles) -> None:
    path = Path(bilm_files.weight_file)
    path.write_bytes(path.read_bytes()[: int(kept_share * path.stat().st_size)])
    with pytest.raises(ConfigurationError, match=r"weights\.hdf5: cannot be read as an HDF5 file"):
        BiLM.from_files(*bilm_files)


def test_a_file_of_another_kind_is_refused(bilm_files: BiLMFiles) -> None:
    with pytest.raises(ConfigurationError, match=r"cannot be read as an HDF5 file.*swapped"):
        BiLM.from_files(bilm_files.options_file, bilm_files.options_file)


class TestSaving:
    def test_a_failed_save_leaves_the_previous_file_and_nothing_else(
        self, bilm_files: BiLMFiles, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        bilm = BiLM.from_files(*bilm_files)
        folder = Path(bilm_files.weight_file).parent
        before = {path.name: path.read_bytes() for path in folder.iterdir()}

        def full_disk(*args: object, **kwargs: object) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(h5py.Group, "create_dataset", full_disk)
        with pytest.raises(OSError, match="No space left"):
            bilm.save(*bilm_files)
        assert {path.name: path.read_bytes() for path in folder.iterdir()} == before

    @pytest.mark.parametrize("missing", ["options", "weights"])
    def test_a_file_that_cannot_be_written_leaves_none(
        self, missing: str, bilm_files: BiLMFiles, tmp_path: Path
    ) -> None:
        bilm = BiLM.from_files(*bilm_files)
        folder = tmp_path / "new"
        folder.mkdir()
        names = ["no/file" if missing == kind else kind for kind in ("options", "weights")]
        with pytest.raises(FileNotFoundError):
            bilm.save(folder / names[0], folder / names[1])
        assert not list(folder.iterdir())

    def test_a_missing_folder_is_an_error(self, bilm_files: BiLMFiles, tmp_path: Path) -> None:
        with pytest.raises(FileNotFoundError):
            BiLM.from_files(*bilm_files).save(tmp_path / "no/o.json", tmp_path / "no/w.hdf5")

    def test_saved_files_have_ordinary_permissions(self, bilm_files: BiLMFiles) -> None:
        umask = os.umask(0o022)
        try:
            BiLM.from_files(*bilm_files).save(*bilm_files)
        finally:
            os.umask(umask)
        assert Path(bilm_files.weight_file).stat().st_mode & 0o777 == 0o644
