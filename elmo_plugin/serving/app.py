"""The routes of the server, and its errors: each is a JSON object with one line, `error`."""

import asyncio
import time
from contextlib import asynccontextmanager
from importlib import resources
from typing import TYPE_CHECKING, Any, AsyncIterator, Callable, Dict, List, Optional, Sequence

from elmo_plugin import __version__
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.files.json_input import parse_json_object
from elmo_plugin.serving.batcher import Batcher, NoAnswerInTimeError, QueueFullError
from elmo_plugin.serving.limits import Limits, TextTooLongError
from elmo_plugin.serving.metrics import Metrics
from elmo_plugin.serving.pages import documentation_page, html_headers
from elmo_plugin.serving.senses import REQUEST_SCHEMA, SenseFinder, SensesRequest
from elmo_plugin.serving.served_model import ServedModel

# This module is imported without FastAPI too, by --include-package: functions import it.
if TYPE_CHECKING:
    from fastapi import FastAPI
    from fastapi.responses import JSONResponse
    from starlette.requests import Request

# Name of the batcher of nearest occurrences; no model can have it.
SENSES = "neighbors of words"

_ABOUT = """\
Task models with ELMo, and nearest occurrences of words in context.
Bodies are JSON in UTF-8, and so are answers. An error is {"error": "one line that says what is wrong"}.\
"""
_STATUSES = {
    400: "The body is not JSON in UTF-8.",
    404: "There is no such model.",
    408: "The body did not arrive in time.",
    413: "The body is too large, or its text has too many tokens.",
    422: "The JSON is not what was expected.",
    429: "Too many requests wait for the model. Try again later.",
    500: "An error of the server, which its log describes.",
    504: "No answer in time.",
}
_ERROR_SCHEMA = {
    "type": "object",
    "required": ["error"],
    "properties": {"error": {"type": "string", "description": "What is wrong, in one line."}},
}


