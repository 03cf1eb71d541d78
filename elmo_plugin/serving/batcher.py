"""Answer requests in batches: those that arrive while a batch runs are the next batch."""

import asyncio
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from typing import Any, AsyncIterator, Callable, Deque, List, NamedTuple, Sequence, Tuple

from elmo_plugin.serving.options import Limits
from elmo_plugin.serving.request_checks import RequestError


class _Request(NamedTuple):
    item: Any
    answer: "asyncio.Future[Any]"  # its result can be an exception: a future refuses to hold a StopIteration


class Batcher:
    """
    A queue of requests, and one thread that answers them. The thread takes as many waiting requests as fit in
    a batch, the oldest first, and does not wait for more: a single request has no delay, and the more
    requests there are, the larger the batches.

    # Parameters

    answer_batch : `Callable[[List[Any]], Sequence[Any]]`
        Returns for each request its answer, or the exception to raise for it. If it raises, the requests are
        answered one by one, so that only those fail for which it raises again.
    limits : `Limits`
        `max_batch`, `max_waiting` and `timeout` are used.
    """

    def __init__(self, answer_batch: Callable[[List[Any]], Sequence[Any]], limits: Limits) -> None:
        self._answer_batch = answer_batch
        self._limits = limits
        self._waiting: Deque[_Request] = deque()
        self._arrived = asyncio.Event()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Answer within the context. At its end a batch that runs ends in its thread."""
        thread = ThreadPoolExecutor(max_workers=1)
        worker = asyncio.create_task(self._work(thread))
        try:
            yield
        finally:
            worker.cancel()
            thread.shutdown(wait=False, cancel_futures=True)

    async def answer(self, item: Any) -> Any:
        """
        Return the answer to a request.

        # Raises

        `RequestError` with status 429 if the queue is full, and 504 if there is no answer in time: the
        request is then not computed, unless its batch runs already. Other exceptions of `answer_batch`.
        """
        if len(self._waiting) >= self._limits.max_waiting:
            raise RequestError(429, "Too many requests wait. Try again later.")
        request = _Request(item, asyncio.get_running_loop().create_future())
        self._waiting.append(request)
        self._arrived.set()
        try:
            # Cancels the future when the time is over.
            answer = await asyncio.wait_for(request.answer, self._limits.timeout)
        except asyncio.TimeoutError as error:
            raise RequestError(
                504, "No answer in time. Try again later, or send less text."
            ) from error
        finally:
            if request.answer.cancelled():
                with suppress(ValueError):  # it has left the queue
                    self._waiting.remove(request)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def _work(self, thread: ThreadPoolExecutor) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._arrived.wait()
            num_requests = min(len(self._waiting), self._limits.max_batch)
            batch = [self._waiting.popleft() for _ in range(num_requests)]
            if not self._waiting:
                self._arrived.clear()
            for request, answer in await loop.run_in_executor(thread, self._answers, batch):
                if not request.answer.done():  # its time may be over
                    request.answer.set_result(answer)

    def _answers(self, batch: Sequence[_Request]) -> List[Tuple[_Request, Any]]:
        """Compute the answers to those requests that somebody still waits for."""
        current = [request for request in batch if not request.answer.done()]
        if not current:
            return []
        try:
            answers = self._answer_batch([request.item for request in current])
            return list(zip(current, answers, strict=True))
        except Exception as error:
            if len(current) == 1:
                return [(current[0], error)]
            return [pair for request in current for pair in self._answers([request])]
