import math
import os
import shutil
import sys
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Callable, Type

import h5py
import numpy
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from elmo_plugin import BiLM, FrozenBiLM, batch_to_ids
from elmo_plugin.bilm import BiLMOptions, weights
from elmo_plugin.errors import ConfigurationError
from tests.conftest import (
    SENTENCES,
    TINY_OPTIONS,
    BiLMFiles,
    of_allennlp,
    run_program,
    with_encoder,
)

WriteBiLM = Callable[..., BiLMFiles]

CELL = "RNN_0/RNN/MultiRNNCell/Cell0/LSTMCell"


def activations(bilm: BiLM) -> Tensor:
    return torch.stack(bilm(batch_to_ids(SENTENCES))["activations"])


def datasets_in(path: Any) -> dict:
    found = {}

    def add(name: str, item: object) -> None:
        if isinstance(item, h5py.Dataset):
            found[name] = item[...]

    with h5py.File(path) as file:
        file.visititems(add)
    return found


def test_load_save_load_is_the_identity(bilm_files: BiLMFiles, tmp_path: Path) -> None:
    again = (str(tmp_path / "again.json"), str(tmp_path / "again.hdf5"))
    bilm = BiLM.from_files(*bilm_files)
    bilm.save(*again)
    state, state_again = bilm.state_dict(), BiLM.from_files(*again).state_dict()
    assert state.keys() == state_again.keys()
    assert all(torch.equal(state[name], state_again[name]) for name in state)
    assert BiLM.from_files(*again).options == bilm.options
    datasets, datasets_again = datasets_in(bilm_files.weight_file), datasets_in(again[1])
    assert datasets.keys() == datasets_again.keys()
    for name, array in datasets.items():
        assert numpy.array_equal(array, datasets_again[name]), name
        assert datasets_again[name].dtype == numpy.float32


def with_value(position: tuple, value: float) -> numpy.ndarray:
    weight = numpy.zeros((12, 80))
    weight[position] = value
    return weight


NOT_FINITE = "holds NaN or infinite values, expected finite"


