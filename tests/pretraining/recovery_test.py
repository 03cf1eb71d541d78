"""
`allennlp train --recover` of a biLM continues as if training had never been interrupted, also after a failed
write or a killed process.
"""

import contextlib
import functools
import itertools
import json
import multiprocessing
import os
import platform
import re
import resource
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

import pytest
import torch
from allennlp.commands.train import TrainModel
from allennlp.common import Params
from allennlp.common.util import dump_metrics, prepare_environment
from allennlp.nn.parallel import TorchDdpAccelerator
from allennlp.training import gradient_descent_trainer
from allennlp.training.trainer import TrainerCheckpoint

from elmo_plugin.errors import ConfigurationError
from elmo_plugin.pretraining import AtomicCheckpointer, BiLMStateCallback, BiLMTrainingModel
from tests.conftest import file_size_limit
from tests.pretraining import conftest
from tests.pretraining.conftest import CONFIG, HELD_OUT
from tests.pretraining.model_test import build
from tests.pretraining.workers import reports_of_workers

# Two epochs of about 13 batches, with all that is random in training: dropout, resets of rows, sampled words.
OVERRIDES: Dict[str, Any] = {
    "train_data_path": HELD_OUT,
    "model.dropout": 0.2,
    "model.state_reset": 0.2,
    "data_loader.rows": 8,
    "validation_data_loader.rows": 16,
    "trainer.checkpointer.save_every_num_batches": 4,
    "trainer.num_epochs": 2,
    "trainer.cuda_device": -1,
}
ACCUMULATION = {"trainer.num_gradient_accumulation_steps": 2}
BFLOAT16 = {"model.precision": "bfloat16"}
FROZEN_BILM = {"model.softmax_first": 23}  # until after the checkpoint
# Perplexity falls, so the first epoch is best where higher is better.
FIRST_IS_BEST = {"trainer.validation_metric": "+perplexity"}

OF_TWO_WORKERS = {
    "data_loader.rows": 4,  # One worker then has more batches than the other.
    # The learning rate depends on the number of batches, which must be the same in both.
    "trainer.learning_rate_scheduler": {"type": "linear_with_warmup", "warmup_steps": 2},
}

# When training is interrupted: epoch, and number of batches in it. Every fourth batch of an epoch is saved,
# and its end. The number of batches of an epoch depends on the order of sentences.
IN_FIRST_EPOCH = (0, 6)
IN_SECOND_EPOCH = (1, 10)


def train(folder: Path, **overrides: Any) -> None:
    conftest.train(folder, **{**OVERRIDES, **overrides})


def interrupt(
    folder: Path, position: Tuple[int, int], in_validation: bool = False, **overrides: Any
) -> None:
    """Train, and interrupt when the model gets a batch at or after this position."""
    with (
        interrupted_at(position, in_validation=in_validation),
        pytest.raises(KeyboardInterrupt),
    ):
        train(folder, **overrides)


def raise_keyboard_interrupt() -> None:
    raise KeyboardInterrupt


@contextlib.contextmanager
def interrupted_at(
    position: Optional[Tuple[int, int]],
    interrupt: Callable[[], None] = raise_keyboard_interrupt,
    in_validation: bool = False,
) -> Iterator[None]:
    forward = BiLMTrainingModel.forward
    epoch, num_batches, validating = 0, 0, False

    def forward_or_interrupt(model: BiLMTrainingModel, **batch: Any) -> Dict[str, torch.Tensor]:
        nonlocal epoch, num_batches, validating
        if validating and model.training:
            epoch, num_batches = epoch + 1, 0
        validating = not model.training
        if position and (epoch, num_batches) >= position and validating == in_validation:
            interrupt()
        num_batches += model.training
        return forward(model, **batch)

    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(BiLMTrainingModel, "forward", forward_or_interrupt)
        yield


def latest_checkpoint(folder: Path) -> str:
    """Return its place, such as `e1_b4`: epochs, then batches of the epoch after them."""
    names = [path.stem[len("training_state_") :] for path in folder.glob("training_state_*.th")]
    return max(names, key=lambda name: [int(part[1:]) for part in name.split("_")])


