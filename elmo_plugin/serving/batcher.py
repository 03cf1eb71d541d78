"""Answers requests in batches: those that arrive while a batch runs are the next one."""

import asyncio
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Callable, Deque, List, NamedTuple, Optional, Sequence

from elmo_plugin.serving.limits import Limits


class QueueFullError(Exception):
    """As many requests wait as may wait."""


class NoAnswerInTimeError(Exception):
    """A request had no answer when its time was over."""


class _Request(NamedTuple):
    item: Any
    answer: "asyncio.Future[Any]"


class Batcher:
    """
    A queue of requests, and one thread that answers them. The thread takes as many of those that wait as fit
    in a batch, the oldest first, and does not wait for more: alone, a request has no delay, and the more
    there are, the larger the batches.

    All methods are called in the event loop's thread.

    # Parameters

    name : `str`
        Name of the thread.
    answer_batch : `Callable[[List[Any]], Sequence[Any]]`
        Returns for each request its answer, or the exception that it ends with. If it raises, the requests
        are answered one by one, so that only one with which it raises again ends with the exception.
    limits : `Limits`
        `max_batch`, `max_waiting` and `timeout` are used.
    """

    def __init__(
        self, name: str, answer_batch: Callable[[List[Any]], Sequence[Any]], limits: Limits
    ) -> None:
        self._answer_batch = answer_batch
        self._limits = limits
        self._waiting: Deque[_Request] = deque()
        self._arrived = asyncio.Event()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=name)
        self._worker: Optional[asyncio.Task[None]] = None
        self.num_batches = 0
        self.num_answered = 0

    @property
    def num_waiting(self) -> int:
        """Number of requests in the queue, without those of the batch that runs."""
        return len(self._waiting)

    def start(self) -> None:
        """Start to answer."""
        self._worker = asyncio.create_task(self._work())

    async def stop(self) -> None:
        """Stop. Requests that wait are not answered, and a batch that runs ends in its thread."""
        if self._worker is not None:
            self._worker.cancel()
            with suppress(asyncio.CancelledError):
                await self._worker
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def answer(self, item: Any) -> Any:
        """
        Return the answer to a request.

        # Raises

        `QueueFullError`, `NoAnswerInTimeError`, and the exception that `answer_batch` returns for it.
        """
        if len(self._waiting) >= self._limits.max_waiting:
            raise QueueFullError
        request = _Request(item, asyncio.get_running_loop().create_future())
        self._waiting.append(request)
        self._arrived.set()
        try:
            # Cancels the future when the time is over.
            return await asyncio.wait_for(request.answer, self._limits.timeout)
        except asyncio.TimeoutError as error:
            raise NoAnswerInTimeError from error
        finally:
            if request.answer.cancelled():
                with suppress(ValueError):  # it is no longer in the queue
                    self._waiting.remove(request)

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._arrived.wait()
            num_requests = min(len(self._waiting), self._limits.max_batch)
            batch = [self._waiting.popleft() for _ in range(num_requests)]
            if not self._waiting:
                self._arrived.clear()
            if not batch:
                continue  # the time of those that arrived is over
            items = [request.item for request in batch]
            answers = await loop.run_in_executor(self._thread, self._answers, items)
            self.num_batches += 1
            self.num_answered += len(batch)
            for request, answer in zip(batch, answers):
                if request.answer.done():
                    continue  # its time is over
                if isinstance(answer, Exception):
                    request.answer.set_exception(answer)
                else:
                    request.answer.set_result(answer)

    def _answers(self, items: List[Any]) -> Sequence[Any]:
        try:
            return self._answer_batch(items)
        except Exception as error:
            if len(items) == 1:
                return [error]
            return [answer for item in items for answer in self._answers([item])]