@pytest.mark.parametrize(
    "name, values, message",
    [
        ("B", None, r"is missing, expected shape \(80,\)"),
        ("B", numpy.full(80, 1e300), NOT_FINITE),
        *(("B", numpy.ones(80, kind), "holds values of type ") for kind in ("i1", "?", "c8", "S4")),
        *(
            ("W_0", with_value(position, value), NOT_FINITE)
            for position in ((0, 0), (-1, -1))
            for value in (numpy.nan, -numpy.inf)
        ),
    ],
)
def test_a_wrong_dataset_is_named(
    name: str, values: Any, message: str, bilm_files: BiLMFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(weights, "BYTES_PER_PART", 100)
    with h5py.File(bilm_files.weight_file, "a") as file:
        del file[f"{CELL}/{name}"]
        if values is not None:
            file[f"{CELL}/{name}"] = values
    with pytest.raises(
        ConfigurationError, match=rf"weights\.hdf5: dataset {CELL}/{name} {message}"
    ):
        BiLM.from_files(*bilm_files)


def changed(options: BiLMOptions, **change: Any) -> BiLMOptions:
    """Return options with one size changed, of the encoder or the LSTMs."""
    is_of_lstms = set(change) <= {field.name for field in fields(BiLMOptions)}
    return replace(options, **change) if is_of_lstms else with_encoder(options, **change)


@pytest.mark.parametrize(
    "change, message",
    [
        ({"cell_size": 21}, f"dataset {CELL}/W_0 has shape"),
        ({"filters": ((1, 4), (2, 8), (4, 12))}, "dataset CNN/W_cnn_2 has shape"),
        ({"num_lstm_layers": 3}, "Cell2/LSTMCell/W_0 is missing"),
        (
            {"num_lstm_layers": 1},
            "found the dataset .*Cell1/LSTMCell/B, expected the smaller model",
        ),
        ({"num_highway": 0}, "found the dataset CNN_high_0/W_carry, expected the smaller model"),
        ({"character_embedding_dim": 5}, "dataset char_embed has shape"),
    ],
)
def test_weights_that_contradict_the_options_are_named(
    change: dict, message: str, write_bilm: WriteBiLM
) -> None:
    weights = write_bilm(TINY_OPTIONS, name="right").weight_file
    options = write_bilm(changed(TINY_OPTIONS, **change), name="other").options_file
    with pytest.raises(ConfigurationError, match=f"{message}.*must belong to the same model"):
        BiLM.from_files(options, weights)


def test_a_file_of_another_kind_is_refused(bilm_files: BiLMFiles) -> None:
    with pytest.raises(ConfigurationError, match=r"cannot be read as an HDF5 file.*swapped"):
        BiLM.from_files(bilm_files.options_file, bilm_files.options_file)


# Python makes it of an interrupt within h5py's C code.
INTERRUPTED = SystemError("returned a result with an exception set")
INTERRUPTED.__cause__ = KeyboardInterrupt()


@pytest.mark.parametrize(
    "place, error, expected",
    [
        ("hdf5._check_data_are_inside", MemoryError(), MemoryError),
        ("hdf5._check_data_are_inside", INTERRUPTED, KeyboardInterrupt),
        # As when torch cannot allocate memory to pack a matrix.
        *(
            ("runners.reference_runner.product_by", error("can't allocate memory"), error)
            for error in (RuntimeError, MemoryError, torch.cuda.OutOfMemoryError)
        ),
    ],
)
def test_what_is_not_the_fault_of_the_file_is_not_reported_as_its_damage(
    place: str,
    error: Exception,
    expected: Type[BaseException],
    bilm_files: BiLMFiles,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*unused: Any) -> Any:
        raise error

    monkeypatch.setattr(f"elmo_plugin.bilm.{place}", fail)
    with pytest.raises(expected):
        FrozenBiLM.from_files(*bilm_files, kernel="reference")


@pytest.mark.parametrize("kind", ["link", "virtual", "external"])
def test_data_of_another_file_are_refused(kind: str, bilm_files: BiLMFiles, tmp_path: Path) -> None:
    other = tmp_path / "other.hdf5"
    shutil.copy(bilm_files.weight_file, other)
    with h5py.File(bilm_files.weight_file, "r+") as file:
        name = "char_embed"
        shape, dtype = file[name].shape, file[name].dtype
        del file[name]
        if kind == "link":
            file[name] = h5py.ExternalLink(str(other), name)
        elif kind == "virtual":
            layout = h5py.VirtualLayout(shape, dtype)
            layout[...] = h5py.VirtualSource(str(other), name, shape)
            file.create_virtual_dataset(name, layout)
        else:
            external = [(str(other), 0, h5py.h5f.UNLIMITED)]
            file.create_dataset(name, shape, dtype, external=external)
    with pytest.raises(
        ConfigurationError, match=r"weights\.hdf5: char_embed refers to another file"
    ):
        BiLM.from_files(*bilm_files)


def test_a_file_that_changes_while_it_is_read_is_refused(bilm_files: BiLMFiles) -> None:
    with (
        pytest.raises(ConfigurationError, match=r"weights\.hdf5: the file changed while it was"),
        weights.opened_weights(BiLM(TINY_OPTIONS), bilm_files.weight_file),
    ):
        os.utime(bilm_files.weight_file)


@pytest.mark.parametrize("source", ["file", "allennlp"])
def test_parameters_are_ordinary(source: str, bilm_files: BiLMFiles, tmp_path: Path) -> None:
    bilm = BiLM.from_files(*bilm_files)
    if source == "allennlp":
        elmo = of_allennlp("modules.elmo.Elmo")(*bilm_files, 1)
        bilm.load_state_dict(elmo._elmo_lstm.state_dict(), assign=True)
        bilm.requires_grad_(False)
    assert all(parameter.is_contiguous() for parameter in bilm.parameters())
    expected = activations(bilm)
    vector = parameters_to_vector(bilm.parameters())
    vector_to_parameters(torch.zeros_like(vector), bilm.parameters())
    assert not activations(bilm).any()
    vector_to_parameters(vector, bilm.parameters())
    # The same weights in the same batch, here and below: the same bits.
    assert torch.equal(activations(bilm), expected)
    save_file(bilm.state_dict(), tmp_path / "bilm.safetensors")
    other = BiLM(TINY_OPTIONS).requires_grad_(False)
    other.load_state_dict(load_file(tmp_path / "bilm.safetensors"))
    assert torch.equal(activations(other), expected)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"dtype": "float16"},
        {"dtype": "float64"},
        {"dtype": ">f4"},
        {"chunks": True},
        {"compression": "gzip"},
    ],
)
def test_files_in_another_form_have_the_checksum_of_the_model(
    settings: dict, bilm_files: BiLMFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "other.hdf5"
    with h5py.File(other, "w") as file:
        for name, array in datasets_in(bilm_files.weight_file).items():
            file.create_dataset(name, data=array, **settings)
    expected = parameters_to_vector(BiLM.from_files(*bilm_files).parameters())
    monkeypatch.setattr(weights, "BYTES_PER_PART", 1000)  # several parts, the last one shorter
    bilm = BiLM.from_files(bilm_files.options_file, other)
    with weights.opened_weights(bilm, other) as opened:
        assert opened.sha256() == weights.weights_checksum(bilm)
    ours = parameters_to_vector(bilm.parameters())
    is_half = settings.get("dtype") == "float16"
    # Copies. (Of float16 files AllenNLP rounds the forget bias too, which it adds to them.)
    assert torch.equal(ours, expected.half().float() if is_half else expected)


class TestSaving:
    def test_at_a_limit_of_file_sizes_it_is_an_os_error(self, bilm_files: BiLMFiles) -> None:
        """HDF5 itself raises other errors, or ends the process with a signal."""
        code = (
            "import os, resource, signal, sys; from elmo_plugin import BiLM\n"
            "bilm = BiLM.from_files(*sys.argv[1:])\n"
            "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
            "size = os.path.getsize(sys.argv[2])\n"
            "for limit in range(size - 1, 0, -size // 40):\n"
            "    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, -1))\n"
            "    try: bilm.save('o.json', 'w.hdf5')\n"
            "    except OSError as error: assert error.errno == 27, error\n"
            "    else: raise AssertionError(limit)\n"
            "print('OSError')\n"
        )
        folder = Path(bilm_files.weight_file).parent
        before = sorted(folder.iterdir())
        result = run_program(sys.executable, "-c", code, *bilm_files, cwd=folder)
        assert result.stdout.startswith("OSError"), result.stderr
        assert sorted(folder.iterdir()) == before

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

    def test_one_path_for_both_is_refused(self, bilm_files: BiLMFiles, tmp_path: Path) -> None:
        bilm = BiLM.from_files(*bilm_files)
        with pytest.raises(ConfigurationError, match="options_file and weight_file are both"):
            bilm.save(tmp_path / "model", tmp_path / "model")
        assert not list(tmp_path.glob("model*"))

    def test_a_folder_in_place_of_a_file_leaves_the_other(
        self, bilm_files: BiLMFiles, tmp_path: Path
    ) -> None:
        bilm = BiLM.from_files(*bilm_files)
        (tmp_path / "options").write_text("previous")
        (tmp_path / "weights").mkdir()
        with pytest.raises(IsADirectoryError):
            bilm.save(tmp_path / "options", tmp_path / "weights")
        assert (tmp_path / "options").read_text() == "previous"

    def test_a_changed_bilm_is_refused(self, bilm_files: BiLMFiles, tmp_path: Path) -> None:
        """The changes are those of `frozen_test.py`."""
        bilm = BiLM.from_files(*bilm_files)
        bilm.character_encoder.projection.register_forward_hook(print)
        message = "hooks or another forward run at its character_encoder.projection"
        with pytest.raises(ConfigurationError, match=message):
            bilm.save(tmp_path / "options", tmp_path / "weights")
        assert not (tmp_path / "options").exists()

    @pytest.mark.parametrize("number", [math.nan, math.inf], ids=str)
    def test_weights_that_are_not_finite_leave_the_files(
        self, number: float, bilm_files: BiLMFiles
    ) -> None:
        before = [Path(file).read_bytes() for file in bilm_files]
        bilm = BiLM.from_files(*bilm_files)
        bilm.forward_layers[0].gate_bias[-1] = number
        with pytest.raises(ConfigurationError, match=f"{CELL}/B holds NaN or infinite"):
            bilm.save(*bilm_files)
        assert [Path(file).read_bytes() for file in bilm_files] == before

    def test_numbers_too_large_for_float16_stay_float32(self, bilm_files: BiLMFiles) -> None:
        bilm = BiLM.from_files(*bilm_files)
        bilm.forward_layers[0].gate_bias[-1] = 70_000.0
        bilm.save(*bilm_files, dtype="float16")
        with h5py.File(bilm_files.weight_file) as file:
            assert file[f"{CELL}/W_0"].dtype == "float16"
        assert BiLM.from_files(*bilm_files).forward_layers[0].gate_bias[-1] == 70_000.0