def final_state(folder: Path) -> Dict[str, Any]:
    """Return all that must be equal at the end: weights, sums of the optimizer, states of rows, metrics."""
    model = torch.load(folder / "model_state_e2_b0.th")
    training = torch.load(folder / "training_state_e2_b0.th", weights_only=False)
    workers = training["callbacks"][0].get("workers", [])
    states = [pair for worker in workers for pair in worker["model"]["states"]]
    return {
        "tensors": {
            **model,
            **{f"best {name}": tensor for name, tensor in torch.load(folder / "best.th").items()},
            **{
                f"sum {number}": sums["sum"]
                for number, sums in training["optimizer"]["state"].items()
            },
            **{f"state {number}": torch.cat(pair, 1) for number, pair in enumerate(states)},
        },
        "metrics": {
            f"{path.name} {key}": value
            for path in folder.glob("metrics*.json")
            for key, value in json.loads(path.read_text()).items()
            if not re.search("duration|per_second|memory|training_start_epoch|training_epochs", key)
        },
    }


def assert_equal(ours: Dict[str, Any], theirs: Dict[str, Any]) -> None:
    # To the bit: docs/pretrain_for_your_language.md promises it for one process, and for two on CPUs.
    assert ours["tensors"].keys() == theirs["tensors"].keys()
    for name, tensor in ours["tensors"].items():
        assert torch.equal(tensor, theirs["tensors"][name]), name
    assert ours["metrics"] == theirs["metrics"]
    for part in ("training_loss", "training_perplexity", "training_num_predictions"):
        for file in ("metrics.json", "metrics_epoch_0.json", "metrics_epoch_1.json"):
            assert f"{file} {part}" in ours["metrics"]


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Dict[str, Any]]:
    """Returns the state at the end of an uninterrupted training; trained once for the same overrides."""
    results: Dict[str, Dict[str, Any]] = {}

    def result(**overrides: Any) -> Dict[str, Any]:
        key = json.dumps(overrides)
        if key not in results:
            folder = tmp_path_factory.mktemp("uninterrupted") / "run"
            train(folder, **overrides)
            results[key] = final_state(folder)
        return results[key]

    return result


