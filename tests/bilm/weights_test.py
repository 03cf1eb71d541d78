import os
import random
import shutil
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Callable

import h5py
import numpy
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from elmo_plugin import BiLM, batch_to_ids
from elmo_plugin.bilm import BiLMOptions, weights
from elmo_plugin.errors import ConfigurationError
from tests.conftest import SENTENCES, TINY_OPTIONS, BiLMFiles, of_allennlp, with_encoder

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


def changed(options: BiLMOptions, **change: Any) -> BiLMOptions:
    """Return options with one size changed, of the encoder or the LSTMs."""
    is_of_lstms = set(change) <= {field.name for field in fields(BiLMOptions)}
    return replace(options, **change) if is_of_lstms else with_encoder(options, **change)


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
    options = write_bilm(changed(TINY_OPTIONS, **change), name="other").options_file
    with pytest.raises(ConfigurationError, match=f"{dataset}.*must belong to the same model"):
        BiLM.from_files(options, weights)


@pytest.mark.parametrize("value", [numpy.nan, numpy.inf, -numpy.inf])
@pytest.mark.parametrize("position", [(0, 0), (2, 3), (-1, -1)])
def test_weights_that_are_not_finite_are_named(
    position: tuple, value: float, bilm_files: BiLMFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(weights, "BYTES_PER_PART", 100)
    with h5py.File(bilm_files.weight_file, "a") as file:
        file[f"{CELL}/W_0"][position] = value
    with pytest.raises(
        ConfigurationError, match=rf"weights\.hdf5: dataset {CELL}/W_0 holds NaN or infinite values"
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


def test_of_any_damage_there_is_one_error_that_names_the_file(
    bilm_files: BiLMFiles, tmp_path: Path
) -> None:
    whole = Path(bilm_files.weight_file).read_bytes()
    damaged = tmp_path / "damaged.hdf5"
    generator = random.Random(0)
    num_refused = 0
    for number in range(60):
        content = bytearray(whole)
        if number % 3 == 0:
            del content[generator.randrange(len(content)) :]
        else:
            # Tables of contents are dense at the begin.
            num_bytes = len(content) // (1 if number % 3 == 1 else 10)
            for _ in range(generator.choice([1, 8, 64])):
                content[generator.randrange(num_bytes)] = generator.randrange(256)
        damaged.write_bytes(content)
        try:
            bilm = BiLM.from_files(bilm_files.options_file, damaged)
        except ConfigurationError as error:
            num_refused += 1
            assert str(damaged) in str(error)
        else:
            assert all(bool(parameter.isfinite().all()) for parameter in bilm.parameters())
    assert num_refused > 20


@pytest.mark.parametrize("error", [ValueError, RuntimeError, KeyError, OSError])
def test_errors_of_h5py_name_the_file(
    error: type, bilm_files: BiLMFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*unused: object) -> None:
        raise error("Insane object")

    monkeypatch.setattr(h5py.Dataset, "__getitem__", fail)
    with pytest.raises(ConfigurationError, match=r"weights\.hdf5: cannot be read.*Insane object"):
        BiLM.from_files(*bilm_files)


def activations(bilm: BiLM) -> Tensor:
    return torch.stack(bilm(batch_to_ids(SENTENCES))["activations"])


class TestAFileThatChanges:
    # Large enough for every dataset of a layer to be worth a memory map.
    OPTIONS = replace(TINY_OPTIONS, cell_size=512, projection_dim=64)

    @pytest.mark.parametrize("change", ["another model", "shorter", "deleted"])
    def test_after_loading_does_not_change_the_bilm(
        self, change: str, write_bilm: WriteBiLM
    ) -> None:
        files = write_bilm(self.OPTIONS, seed=1, name="this")
        expected = activations(BiLM.from_files(*files))
        bilm = BiLM.from_files(*files)
        if change == "another model":
            other = write_bilm(self.OPTIONS, seed=2, name="other").weight_file
            shutil.copyfile(other, files.weight_file)
        elif change == "shorter":
            os.truncate(files.weight_file, 1000)
        else:
            os.remove(files.weight_file)
        assert torch.equal(activations(bilm), expected)

    def test_while_it_is_read_is_refused(self, bilm_files: BiLMFiles) -> None:
        with (
            pytest.raises(
                ConfigurationError, match=r"weights\.hdf5: the file changed while it was"
            ),
            weights.opened_weights(TINY_OPTIONS, bilm_files.weight_file),
        ):
            os.utime(bilm_files.weight_file)

    def test_is_never_written_to(self, bilm_files: BiLMFiles) -> None:
        before = Path(bilm_files.weight_file).read_bytes()
        bilm = BiLM.from_files(*bilm_files).requires_grad_(True)
        activations(bilm).sum().backward()
        torch.optim.Adam(bilm.parameters(), lr=0.1).step()
        assert Path(bilm_files.weight_file).read_bytes() == before


class TestParametersAreOrdinary:
    @pytest.fixture(params=["file", "allennlp"])
    def bilm(self, request: pytest.FixtureRequest, bilm_files: BiLMFiles) -> BiLM:
        if request.param == "file":
            return BiLM.from_files(*bilm_files)
        bilm = BiLM(TINY_OPTIONS)
        bilm.load_state_dict(
            of_allennlp("modules.elmo.Elmo")(*bilm_files, 1)._elmo_lstm.state_dict(), assign=True
        )
        return bilm.requires_grad_(False)

    def test_contiguous(self, bilm: BiLM) -> None:
        assert all(parameter.is_contiguous() for parameter in bilm.parameters())

    def test_as_a_vector(self, bilm: BiLM) -> None:
        vector = parameters_to_vector(bilm.parameters())
        expected = activations(bilm)
        vector_to_parameters(2 * vector, bilm.parameters())
        assert not torch.allclose(activations(bilm), expected, atol=1e-3)
        vector_to_parameters(vector, bilm.parameters())
        assert torch.equal(activations(bilm), expected)

    def test_as_safetensors(self, bilm: BiLM, tmp_path: Path) -> None:
        save_file(bilm.state_dict(), tmp_path / "bilm.safetensors")
        other = BiLM(TINY_OPTIONS).requires_grad_(False)
        other.load_state_dict(load_file(tmp_path / "bilm.safetensors"))
        assert torch.equal(activations(other), activations(bilm))


@pytest.mark.parametrize("form", ["float16", "float64", "chunks", "compressed", "big-endian"])
def test_files_in_another_form(form: str, bilm_files: BiLMFiles, tmp_path: Path) -> None:
    other = tmp_path / "other.hdf5"
    with h5py.File(bilm_files.weight_file) as source, h5py.File(other, "w") as target:

        def copy_dataset(name: str, item: object) -> None:
            if isinstance(item, h5py.Dataset):
                settings = {
                    "float16": {"dtype": "float16"},
                    "float64": {"dtype": "float64"},
                    "chunks": {"chunks": True},
                    "compressed": {"compression": "gzip"},
                    "big-endian": {"dtype": ">f4"},
                }[form]
                target.create_dataset(name, data=item[...], **settings)

        source.visititems(copy_dataset)
    ours = parameters_to_vector(BiLM.from_files(bilm_files.options_file, other).parameters())
    expected = parameters_to_vector(BiLM.from_files(*bilm_files).parameters())
    # Of float16 files AllenNLP rounds the forget bias too, which it adds to them.
    assert torch.equal(ours, expected.half().float() if form == "float16" else expected)


def test_the_checksum_while_loading_is_that_of_the_model(bilm_files: BiLMFiles) -> None:
    bilm = BiLM(TINY_OPTIONS)
    with weights.opened_weights(TINY_OPTIONS, bilm_files.weight_file) as file:
        for name in bilm.names_of_parts:
            file.load(bilm, name)
    assert file.sha256() == weights.weights_checksum(bilm)


class TestSaving:
    def test_at_a_limit_of_file_sizes_it_is_an_os_error(self, bilm_files: BiLMFiles) -> None:
        """h5py raises a RuntimeError when it closes the file."""
        code = (
            "import resource, signal, sys; from elmo_plugin import BiLM\n"
            "bilm = BiLM.from_files(*sys.argv[1:])\n"
            "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
            "resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))\n"
            "try: bilm.save('o.json', 'w.hdf5')\n"
            "except OSError as error: print('OSError', error)\n"
        )
        folder = Path(bilm_files.weight_file).parent
        before = sorted(folder.iterdir())
        result = subprocess.run(
            [sys.executable, "-c", code, *bilm_files], cwd=folder, capture_output=True, text=True
        )
        assert result.stdout.startswith("OSError"), result.stderr
        assert sorted(folder.iterdir()) == before

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

    def test_saved_files_have_ordinary_permissions(self, bilm_files: BiLMFiles) -> None:
        umask = os.umask(0o022)
        try:
            BiLM.from_files(*bilm_files).save(*bilm_files)
        finally:
            os.umask(umask)
        assert Path(bilm_files.weight_file).stat().st_mode & 0o777 == 0o644
