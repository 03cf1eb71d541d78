"""Checkpoints that a full disk or a killed process cannot spoil."""

import errno
import resource
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Dict

import pytest
import torch
from allennlp.models import Model
from allennlp.training.trainer import TrainerCheckpoint

from elmo_plugin.pretraining import AtomicCheckpointer
from tests.compat.patches_test import tagger_config, train


@pytest.fixture
def config(tmp_path: Path) -> Dict[str, Any]:
    """An experiment of AllenNLP's own classes: the checkpointer is of use to any."""
    config = tagger_config(tmp_path)
    config["trainer"]["checkpointer"] = {"type": "elmo_atomic"}
    return config


def fill_disk(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Let files of this name break off half-way."""
    whole_save = torch.save

    def save(content: Any, file: Any) -> None:
        if name in file.name:
            file.write(b"half of it")
            raise OSError(errno.ENOSPC, "No space left on device")
        whole_save(content, file)

    monkeypatch.setattr(torch, "save", save)


def assert_same_weights(ours: Dict[str, torch.Tensor], theirs: Dict[str, torch.Tensor]) -> None:
    assert ours.keys() == theirs.keys()
    for name, parameter in ours.items():
        assert torch.equal(parameter, theirs[name]), name


@pytest.mark.parametrize("name", ["model_state_e2_b0", "training_state_e2_b0"])
def test_a_full_disk_is_reported_and_leaves_the_checkpoint_before(
    name: str, config: Dict[str, Any], tmp_path: Path
) -> None:
    uninterrupted = train(config, tmp_path / "uninterrupted").state_dict()
    folder = tmp_path / "run"
    with pytest.MonkeyPatch.context() as monkeypatch:
        fill_disk(monkeypatch, name)
        with pytest.raises(OSError, match=r"No space left on device"):
            train(config, folder)
    assert {file.name for file in folder.iterdir() if ".th" in file.name} == {
        "best.th",
        "model_state_e1_b0.th",
        "training_state_e1_b0.th",
    }
    recovered: Model = train(config, folder, recover=True)
    assert_same_weights(recovered.state_dict(), uninterrupted)


def fake_trainer(num_values: int) -> Any:
    state = TrainerCheckpoint(
        {"weight": torch.zeros(num_values)},
        {"epochs_completed": 1, "batches_in_epoch_completed": 0},
    )
    return SimpleNamespace(get_checkpoint_state=lambda: state)


@pytest.mark.parametrize("num_values", [10, 100_000])
def test_the_reason_of_a_failed_write_is_named_even_if_torch_hides_it(
    num_values: int, tmp_path: Path
) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (500, limits[1]))  # bytes of a file
    try:
        with pytest.raises(OSError, match=r"File too large"):
            AtomicCheckpointer(tmp_path).save_checkpoint(fake_trainer(num_values))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert list(tmp_path.iterdir()) == []


def test_half_a_checkpoint_is_neither_the_latest_nor_a_part_of_the_next(
    config: Dict[str, Any], tmp_path: Path
) -> None:
    uninterrupted = train(config, tmp_path / "run").state_dict()
    folder = tmp_path / "run"
    (folder / "training_state_e2_b0.th").unlink()
    # Of a training that went another way; and weights that somebody kept.
    half, kept, newer = (
        folder / f"model_state_{place}.th" for place in ("e2_b0", "e0_b1", "e9_b0")
    )
    for file in (half, kept, newer):
        zeros = {name: torch.zeros_like(weight) for name, weight in uninterrupted.items()}
        torch.save(zeros, file)
    latest = AtomicCheckpointer(folder).find_latest_checkpoint()
    assert [Path(file).name for file in latest] == [
        "model_state_e1_b0.th",
        "training_state_e1_b0.th",
    ]
    train(config, folder, recover=True)
    assert_same_weights(torch.load(half), uninterrupted)
    assert kept.exists()
    assert newer.exists()


def test_what_a_killed_process_was_writing_is_removed_and_nothing_else(tmp_path: Path) -> None:
    for name in (".model_state_e0_b4.th.abc", ".training_state_e0_b4.th.abc", ".best.th.swp"):
        (tmp_path / name).write_bytes(b"half")
    AtomicCheckpointer(tmp_path).save_checkpoint(fake_trainer(1))
    names = {"model_state_e1_b0.th", "training_state_e1_b0.th", ".best.th.swp"}
    assert {path.name for path in tmp_path.iterdir()} == names