@pytest.mark.parametrize(
    "overrides, interrupts",
    [
        # Positions, and the latest checkpoint at each.
        # Two batches for each update, and for each one that counts.
        (ACCUMULATION, [(IN_SECOND_EPOCH, "e1_b4")]),
        (BFLOAT16, [(IN_SECOND_EPOCH, "e1_b8")]),
        ({**FROZEN_BILM, **FIRST_IS_BEST}, [(IN_SECOND_EPOCH, "e1_b8")]),
        # The second training counts the batches after the first checkpoint.
        ({}, [(IN_FIRST_EPOCH, "e0_b4"), (IN_FIRST_EPOCH, "e0_b9")]),
    ],
    ids=["accumulation", "bfloat16", "frozen biLM", "twice"],
)
def test_a_recovered_training_equals_an_uninterrupted_one(
    overrides: Dict[str, Any],
    interrupts: List[Tuple[Tuple[int, int], str]],
    uninterrupted: Callable[..., Dict[str, Any]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Also where they are slower than those in float32.
    monkeypatch.setattr("elmo_plugin.pretraining.model.has_bfloat16_products", lambda device: True)
    folder = tmp_path / "run"
    for number, (position, checkpoint) in enumerate(interrupts):
        interrupt(folder, position, recover=number > 0, **overrides)
        assert latest_checkpoint(folder) == checkpoint
    train(folder, recover=True, **overrides)
    assert_equal(final_state(folder), uninterrupted(**overrides))


def test_a_checkpoint_after_the_last_batch_of_an_epoch_loses_no_metrics(
    uninterrupted: Callable[..., Dict[str, Any]], tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    often = {"trainer.checkpointer.save_every_num_batches": 1}
    interrupt(folder, IN_FIRST_EPOCH, in_validation=True, **often)
    assert re.fullmatch(r"e0_b1\d", latest_checkpoint(folder))
    train(folder, recover=True, **often)
    assert_equal(final_state(folder), uninterrupted())


def test_a_training_that_ended_early_is_not_continued(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    early = {**FIRST_IS_BEST, "trainer.patience": 1, "trainer.num_epochs": 4}
    train(folder, **early)
    expected = final_state(folder)
    (folder / "metrics.json").unlink()  # killed before they were written
    train(folder, recover=True, **early)
    assert latest_checkpoint(folder) == "e2_b0"
    assert_equal(final_state(folder), expected)


def test_an_epoch_may_have_no_batch(tmp_path: Path) -> None:
    """Two rows of five words: "b b b b", "a a a", "c" fill them in the order b, a, c, but not in a, b, c."""
    callback, metrics = BiLMStateCallback(str(tmp_path)), {"training_loss": 0.0}  # the trainer's
    callback.on_start(SimpleNamespace(model=build()))
    callback.on_epoch(SimpleNamespace(), metrics, epoch=1)
    assert json.loads((tmp_path / "metrics_epoch_1.json").read_text()) == {"training_loss": 0.0}


class Killed(BaseException):
    """Nothing handles it, as in a process that is killed."""


@pytest.mark.parametrize(
    "epoch, overrides",
    [(0, FIRST_IS_BEST), (1, {})],
    ids=["first", "last"],
)
def test_a_process_killed_between_a_checkpoint_and_the_best_weights(
    epoch: int,
    overrides: Dict[str, Any],
    uninterrupted: Callable[..., Dict[str, Any]],
    tmp_path: Path,
) -> None:
    folder = tmp_path / "run"
    calls, link = itertools.count(), gradient_descent_trainer.hardlink_or_copy

    def link_or_interrupt(*arguments: Any) -> None:
        if next(calls) == epoch:
            raise Killed
        link(*arguments)

    with pytest.MonkeyPatch.context() as monkeypatch, pytest.raises(Killed):
        monkeypatch.setattr(gradient_descent_trainer, "hardlink_or_copy", link_or_interrupt)
        train(folder, **overrides)
    assert latest_checkpoint(folder) == f"e{epoch + 1}_b0"
    train(folder, recover=True, **overrides)
    expected = uninterrupted(**overrides)
    assert expected["metrics"]["metrics.json best_epoch"] == epoch  # which nothing replaces later
    assert_equal(final_state(folder), expected)


def num_page_faults() -> int:
    """Return the page faults of a tensor of 32 MiB, after a larger one is freed."""
    BiLMStateCallback("").on_start(SimpleNamespace(model=build()))
    torch.ones(2**24)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.ones(2**23)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the setting is one of glibc")
def test_freed_memory_is_kept() -> None:
    with multiprocessing.get_context("forkserver").Pool(1) as process:  # where the setting can stay
        assert process.apply(num_page_faults) < 2**25 / resource.getpagesize() / 2


def train_as_worker(rank: int, folder: Path, position: Optional[Tuple[int, int]] = None) -> None:
    """Do what each worker of `allennlp train` does, up to this position."""
    params = Params.from_file(CONFIG, json.dumps({**OVERRIDES, **OF_TWO_WORKERS}))
    prepare_environment(params)
    for key, value in {"local_rank": rank, "world_size": 2, "distributed": True}.items():
        params["trainer"][key] = value
    accelerator = TorchDdpAccelerator(local_rank=rank, world_size=2, cuda_device=-1)
    with interrupted_at(position), contextlib.suppress(KeyboardInterrupt):
        training = TrainModel.from_params(
            params=params,
            serialization_dir=str(folder),
            local_rank=rank,
            ddp_accelerator=accelerator,
        )
        metrics = training.run()
        if rank == 0:
            dump_metrics(str(folder / "metrics.json"), metrics)


def train_with_and_without_interrupt(folder: Path, rank: int) -> Dict[str, Any]:
    train_as_worker(rank, folder / "uninterrupted")
    train_as_worker(rank, folder / "run", (1, 9))
    latest = latest_checkpoint(folder / "run")
    torch.distributed.barrier()
    train_as_worker(rank, folder / "run")
    return {"latest": latest}


def test_a_recovered_training_of_two_workers_equals_an_uninterrupted_one(tmp_path: Path) -> None:
    for name in ("meeting", "run", "uninterrupted"):
        (tmp_path / name).mkdir()
    work = functools.partial(train_with_and_without_interrupt, tmp_path)
    reports = reports_of_workers(work, tmp_path / "meeting")
    assert [report["latest"] for report in reports] == ["e1_b8", "e1_b8"]
    ours, theirs = final_state(tmp_path / "run"), final_state(tmp_path / "uninterrupted")
    assert_equal(ours, theirs)
    # Of two workers, each two layers in two directions: not the same ones twice.
    states = [ours["tensors"][f"state {number}"] for number in range(8)]
    for first, second in zip(states[:4], states[4:]):
        assert not torch.equal(first, second)


def train_and_die(folder: Path, num_threads: int) -> None:
    torch.set_num_threads(num_threads)
    # The process ends itself, since a signal from outside would come at another batch each time.
    with interrupted_at(IN_SECOND_EPOCH, lambda: os.kill(os.getpid(), signal.SIGKILL)):
        train(folder)


def test_a_killed_process_is_recovered_by_another(
    uninterrupted: Callable[..., Dict[str, Any]], tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    # Not a fork of this process: it would lack the threads of torch, and wait for them. As many threads as
    # here, as the order of sums may depend on it.
    arguments = [folder, torch.get_num_threads()]
    process = multiprocessing.get_context("forkserver").Process(
        target=train_and_die, args=arguments
    )
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert latest_checkpoint(folder) == "e1_b8"
    train(folder, recover=True)
    assert_equal(final_state(folder), uninterrupted())


def test_another_number_of_workers_is_refused() -> None:
    saving, loading = BiLMStateCallback(""), BiLMStateCallback("")
    saving.on_start(SimpleNamespace(model=build()))
    state = saving.state_dict()
    loading.load_state_dict({**state, "workers": state["workers"] * 2})
    with pytest.raises(ConfigurationError, match=r"has the states of 2 workers, expected .* of 1"):
        loading.on_start(SimpleNamespace(model=build()))


def trainer_at(batch: int, value: float = 0.0, large: str = "") -> Any:
    """A trainer with a checkpoint, whose `weights` or `state` are 400 KB."""
    weights, state = (
        torch.full((100_000 if name == large else 1,), value) for name in ("weights", "state")
    )
    place = {"epochs_completed": 1, "batches_in_epoch_completed": batch}
    tracker = {"metric_tracker": {"is_best_so_far": False}}
    checkpoint = TrainerCheckpoint({"weights": weights}, {**place, **tracker, "state": state})
    return SimpleNamespace(get_checkpoint_state=lambda: checkpoint)


@pytest.mark.parametrize("large", ["weights", "state"])
def test_a_failed_write_is_reported_and_leaves_the_previous_checkpoint(
    large: str, tmp_path: Path
) -> None:
    AtomicCheckpointer(tmp_path).save_checkpoint(trainer_at(0))
    # The reason, which torch hides.
    with file_size_limit(3_000), pytest.raises(OSError, match=r"File too large"):
        AtomicCheckpointer(tmp_path).save_checkpoint(trainer_at(4, 1.0, large))
    # The training state may fit, but without weights it is no checkpoint.
    assert not list(tmp_path.glob("*model_state_e1_b4*"))
    checkpoint = AtomicCheckpointer(tmp_path).load_checkpoint()
    assert checkpoint.model_state["weights"].item() == checkpoint.trainer_state["state"].item() == 0


def test_an_interrupt_while_a_checkpoint_is_written_does_not_end_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    AtomicCheckpointer(tmp_path).save_checkpoint(trainer_at(0))

    def interrupted(writer: Any, *arguments: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(torch.serialization._open_zipfile_writer_buffer, "__exit__", interrupted)
        AtomicCheckpointer(tmp_path).save_checkpoint(trainer_at(4, 1.0))
    checkpoint = AtomicCheckpointer(tmp_path).load_checkpoint()
    assert checkpoint.model_state["weights"].item() == 0


def test_a_checkpoint_replaces_those_of_another_training_and_of_a_killed_process(
    tmp_path: Path,
) -> None:
    AtomicCheckpointer(tmp_path).save_checkpoint(trainer_at(0, 1.0))
    for name in (".model_state_e0_b4.th.abc", ".training_state_e0_b4.th.abc", ".best.th.swp"):
        (tmp_path / name).write_bytes(b"half")
    AtomicCheckpointer(tmp_path).save_checkpoint(trainer_at(0, 2.0))
    names = {"model_state_e1_b0.th", "training_state_e1_b0.th", ".best.th.swp"}
    assert {path.name for path in tmp_path.iterdir()} == names
    checkpoint = AtomicCheckpointer(tmp_path).load_checkpoint()
    assert checkpoint.model_state["weights"].item() == checkpoint.trainer_state["state"].item() == 2
