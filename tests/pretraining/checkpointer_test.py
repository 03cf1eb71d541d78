"""Checkpoints that a full disk or a killed process cannot damage."""

import errno
import resource
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Dict

import pytest
import torch
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
    """Fail half-way in files of this name."""
    whole_save = torch.save

    def save(content: Any, file: Any) -> None:
        if name in file.name:
            file.write(b"half of it")
            raise OSError(errno.ENOSPC, "No space left on device")
        whole_save(content, file)

    monkeypatch.setattr(torch, "save", save)


@pytest.mark.parametrize("name", ["model_state_e2_b0", "training_state_e2_b0"])
def test_a_full_disk_is_reported_and_leaves_the_previous_checkpoint(
    name: str, config: Dict[str, Any], tmp_path: Path
) -> None:
    uninterrupted = train(config, tmp_path / "uninterrupted").state_dict()
    folder = tmp_path / "run"
    with pytest.MonkeyPatch.context() as monkeypatch:
        fill_disk(monkeypatch, name)
        with pytest.raises(OSError, match=r"No space left on device"):
            train(config, folder)
    names = {file.name for file in folder.glob("*model_state*")}
    assert names == {"model_state_e1_b0.th"}
    recovered = train(config, folder, recover=True).state_dict()
    for name, parameter in uninterrupted.items():
        # To the bit, as recovery is promised to be.
        assert torch.equal(recovered[name], parameter), name


def trainer_at(batch: int, num_values: int = 1, value: float = 0.0) -> Any:
    state = TrainerCheckpoint(
        {"weight": torch.full((num_values,), value)},
        {"epochs_completed": 1, "batches_in_epoch_completed": batch, "value": value},
    )
    return SimpleNamespace(get_checkpoint_state=lambda: state)


@pytest.mark.parametrize("num_values", [1_000, 100_000])
def test_the_reason_of_a_failed_write_is_named_even_if_torch_hides_it(
    num_values: int, tmp_path: Path
) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (3_000, limits[1]))  # bytes of a file
    try:
        with pytest.raises(OSError, match=r"File too large"):
            AtomicCheckpointer(tmp_path).save_checkpoint(trainer_at(0, num_values))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    # The training state fits, but without weights it is no checkpoint.
    assert [path.name for path in tmp_path.iterdir()] == ["training_state_e1_b0.th"]
    assert AtomicCheckpointer(tmp_path).find_latest_checkpoint() is None


def test_a_checkpoint_replaces_one_of_another_training_at_the_same_batch(tmp_path: Path) -> None:
    for value in (1.0, 2.0):
        AtomicCheckpointer(tmp_path).save_checkpoint(trainer_at(4, value=value))
    checkpoint = AtomicCheckpointer(tmp_path).load_checkpoint()
    assert checkpoint.model_state["weight"].item() == checkpoint.trainer_state["value"] == 2.0


def test_only_partial_files_of_a_killed_process_are_removed(tmp_path: Path) -> None:
    for name in (".model_state_e0_b4.th.abc", ".training_state_e0_b4.th.abc", ".best.th.swp"):
        (tmp_path / name).write_bytes(b"half")
    AtomicCheckpointer(tmp_path).save_checkpoint(trainer_at(0))
    names = {"model_state_e1_b0.th", "training_state_e1_b0.th", ".best.th.swp"}
    assert {path.name for path in tmp_path.iterdir()} == names
