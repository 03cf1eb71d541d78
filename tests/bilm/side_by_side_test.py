import multiprocessing
import os
import threading
from dataclasses import replace
from typing import Any, Callable, Iterator, List

import pytest
import torch
from torch import Tensor

from elmo_plugin import BiLM, batch_to_ids
from elmo_plugin.bilm import lstm_steps, side_by_side
from elmo_plugin.bilm.side_by_side import map_side_by_side
from tests.conftest import SENTENCES, TINY_OPTIONS, randomize


@pytest.fixture(autouse=True)
def two_threads() -> Iterator[None]:
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(1)


def test_calls_run_at_the_same_time_each_with_its_share_of_the_threads() -> None:
    meeting = threading.Barrier(2, timeout=120)

    def call(number: int) -> int:
        meeting.wait()  # for the other one
        assert torch.get_num_threads() == 1
        return 10 * number

    assert map_side_by_side(call, [1, 2], True) == [10, 20]
    assert torch.get_num_threads() == 2
    seen: List[int] = []
    thread = threading.Thread(target=lambda: seen.append(torch.get_num_threads()))
    thread.start()
    thread.join()
    assert seen == [2]


def test_on_one_core_they_follow_one_another() -> None:
    torch.set_num_threads(1)
    caller = threading.get_ident()
    assert map_side_by_side(lambda _: threading.get_ident(), [1, 2], True) == [caller, caller]


def test_little_work_is_done_one_after_the_other() -> None:
    caller = threading.get_ident()
    assert map_side_by_side(lambda _: threading.get_ident(), [1, 2], False) == [caller, caller]


def test_a_small_lstm_is_little_work_and_a_large_one_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: List[bool] = []

    def record(function: Any, arguments: Any, is_worthwhile: bool) -> Any:
        asked.append(is_worthwhile)
        return map_side_by_side(function, arguments, is_worthwhile)

    monkeypatch.setattr(lstm_steps, "map_side_by_side", record)
    for rows, expected in ((1, False), (64, True)):
        options = replace(TINY_OPTIONS, cell_size=64, projection_dim=64)
        # Equal sentences would be read once.
        sentences = [["rain", str(row), "rain"] for row in range(rows)]
        BiLM(options, kernel="reference").requires_grad_(False)(batch_to_ids(sentences))
        assert set(asked) == {expected}
        asked.clear()


def test_an_error_reaches_the_caller_and_the_next_calls_run() -> None:
    def call(number: int) -> int:
        if number == 2:
            raise ValueError("not two")
        return number

    with pytest.raises(ValueError, match=r"not two"):
        map_side_by_side(call, [1, 2], True)
    assert map_side_by_side(call, [3, 4], True) == [3, 4]


@pytest.fixture
def threads_for_all_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lstm_steps, "MULTIPLICATIONS_WORTH_THREADS", 0)
    # In C++ there is nothing for threads of Python to do.
    monkeypatch.setattr(lstm_steps, "training_unit", lambda inputs, product_type: None)


@pytest.mark.usefixtures("threads_for_all_work")
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, torch.enable_grad])
def test_the_mode_of_the_caller_holds(mode: Callable[[], Any]) -> None:
    bilm = randomize(BiLM(TINY_OPTIONS))
    character_ids = batch_to_ids(SENTENCES)
    torch.set_num_threads(1)
    with mode():
        expected = bilm(character_ids)["activations"]
    torch.set_num_threads(2)
    with mode():
        activations = bilm(character_ids)["activations"]
    for ours, theirs in zip(activations, expected):
        assert torch.allclose(ours, theirs, atol=1e-6)
        assert ours.requires_grad == theirs.requires_grad
        assert ours.is_inference() == theirs.is_inference()


@pytest.mark.usefixtures("threads_for_all_work")
def test_gradients_are_those_of_one_after_the_other() -> None:
    character_ids = batch_to_ids(SENTENCES)
    gradients: List[List[Tensor]] = []
    for num_threads in (1, 2):
        torch.set_num_threads(num_threads)
        bilm = randomize(BiLM(TINY_OPTIONS))
        sum(layer.square().sum() for layer in bilm(character_ids)["activations"]).backward()
        gradients.append([parameter.grad for parameter in bilm.parameters()])
    for alone, together in zip(*gradients):
        assert torch.allclose(alone, together, rtol=1e-4, atol=1e-4)


def _run_in_child() -> None:
    torch.set_num_threads(2)
    os._exit(0 if map_side_by_side(lambda number: number, [1, 2], True) == [1, 2] else 1)


def test_a_forked_process_starts_threads_of_its_own() -> None:
    map_side_by_side(lambda number: number, [1, 2], True)
    child = multiprocessing.get_context("fork").Process(target=_run_in_child)
    child.start()
    child.join(timeout=120)
    assert child.exitcode == 0


def test_threads_are_started_once() -> None:
    map_side_by_side(lambda number: number, [1, 2], True)
    misses = side_by_side._workers.cache_info().misses
    map_side_by_side(lambda number: number, [1, 2], True)
    assert side_by_side._workers.cache_info().misses == misses