class RequestError(Exception):
    """
    A request is answered with an error.

    # Parameters

    status : `int`
        Of the answer.
    message : `str`
        What is wrong.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def make_app(
    models: Sequence[ServedModel], senses: Optional[SenseFinder], limits: Limits
) -> "FastAPI":
    """
    Return the application.

    # Parameters

    models : `Sequence[ServedModel]`
        The task models.
    senses : `SenseFinder`, optional
        Finds nearest occurrences. Without it the route is not there.
    limits : `Limits`
        What is accepted.
    """
    from fastapi import FastAPI, Query, Request
    from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse

    by_name = {model.name: model for model in models}
    batchers = {name: Batcher(name, model.answers, limits) for name, model in by_name.items()}
    if senses is not None:
        batchers[SENSES] = Batcher(SENSES, senses.answers, limits)
    metrics = Metrics()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        for batcher in batchers.values():
            batcher.start()
        yield
        for batcher in batchers.values():
            await batcher.stop()

    app = FastAPI(
        title="elmo serve",
        description=_ABOUT,
        version=__version__,
        lifespan=lifespan,
        # FastAPI's load scripts from the network.
        docs_url=None,
        redoc_url=None,
        # They would answer with a redirection to an address that the host header names.
        redirect_slashes=False,
    )
    app.add_middleware(_Measured, metrics=metrics)
    _add_error_handlers(app)
    page = resources.files("elmo_plugin.serving").joinpath("page.html").read_text("utf-8")
    page_headers = html_headers(page)

    @app.head("/", include_in_schema=False)
    @app.get("/", include_in_schema=False)
    async def show_page() -> HTMLResponse:
        return HTMLResponse(page, headers=page_headers)

    @app.get("/docs", include_in_schema=False)
    async def show_documentation() -> HTMLResponse:
        documentation = documentation_page(app.openapi())
        return HTMLResponse(documentation, headers=html_headers(documentation))

    @app.get(
        "/api/models",
        summary="The models that are served, and what they expect",
        response_description="Of each model: task, an example of the input, learned layer weights, card.",
    )
    async def list_models() -> Dict[str, Any]:
        return {
            "models": [model.description() for model in models],
            "neighbors": None if senses is None else senses.description(),
            "limits": {"body": limits.max_body, "tokens": limits.max_tokens},
            "version": __version__,
        }

    @app.post(
        "/api/models/{name}/predict",
        summary="The answer of a model",
        response_description="The answer, whose keys depend on the task.",
        description="The body is what a line for the command elmo predict is. Its keys depend on the task, "
        "see the example in /api/models. The answer is that of the command, too.",
        responses=_errors(400, 404, 408, 413, 422, 429, 500, 504),
        openapi_extra=_body({"type": "object", "example": {"sentence": "Ada lived in London."}}),
    )
    async def predict(
        request: Request,
        name: str,
        html: bool = Query(
            False,
            description="Add a key html: pieces of the text in which what was found is marked.",
        ),
    ) -> JSONResponse:
        if name not in by_name:
            raise RequestError(
                404, f"There is no model '{name[:40]}', expected one of {', '.join(by_name)}."
            )
        model = by_name[name]
        inputs = await _read_object(request, limits)
        answer = await batchers[name].answer(inputs)
        if html:
            answer = {**answer, "html": model.highlights(inputs, answer)}
        return JSONResponse(answer)

    if senses is not None:

        @app.post(
            "/api/neighbors",
            summary="Nearest occurrences of a word in context",
            response_description="The occurrences, the nearest first, each with its cosine similarity.",
            description=SensesRequest.__doc__,
            responses=_errors(400, 408, 413, 422, 429, 500, 504),
            openapi_extra=_body(REQUEST_SCHEMA),
        )
        async def find_neighbors(request: Request) -> JSONResponse:
            wanted = SensesRequest.from_json(await _read_object(request, limits))
            return JSONResponse(await batchers[SENSES].answer(wanted))

    @app.head("/health", include_in_schema=False)
    @app.get("/health", summary="Whether the server runs", response_description="It runs.")
    async def health() -> Dict[str, str]:
        return {"status": "ok"}

    @app.get(
        "/metrics",
        summary="Counts, as text that Prometheus reads",
        response_description="Requests, batches, times and memory.",
        response_class=PlainTextResponse,
    )
    async def show_metrics() -> PlainTextResponse:
        text = metrics.text(batchers)
        return PlainTextResponse(text, media_type="text/plain; version=0.0.4")

    return app


async def _read_body(request: "Request", limits: Limits) -> bytes:
    """Return the body, and read no more of it than is accepted."""
    from starlette.requests import ClientDisconnect

    too_large = RequestError(
        413, f"The body is larger than {limits.max_body:,} bytes. Send the text in parts."
    )
    announced = request.headers.get("content-length", "")
    if announced.isdecimal() and int(announced) > limits.max_body:
        raise too_large

    async def read() -> bytes:
        body = bytearray()
        async for chunk in request.stream():
            body += chunk
            if len(body) > limits.max_body:
                raise too_large
        return bytes(body)

    try:
        return await asyncio.wait_for(read(), limits.timeout)
    except asyncio.TimeoutError as error:
        raise RequestError(408, "The body did not arrive in time.") from error
    except ClientDisconnect as error:  # Nobody reads the answer.
        raise RequestError(400, "The body did not arrive.") from error


async def _read_object(request: "Request", limits: Limits) -> Dict[str, Any]:
    """Return the JSON object that the body is."""
    body = await _read_body(request, limits)
    try:
        return parse_json_object(body.decode("utf-8"), '{"sentence": "A good film."}')
    except UnicodeDecodeError as error:
        raise RequestError(
            400,
            f"The body is not UTF-8 ({error.reason} at byte {error.start}). Encode it as UTF-8.",
        ) from error
    except ConfigurationError as error:
        raise RequestError(400, str(error)) from error


def _add_error_handlers(app: "FastAPI") -> None:
    from fastapi import Request
    from fastapi.exceptions import RequestValidationError
    from fastapi.responses import JSONResponse
    from starlette.exceptions import HTTPException

    async def for_request(request: Request, error: Any) -> JSONResponse:
        return _error(error.status, str(error))

    async def for_http(request: Request, error: Any) -> JSONResponse:
        message = str(error.detail)
        if error.status_code == 404:
            message = f"There is no {request.url.path[:80]}. See /docs."
        elif error.status_code == 405:
            methods = (error.headers or {}).get("Allow", "another method")
            message = f"{request.method[:20]} is not allowed here, expected {methods}. See /docs."
        return _error(error.status_code, message, error.headers)

    async def for_configuration(request: Request, error: Any) -> JSONResponse:
        return _error(422, error.message)

    async def for_validation(request: Request, error: Any) -> JSONResponse:
        return _error(422, _validation_message(error.errors()))

    async def for_long_text(request: Request, error: Any) -> JSONResponse:
        return _error(413, str(error))

    async def for_full_queue(request: Request, error: Any) -> JSONResponse:
        return _error(429, "Too many requests wait. Try again later.", {"Retry-After": "1"})

    async def for_late_answer(request: Request, error: Any) -> JSONResponse:
        return _error(504, "No answer in time. Try again later, or send less text.")

    async def for_bug(request: Request, error: Any) -> JSONResponse:
        return _error(500, "The server made an error, which its log describes.")

    handlers: Dict[Any, Callable[..., Any]] = {
        RequestError: for_request,
        HTTPException: for_http,
        ConfigurationError: for_configuration,
        RequestValidationError: for_validation,
        TextTooLongError: for_long_text,
        QueueFullError: for_full_queue,
        NoAnswerInTimeError: for_late_answer,
        Exception: for_bug,
    }
    for kind, handler in handlers.items():
        app.add_exception_handler(kind, handler)


def _error(status: int, message: str, headers: Optional[Any] = None) -> "JSONResponse":
    from fastapi.responses import JSONResponse

    return JSONResponse({"error": "; ".join(message.splitlines())}, status, headers)


def _validation_message(errors: Sequence[Any]) -> str:
    """Return in one line where the input is wrong, and what was expected."""
    first = errors[0]
    place = ".".join(str(part) for part in first["loc"] if part not in ("body", "query"))
    more = f" ({len(errors) - 1} more errors)" if len(errors) > 1 else ""
    return f"'{place[:80]}': {first['msg']}{more}. See /docs."


def _errors(*statuses: int) -> Dict[Any, Dict[str, Any]]:
    content = {"application/json": {"schema": _ERROR_SCHEMA}}
    return {status: {"description": _STATUSES[status], "content": content} for status in statuses}


def _body(schema: Dict[str, Any]) -> Dict[str, Any]:
    # Routes read the body themselves, because FastAPI does not limit it.
    content = {"application/json": {"schema": schema}}
    return {"requestBody": {"required": True, "content": content}}


class _Measured:
    """Counts requests by route, status and time."""

    def __init__(self, app: Any, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Dict[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start = time.perf_counter()
        self._metrics.num_under_way += 1
        statuses: List[int] = []

        async def send_and_remember(message: Dict[str, Any]) -> None:
            if message["type"] == "http.response.start":
                statuses.append(message["status"])
                message["headers"] = [
                    *message.get("headers", []),
                    (b"x-content-type-options", b"nosniff"),
                    (b"cache-control", b"no-store"),
                ]
            await send(message)

        try:
            await self._app(scope, receive, send_and_remember)
        finally:
            self._metrics.num_under_way -= 1
            # The router writes the route that it finds into the scope.
            route = getattr(scope.get("route"), "path", "other")
            status = statuses[0] if statuses else 500
            self._metrics.count(route, status, time.perf_counter() - start)
