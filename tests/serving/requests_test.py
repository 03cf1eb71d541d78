"""Requests that arrive together are answered together, and each gets its own answer."""

import asyncio
import threading
import weakref
from typing import Any, Callable, List

import numpy
import pytest

from elmo_plugin.serving.options import Limits
from elmo_plugin.serving.requests import Batcher, RequestError

BUG, STOP, TOO_FEW = 13, 14, 15


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
        if BUG in batch:
            raise RuntimeError("a bug")
        if STOP in batch:
            raise StopIteration
        answers = [ValueError(number) if number < 0 else 2 * number for number in batch]
        return answers[: -1 if TOO_FEW in batch else None]

    async def has_started(self) -> None:
        while not self.batches:
            await asyncio.sleep(0.001)


@pytest.fixture
def end_time(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Ends the time of all requests that wait for their answer, whatever the clock says."""
    waiting: List[asyncio.Event] = []

    async def wait_for(future: "asyncio.Future[Any]", timeout: float) -> Any:
        assert timeout == Limits().timeout
        waiting.append(asyncio.Event())
        end = asyncio.create_task(waiting[-1].wait())
        await asyncio.wait([future, end], return_when=asyncio.FIRST_COMPLETED)
        end.cancel()
        if future.done():
            return future.result()
        future.cancel()
        raise asyncio.TimeoutError

    def end() -> None:
        for event in waiting:
            event.set()

    monkeypatch.setattr(asyncio, "wait_for", wait_for)
    return end


def run(limits: Limits, model: Callable[..., Any], use: Callable[[Batcher], Any]) -> Any:
    """The result of `use`, which gets a batcher that has started."""

    async def started() -> Any:
        batcher = Batcher(model, limits)
        async with batcher.running():
            return await use(batcher)

    return asyncio.run(started())


async def all_of(batcher: Batcher, numbers: List[int]) -> List[Any]:
    return await asyncio.gather(*map(batcher.answer, numbers), return_exceptions=True)


def statuses(answers: List[Any]) -> List[Any]:
    return [
        answer.status if isinstance(answer, RequestError) else type(answer) for answer in answers
    ]


def test_requests_that_arrive_while_a_batch_runs_are_the_next_one() -> None:
    model = Doubling()

    async def use(batcher: Batcher) -> List[Any]:
        model.may_run.clear()
        first = asyncio.create_task(batcher.answer(1))
        await model.has_started()
        others = asyncio.create_task(all_of(batcher, [*range(2, 12)]))
        await asyncio.sleep(0.01)
        model.may_run.set()
        return [await first, *await others]

    assert run(Limits(max_batch=4), model, use) == [2 * number for number in range(1, 12)]
    assert model.batches == [[1], [2, 3, 4, 5], [6, 7, 8, 9], [10, 11]]
    assert len(set(model.threads)) == 1


@pytest.mark.parametrize("number", [BUG, STOP, TOO_FEW])
def test_an_error_of_one_request_is_no_error_of_the_others(number: int) -> None:
    model = Doubling()

    async def use(batcher: Batcher) -> List[Any]:
        return [*await all_of(batcher, [1, -2, number, 4]), await batcher.answer(5)]

    answers = run(Limits(timeout=5.0), model, use)
    assert (answers[0], answers[3], answers[4]) == (2, 8, 10)
    error = ValueError if number == TOO_FEW else RuntimeError
    assert statuses(answers[1:3]) == [ValueError, error]
    # The batch that raised is answered one by one.
    assert model.batches == [[1, -2, number, 4], [1], [-2], [number], [4], [5]]


def test_a_request_whose_time_is_over_leaves_the_queue(end_time: Callable[[], None]) -> None:
    model = Doubling()

    async def use(batcher: Batcher) -> None:
        model.may_run.clear()
        late = asyncio.create_task(all_of(batcher, [1]))
        await model.has_started()
        # One waits at a time, and when its time is over its place is free again.
        answers = []
        for numbers in ([2, 3], [5]):
            waiting = asyncio.create_task(all_of(batcher, numbers))
            await asyncio.sleep(0.01)
            end_time()
            answers += await waiting
        assert statuses(answers) == [504, 429, 504]
        assert statuses(await late) == [504]
        model.may_run.set()
        assert await batcher.answer(4) == 8

    run(Limits(max_waiting=1), model, use)
    assert model.batches == [[1], [4]]


def test_a_request_whose_time_is_over_is_not_computed_again_after_an_error(
    end_time: Callable[[], None],
) -> None:
    model = Doubling()

    async def use(batcher: Batcher) -> None:
        model.may_run.clear()
        late = asyncio.create_task(all_of(batcher, [1, BUG, 2]))
        await model.has_started()
        end_time()
        assert statuses(await late) == [504] * 3
        model.may_run.set()
        assert await batcher.answer(3) == 6

    run(Limits(), model, use)
    assert model.batches == [[1, BUG, 2], [3]]


def test_a_failed_batch_does_not_keep_its_memory() -> None:
    """As the tensors of a batch that filled a GPU, while its requests are answered one by one."""
    held: List[weakref.ref] = []

    def model(numbers: List[int]) -> List[int]:
        memory = numpy.empty(10)
        assert not any(one() is not None for one in held), "the memory of an earlier call is held"
        held.append(weakref.ref(memory))
        if len(numbers) > 1:
            raise MemoryError
        return numbers

    answers = run(Limits(), model, lambda batcher: all_of(batcher, [1, 2, 3]))
    assert answers == [1, 2, 3] and len(held) == 4
