"""Requests that arrive together are answered together, and each gets its own answer."""

import asyncio
import threading
from typing import Any, Callable, List

import pytest

from elmo_plugin.serving.batcher import Batcher, NoAnswerInTimeError, QueueFullError
from elmo_plugin.serving.limits import Limits


class Doubling:
    """Answers numbers with their doubles, once it may; remembers the batches."""

    def __init__(self) -> None:
        self.batches: List[List[int]] = []
        self.threads: List[str] = []
        self.may_run = threading.Event()
        self.may_run.set()

    def __call__(self, batch: List[int]) -> List[Any]:
        self.batches.append(list(batch))
        self.threads.append(threading.current_thread().name)
        assert self.may_run.wait(20)
        if 13 in batch:
            raise RuntimeError("13 is a bug")
        return [ValueError(number) if number < 0 else 2 * number for number in batch]


def run(limits: Limits, model: Callable[..., Any], use: Callable[[Batcher], Any]) -> Any:
    """The result of `use`, which gets a batcher that has started."""

    async def started() -> Any:
        batcher = Batcher("doubling", model, limits)
        batcher.start()
        try:
            return await use(batcher)
        finally:
            await batcher.stop()

    return asyncio.run(started())


async def all_of(batcher: Batcher, numbers: List[int]) -> List[Any]:
    return await asyncio.gather(*map(batcher.answer, numbers), return_exceptions=True)


def test_requests_that_arrive_while_a_batch_runs_are_the_next_one() -> None:
    model = Doubling()

    async def use(batcher: Batcher) -> List[Any]:
        model.may_run.clear()
        first = asyncio.create_task(batcher.answer(1))
        while not model.batches:
            await asyncio.sleep(0.001)
        others = asyncio.create_task(all_of(batcher, list(range(2, 12))))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert batcher.num_waiting == 10
        model.may_run.set()
        answers = [await first, *await others]
        assert (batcher.num_waiting, batcher.num_batches, batcher.num_answered) == (0, 4, 11)
        return answers

    assert run(Limits(max_batch=4), model, use) == [2 * number for number in range(1, 12)]
    assert model.batches == [[1], [2, 3, 4, 5], [6, 7, 8, 9], [10, 11]]
    assert len(set(model.threads)) == 1


def test_an_error_of_one_request_is_no_error_of_the_others() -> None:
    model = Doubling()
    answers = run(Limits(), model, lambda batcher: all_of(batcher, [1, -2, 13, 4]))
    assert answers[0] == 2 and answers[3] == 8
    assert isinstance(answers[1], ValueError)
    assert isinstance(answers[2], RuntimeError)
    # The batch that raised is answered one by one.
    assert model.batches == [[1, -2, 13, 4], [1], [-2], [13], [4]]


def test_a_full_queue_refuses_requests_and_then_accepts_them_again() -> None:
    model = Doubling()

    async def use(batcher: Batcher) -> None:
        model.may_run.clear()
        first = asyncio.create_task(batcher.answer(1))
        while not model.batches:
            await asyncio.sleep(0.001)
        waiting = asyncio.create_task(all_of(batcher, [2, 3]))
        await asyncio.sleep(0.01)
        with pytest.raises(QueueFullError):
            await batcher.answer(4)
        model.may_run.set()
        assert [await first, await waiting, await batcher.answer(4)] == [2, [4, 6], 8]

    run(Limits(max_waiting=2), model, use)


def test_a_request_whose_time_is_over_leaves_the_queue() -> None:
    model = Doubling()

    async def use(batcher: Batcher) -> None:
        model.may_run.clear()
        late = asyncio.create_task(all_of(batcher, [1]))
        while not model.batches:
            await asyncio.sleep(0.001)
        assert isinstance((await all_of(batcher, [2]))[0], NoAnswerInTimeError)
        assert batcher.num_waiting == 0
        assert isinstance((await late)[0], NoAnswerInTimeError)
        model.may_run.set()
        assert await batcher.answer(3) == 6

    run(Limits(timeout=0.1), model, use)
    assert model.batches == [[1], [3]]


@pytest.mark.parametrize("name", ["max_body", "max_tokens", "max_batch", "max_waiting", "timeout"])
@pytest.mark.parametrize("value", [0, -1, float("nan")])
def test_limits_are_positive(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"--{name.replace('_', '-')}: found {value}, expected"):
        Limits(**{name: value})
