"""Packed weights in files."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from elmo_plugin import BiLM, Elmo, batch_to_ids
from elmo_plugin.bilm import frozen
from elmo_plugin.bilm.kernels import choose_kernel
from elmo_plugin.errors import ConfigurationError
from tests.conftest import SENTENCES, TINY_OPTIONS, BiLMFiles, randomize

CHARACTER_IDS = batch_to_ids(SENTENCES)


@pytest.fixture(autouse=True)
def simd() -> None:
    if choose_kernel("auto", "float32", torch.device("cpu")).name != "simd":
        pytest.skip("The simd kernel is not the fastest here.")


@pytest.fixture(autouse=True)
def nothing_is_shared_within_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frozen, "_shared", {})


def activations(bilm: BiLM) -> Tensor:
    return torch.stack(bilm(CHARACTER_IDS)["activations"])


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "int8"])
def test_weights_are_written_once_and_read_by_others(
    precision: str, bilm_files: BiLMFiles, tmp_path: Path
) -> None:
    folder = tmp_path / "new" / "folder"
    expected = activations(BiLM.from_files(*bilm_files, precision=precision))
    first = BiLM.from_files(*bilm_files, precision=precision, packed_folder=folder)
    assert torch.equal(activations(first), expected)
    written = {path: path.stat().st_mtime_ns for path in folder.glob("*.packed")}
    # Two LSTM layers in two directions, and the character encoder.
    assert len(written) == 5
    frozen._shared.clear()
    other = Elmo(*bilm_files, 1, precision=precision, packed_folder=str(folder)).bilm
    assert torch.equal(activations(other), expected)
    assert {path: path.stat().st_mtime_ns for path in folder.glob("*.packed")} == written


def test_other_weights_have_other_files(bilm_files: BiLMFiles, tmp_path: Path) -> None:
    activations(BiLM.from_files(*bilm_files, packed_folder=tmp_path / "packed"))
    other = randomize(BiLM(TINY_OPTIONS, packed_folder=tmp_path / "packed"), seed=5)
    plain = randomize(BiLM(TINY_OPTIONS), seed=5)
    ours, theirs = (activations(bilm.requires_grad_(False)) for bilm in (other, plain))
    assert torch.equal(ours, theirs)
    assert len(list((tmp_path / "packed").glob("*.packed"))) == 10
    with torch.no_grad():
        other.forward_layers[0].gate_weight.mul_(2)
        plain.forward_layers[0].gate_weight.mul_(2)
    assert torch.equal(activations(other), activations(plain))


def test_a_damaged_file_is_named(bilm_files: BiLMFiles, tmp_path: Path) -> None:
    folder = tmp_path / "packed"
    activations(BiLM.from_files(*bilm_files, packed_folder=folder))
    frozen._shared.clear()
    for path in folder.glob("*.packed"):
        path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(ConfigurationError, match=r"\.packed: cannot be read .* delete it"):
        activations(BiLM.from_files(*bilm_files, packed_folder=folder))


def test_nothing_half_written_is_left(
    bilm_files: BiLMFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_space(value: object, path: Path) -> None:
        path.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(torch, "save", no_space)
    with pytest.raises(OSError, match="No space left"):
        activations(BiLM.from_files(*bilm_files, packed_folder=tmp_path / "packed"))
    assert [path.name for path in (tmp_path / "packed").iterdir()] == [".lock"]


def test_kernels_that_cannot_use_it_say_so(
    bilm_files: BiLMFiles, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bilm = BiLM.from_files(*bilm_files, kernel="reference", packed_folder=tmp_path / "packed")
    activations(bilm)
    assert "packed_folder is not used: the reference kernel's weights" in caplog.text
    assert not (tmp_path / "packed").exists()
