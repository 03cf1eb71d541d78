"""Records of a biLM's training: what they say, and that they do not change what is trained."""

import json
import struct
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Dict, List

import numpy
import pytest
import torch
from tensorboardX.proto.event_pb2 import Event

from elmo_plugin.errors import ConfigurationError
from elmo_plugin.pretraining import ProgressCallback, progress
from elmo_plugin.pretraining.progress import (
    PROGRESS_NAME,
    TENSORBOARD_NAME,
    last_progress,
    read_progress,
)
from tests.closeness import assert_close
from tests.pretraining.recovery_test import (
    assert_equal,
    final_state,
    interrupt,
    latest_checkpoint,
    train,
)

CALLBACKS = {
    "trainer.callbacks": ["elmo_bilm_state", {"type": "elmo_progress", "validation_interval": 5}]
}


@pytest.fixture(autouse=True)
def records_of_each_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_RECORDS", 0.0)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("uninterrupted") / "run"
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(progress, "SECONDS_BETWEEN_RECORDS", 0.0)
        train(folder, **CALLBACKS)
    return folder


def records(folder: Path) -> List[Dict[str, Any]]:
    return list(read_progress(folder / PROGRESS_NAME))


def test_records_have_the_words_loss_and_perplexity(uninterrupted: Path) -> None:
    found = records(uninterrupted)
    updates = {record["updates"]: record for record in found}
    assert sorted(updates) == list(range(1, found[-1]["updates"] + 1))
    # 8 rows of 10 words.
    assert all(record["words"] == 80 * number for number, record in updates.items())
    assert [record["seconds"] for record in found] == sorted(record["seconds"] for record in found)
    assert all(updates[number]["perplexity"] is None for number in range(1, 5))
    metrics = [
        json.loads((uninterrupted / f"metrics_epoch_{epoch}.json").read_text()) for epoch in (0, 1)
    ]
    assert found[-1]["perplexity"] == metrics[1]["validation_perplexity"]
    # The trainer's loss is that of a row of 10 words.
    of_first_epoch = [
        record["loss"]
        for record in found
        if "loss" in record and record["updates"] <= len(updates) // 2
    ]
    assert_close(sum(of_first_epoch) / len(of_first_epoch), metrics[0]["training_loss"] / 10)
    assert last_progress(uninterrupted / PROGRESS_NAME) == found[-1]
    assert_shown_in_tensorboard(uninterrupted)


def test_the_loss_is_that_of_a_word_in_batches_of_other_sizes_with_a_regularizer(
    tmp_path: Path,
) -> None:
    # Two batches of an update, of two rows and of one, each of three words; the penalty is 5.
    inputs = [{"forward_inputs": torch.ones(rows, 3, 50)} for rows in (2, 1)]
    outputs = [
        {"loss": torch.tensor(nll + 5.0), "reg_loss": torch.tensor(5.0)} for nll in (6.0, 9.0)
    ]
    trainer = SimpleNamespace(_validation_data_loader=None)
    progress = ProgressCallback(str(tmp_path))
    progress.on_start(trainer)
    progress.on_batch(trainer, inputs, outputs, {"batch_loss": 12.5}, 0, 1, is_training=True)
    assert records(tmp_path)[-1]["loss"] == (2 * 6.0 + 1 * 9.0) / 9


def test_the_speed_is_that_of_training_since_the_previous_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SimpleNamespace(now=100.0)

    def wait(seconds: float) -> None:
        clock.now += seconds

    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: clock.now))
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_RECORDS", 4.0)
    monkeypatch.setattr(progress, "_heldout_perplexity", lambda trainer: wait(9))
    callback = ProgressCallback(str(tmp_path), validation_interval=4)
    trainer = SimpleNamespace(_validation_data_loader=[])
    callback.on_start(trainer)
    inputs, outputs = [{"forward_inputs": torch.ones(2, 3, 50)}], [{"loss": torch.tensor(6.0)}]

    def run_batch(seconds: float, is_training: bool = True) -> None:
        wait(seconds)
        callback.on_batch(trainer, inputs, outputs, {}, 0, 1, is_training)

    for seconds in (3, 2, 3):
        run_batch(seconds)
        assert callback.state_dict()["seconds"] == clock.now - 100  # also without a record
    for seconds in (0, 7):
        run_batch(seconds, is_training=False)
    callback.on_epoch(trainer, {}, 0)
    run_batch(5)
    found = [(record["seconds"], record.get("words_per_second")) for record in records(tmp_path)]
    assert found == [(5.0, 12 / 5), (8.0, 6 / 3), (15.0, None), (20.0, 6 / 5), (29.0, None)]


