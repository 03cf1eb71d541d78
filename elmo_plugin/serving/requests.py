"""
What happens to a request before a model sees it: checks of its host, its size and the length of its texts,
and the queue from which requests are answered in batches.
"""

import asyncio
import ipaddress
import traceback
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from typing import (
    Any,
    AsyncIterator,
    Callable,
    Dict,
    Iterable,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Sequence,
    Tuple,
)
from urllib.parse import urlsplit

from elmo_plugin.errors import ConfigurationError, one_line
from elmo_plugin.files.text import is_unicode
from elmo_plugin.serving.options import MAX_SRL_TOKENS, Limits

# Characters between white space. spaCy's tokenizer takes quadratic time for a word that it must split: 20 ms
# for 500 brackets, minutes for 65,000.
MAX_WORD_CHARACTERS = 300

_CHARACTERS_PER_TOKEN = 20  # more than the average of any text, with spaces


class RequestError(ConfigurationError):
    """A request that is refused, with the HTTP status of the answer."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def error_response(status: int, message: str, headers: Optional[Mapping[str, str]] = None) -> Any:
    """Return a `JSONResponse` with the one key `error`, whose value is one line."""
    from starlette.responses import JSONResponse

    return JSONResponse({"error": one_line(message)}, status, headers)


def check_length(
    key: str, value: Any, tokenize: Callable[[str], Sequence[Any]], limits: Limits
) -> None:
    """
    Raise `RequestError` with status 413 if a value of a request is too long: a text, a list of words, or a
    list of such lists. Values of other types pass, since the task checks them. Characters are checked before
    `tokenize` is called.
    """
    if isinstance(value, list):
        num_tokens = sum(len(item) if isinstance(item, list) else 1 for item in value)
    elif isinstance(value, str):
        if not is_unicode(value):  # which the task refuses, and spaCy does not accept
            return
        longest = max(map(len, value.split()), default=0)
        if longest > MAX_WORD_CHARACTERS:
            raise RequestError(
                413,
                f"{key} has a word of {longest:,} characters, expected at most {MAX_WORD_CHARACTERS}. "
                "Separate words by spaces.",
            )
        _check_number(key, len(value), "characters", _CHARACTERS_PER_TOKEN * limits.max_tokens)
        # A token has at least one character.
        num_tokens = len(tokenize(value)) if len(value) > limits.max_tokens else 0
    else:
        return
    _check_number(key, num_tokens, "tokens", limits.max_tokens)


def _check_number(key: str, found: int, unit: str, maximum: int) -> None:
    if found > maximum:
        raise RequestError(
            413,
            f"{key} has {found:,} {unit}, expected at most {maximum:,}. Send it in parts, or start the "
            f"server with a larger --max-tokens (semantic roles: at most {MAX_SRL_TOKENS}).",
        )


class RequestChecks:
    """
    ASGI middleware that refuses unacceptable requests. It passes on others with their whole body, and with
    the type of JSON, whatever type they name (`curl -d` names another one). `allowed_hosts` are names that
    a request can address, besides localhost and IP addresses, and of sites whose pages can send requests.
    All checks of who may use the server belong here: routes run when the body has been read, and
    `/openapi.json` is none of them.
    """

    def __init__(self, app: Any, limits: Limits, allowed_hosts: Sequence[str]) -> None:
        self._app = app
        self._limits = limits
        self._allowed_hosts = {host.lower() for host in allowed_hosts}

    async def __call__(self, scope: Dict[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        host, origin = (headers.get(key, b"").decode("latin-1") for key in (b"host", b"origin"))
        try:
            self._check_host(host, origin)
            body = await asyncio.wait_for(self._read_body(receive), self._limits.timeout)
        except RequestError as error:
            await error_response(error.status, error.message)(scope, receive, send)
            return
        except asyncio.TimeoutError:
            await error_response(408, "The body did not arrive in time.")(scope, receive, send)
            return
        messages = iter([{"type": "http.request", "body": body}])

        async def receive_again() -> Any:
            return next(messages, None) or await receive()

        headers[b"content-type"] = b"application/json"
        await self._app({**scope, "headers": list(headers.items())}, receive_again, send)

    def _check_host(self, host: str, origin: str) -> None:
        """
        Check the host that a request addresses, and the origin of the page that sends it. Without this a page
        of another site could use the models, and read answers by a name that the site makes resolve to this
        server's address (DNS rebinding, which needs a name: an IP address is always accepted).
        """
        name = _host_name(host)
        if name not in self._allowed_hosts and name != "localhost" and not _is_ip_address(name):
            raise RequestError(
                403,
                f"The host '{host[:80]}' is not served here. Use the address at which the server listens, or "
                "start it with --allowed-host and this name.",
            )
        authority = origin.partition("//")[2]
        if origin and authority != host and _host_name(authority) not in self._allowed_hosts:
            raise RequestError(
                403,
                f"Pages of '{origin[:80]}' cannot use this server. Start it with --allowed-host and the name "
                "of the site, if this is the site's own server.",
            )

    async def _read_body(self, receive: Any) -> bytes:
        """Return the body. Read no more of it than is accepted."""
        body = bytearray()
        more_body = True
        while more_body:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise RequestError(400, "The body did not arrive.")  # nobody reads this answer
            body += message.get("body", b"")
            if len(body) > self._limits.max_body:
                raise RequestError(
                    413,
                    f"The body is larger than {self._limits.max_body:,} bytes. Send the text in parts, "
                    "or start the server with a larger --max-body.",
                )
            more_body = message.get("more_body", False)
        return bytes(body)


def _host_name(authority: str) -> str:
    """Return the host without its port, in lower case; an empty text if there is none."""
    try:
        return (urlsplit(f"//{authority}").hostname or "").rstrip(".")
    except ValueError:  # such as an open bracket
        return ""


def _is_ip_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


class _Request(NamedTuple):
    item: Any
    answer: "asyncio.Future[Any]"  # its result can be an exception: a future refuses to hold a StopIteration


class Batcher:
    """
    A queue of requests, and one thread that answers them. The thread takes as many waiting requests as fit in
    a batch, the oldest first, and does not wait for more: a single request has no delay, and the more
    requests there are, the larger the batches.

    `answer_batch` returns for each request its answer, or the exception to raise for it. If it raises, the
    requests are answered one by one, so that only those fail for which it raises again.
    """

    def __init__(self, answer_batch: Callable[[List[Any]], Iterable[Any]], limits: Limits) -> None:
        self._answer_batch = answer_batch
        self._limits = limits
        self._waiting: deque[_Request] = deque()
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
            # A traceback keeps what its frames hold, such as the tensors that filled the memory of a GPU.
            traceback.clear_frames(error.__traceback__)
            if len(current) == 1:
                return [(current[0], error)]
            return [pair for request in current for pair in self._answers([request])]