def shown_perplexities(folder: Path) -> Dict[int, float]:
    """Return what TensorBoard shows, by the number of words: a restart hides the points from its step on."""
    points: Dict[int, float] = {}
    # The names of files begin with the time in seconds.
    for file in sorted((folder / TENSORBOARD_NAME).iterdir()):
        content = file.read_bytes()
        while content:
            (size,) = struct.unpack("<Q", content[:8])
            # With a checksum of the size before it, and one of the event after it.
            event, content = Event.FromString(content[12 : 12 + size]), content[16 + size :]
            if event.HasField("session_log"):
                points = {step: value for step, value in points.items() if step < event.step}
            for value in event.summary.value:
                if value.tag == "perplexity":
                    points[event.step] = value.simple_value
    return points


def assert_shown_in_tensorboard(folder: Path) -> None:
    # The last record of a number of words replaces others.
    perplexities = {record["words"]: record["perplexity"] for record in records(folder)}
    # TensorBoard's files hold float32.
    expected = {step: numpy.float32(one) for step, one in perplexities.items() if one is not None}
    assert shown_perplexities(folder) == expected


def test_measuring_in_between_does_not_change_what_is_trained(
    uninterrupted: Path, tmp_path: Path
) -> None:
    train(tmp_path / "run")
    ours, theirs = (torch.load(path / "best.th") for path in (uninterrupted, tmp_path / "run"))
    for name, tensor in theirs.items():
        assert torch.equal(tensor, ours[name]), name


def test_of_moving_averages_the_perplexity_is_the_one_at_the_end_of_an_epoch(
    tmp_path: Path,
) -> None:
    overrides = {
        "trainer.callbacks": [
            "elmo_bilm_state",
            {"type": "elmo_progress", "validation_interval": 1},
        ],
        "trainer.num_epochs": 1,
        "trainer.moving_average": {"type": "exponential", "decay": 0.9},
    }
    train(tmp_path / "run", **overrides)
    *_, after_last_batch, after_epoch = records(tmp_path / "run")
    assert after_last_batch["updates"] == after_epoch["updates"]
    assert after_last_batch["perplexity"] == after_epoch["perplexity"]
    # Training continues with the weights themselves, of which the averages are the best.
    weights, averages = (
        torch.load(tmp_path / "run" / name) for name in ("model_state_e1_b0.th", "best.th")
    )
    assert not any(torch.equal(weights[name], average) for name, average in averages.items())
    # They stay so when nothing is left to do.
    train(tmp_path / "run", recover=True, **overrides)
    best = torch.load(tmp_path / "run" / "best.th")
    assert all(torch.equal(best[name], average) for name, average in averages.items())


@pytest.mark.parametrize(
    # The number of validations, and of batches after them; and the latest checkpoint.
    "position, checkpoint",
    [((3, 0), "e1_b0"), ((5, 2), "e1_b8")],
)
def test_a_recovered_training_has_the_same_weights_and_records(
    position: Any, checkpoint: str, uninterrupted: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    interrupt(folder, position, **CALLBACKS)
    assert latest_checkpoint(folder) == checkpoint
    with open(folder / PROGRESS_NAME, "a") as file:
        file.write('{"words": 12')  # a record that was being written
    train(folder, recover=True, **CALLBACKS)
    assert_equal(final_state(folder), final_state(uninterrupted))
    times = ("seconds", "words_per_second", "loss")  # of a record, which may have other batches
    ours, theirs = (
        [
            {key: value for key, value in record.items() if key not in times}
            for record in records(path)
        ]
        for path in (folder, uninterrupted)
    )
    assert ours == theirs
    seconds = [record["seconds"] for record in records(folder)]
    assert seconds == sorted(seconds)
    assert_shown_in_tensorboard(folder)


def test_an_interval_is_positive_and_needs_validation_data(tmp_path: Path) -> None:
    progress = ProgressCallback(str(tmp_path), validation_interval=5)
    with pytest.raises(ConfigurationError, match="and the config no validation_data_path"):
        progress.on_start(SimpleNamespace(_validation_data_loader=None))
    with pytest.raises(ConfigurationError, match="validation_interval is 0, expected a positive"):
        ProgressCallback(str(tmp_path), validation_interval=0)
