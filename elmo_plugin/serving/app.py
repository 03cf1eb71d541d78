"""The routes of the server. Each error is a JSON object with one line, `error`."""

import base64
import hashlib
import re
from contextlib import asynccontextmanager
from importlib import resources
from typing import TYPE_CHECKING, Any, AsyncIterator, Dict, List, Optional, Sequence, Tuple

from pydantic import BaseModel, Field

from elmo_plugin import __version__
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.files.json_input import shown_json
from elmo_plugin.serving.batcher import Batcher
from elmo_plugin.serving.options import Limits
from elmo_plugin.serving.request_checks import RequestChecks, RequestError, error_response
from elmo_plugin.serving.served_model import ModelDescription, ServedModel
from elmo_plugin.serving.words_in_context import (
    EXAMPLE,
    WordAnswer,
    WordRequest,
    WordsDescription,
    WordsInContext,
)

# --include-package imports this module also where FastAPI is not installed: functions import it.
if TYPE_CHECKING:
    from fastapi import FastAPI, Request

_ABOUT = """\
Task models with ELMo, and nearest occurrences of words in context.
Bodies are JSON in UTF-8, and so are answers.\
"""


class ErrorMessage(BaseModel):
    """An error."""

    error: str = Field(description="what is wrong, in one line")


class Listing(BaseModel):
    """What the server has."""

    models: List[ModelDescription]
    neighbors: Optional[WordsDescription]
    max_tokens: int = Field(description="of a text")
    version: str


class Api:
    """
    The functions behind the routes.

    # Parameters

    models : `Sequence[ServedModel]`
        The task models.
    words : `WordsInContext`, optional
        Finds nearest occurrences.
    limits : `Limits`
        Limits of requests.
    """

    def __init__(
        self, models: Sequence[ServedModel], words: Optional[WordsInContext], limits: Limits
    ) -> None:
        self._models = {model.name: model for model in models}
        self._words = words
        self._limits = limits
        self._batchers = {
            model.name: Batcher(model.name, model.answers, limits) for model in models
        }
        self._word_batchers = [] if words is None else [Batcher("words", words.answers, limits)]
        self._page, self._page_headers = _page_and_headers()

    @asynccontextmanager
    async def running(self, app: "FastAPI") -> AsyncIterator[None]:
        """Answer requests within the context."""
        batchers = [*self._batchers.values(), *self._word_batchers]
        for batcher in batchers:
            batcher.start()
        yield
        for batcher in batchers:
            await batcher.stop()

    async def show_page(self) -> Any:
        """Return the page for people."""
        from fastapi.responses import HTMLResponse

        return HTMLResponse(self._page, headers=self._page_headers)

    async def list_models(self) -> Listing:
        """List the models that are served, and what they expect."""
        return Listing(
            models=[model.description() for model in self._models.values()],
            neighbors=None if self._words is None else self._words.description(),
            max_tokens=self._limits.max_tokens,
            version=__version__,
        )

    async def predict(self, name: str, inputs: Dict[str, Any]) -> Dict[str, Any]:
        """
        Return the answer of a model. Body and answer are those of a line of `elmo predict`: their keys depend
        on the task, and `/api/models` has an example of the body.
        """
        if name not in self._models:
            raise RequestError(
                404, f"There is no model '{name[:40]}', expected one of {', '.join(self._models)}."
            )
        answer: Dict[str, Any] = await self._batchers[name].answer(inputs)
        return answer

    async def find_neighbors(self, request: WordRequest) -> WordAnswer:
        """Return the nearest occurrences of a word in context."""
        answer: WordAnswer = await self._word_batchers[0].answer(request)
        return answer

    async def health(self) -> Dict[str, str]:
        """Return that the server runs."""
        return {"status": "ok"}

    async def invalid_request(self, request: "Request", error: Any) -> Any:
        """Answer a request whose body is not the JSON that its route expects, with an example of it."""
        model = self._models.get(request.path_params.get("name", ""))
        example = shown_json(EXAMPLE) if model is None else model.example
        status, message = _status_and_message(error)
        return error_response(status, f"{message}. Expected a JSON object such as {example}")

    async def http_error(self, request: "Request", error: Any) -> Any:
        """Answer a request for which there is no route, or whose body FastAPI cannot read."""
        if error.status_code == 400:
            return await self.invalid_request(request, error)
        message = str(error.detail)
        if error.status_code == 404:
            message = f"There is no {request.url.path[:80]}. See /openapi.json."
        elif error.status_code == 405:
            message = (
                f"{request.method[:20]} is not allowed here, expected {error.headers['Allow']}. "
                "See /openapi.json."
            )
        return error_response(error.status_code, message, error.headers)


def make_app(
    models: Sequence[ServedModel],
    words: Optional[WordsInContext],
    limits: Limits,
    allowed_hosts: Sequence[str] = (),
) -> "FastAPI":
    """
    Return the application.

    # Parameters

    models, words, limits
        See `Api`. Without `words` there is no route of nearest occurrences.
    allowed_hosts : `Sequence[str]`, optional
        See `RequestChecks`.
    """
    from fastapi import FastAPI
    from fastapi.exceptions import RequestValidationError
    from starlette.exceptions import HTTPException

    api = Api(models, words, limits)
    app = FastAPI(
        title="elmo serve",
        description=_ABOUT,
        version=__version__,
        lifespan=api.running,
        # FastAPI's pages load scripts from the network.
        docs_url=None,
        redoc_url=None,
        # A redirection would name the address that the Host header names.
        redirect_slashes=False,
        responses={"default": {"model": ErrorMessage, "description": "An error"}},
        exception_handlers={
            RequestError: _request_error,
            ConfigurationError: _configuration_error,
            RequestValidationError: api.invalid_request,
            HTTPException: api.http_error,
            Exception: _server_error,
        },
    )
    app.api_route("/", methods=["GET", "HEAD"], include_in_schema=False)(api.show_page)
    app.get("/api/models")(api.list_models)
    app.post("/api/models/{name}/predict")(api.predict)
    if words is not None:
        app.post("/api/neighbors")(api.find_neighbors)
    app.get("/health")(api.health)
    app.head("/health", include_in_schema=False)(api.health)
    app.add_middleware(RequestChecks, limits=limits, allowed_hosts=allowed_hosts)
    return app


async def _request_error(request: "Request", error: Any) -> Any:
    headers = {"Retry-After": "1"} if error.status == 429 else None
    return error_response(error.status, str(error), headers)


async def _configuration_error(request: "Request", error: Any) -> Any:
    return error_response(422, error.message)


async def _server_error(request: "Request", error: Any) -> Any:
    return error_response(500, "The server made an error, which its log describes.")


def _status_and_message(error: Any) -> Tuple[int, str]:
    """Return the status and message for an error of the body: 400 if it is no JSON object."""
    # FastAPI has no details for bytes that are not UTF-8 and for brackets that are nested too deeply.
    problems: List[Dict[str, Any]] = error.errors() if hasattr(error, "errors") else []
    if not problems or problems[0]["type"] == "json_invalid":
        reason = problems[0]["ctx"]["error"] if problems else "invalid UTF-8 or nesting"
        return 400, f"The body is not JSON ({reason})"
    messages = []
    for problem in problems:
        place = problem["loc"][1:]  # after "body"
        found = "" if problem["type"] == "missing" else f" is {shown_json(problem['input'])}"
        if not place:
            return 400, f"The body{found}: {problem['msg']}"
        # Of what follows the field only indices: other parts name members of a union.
        indices = "".join(f"[{part}]" for part in place[1:] if isinstance(part, int))
        messages.append(f"'{place[0]}'{indices}{found}: {problem['msg']}")
    return 422, "; ".join(messages)


def _page_and_headers() -> Tuple[str, Dict[str, str]]:
    """
    Return the page, and headers with which it can load nothing, run only its own script, use only its own
    style sheet, call only this server, and be in no frame.
    """
    page = resources.files("elmo_plugin.serving").joinpath("page.html").read_text("utf-8")
    hashes = {}
    for tag in ("script", "style"):
        [content] = re.findall(f"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        hashes[tag] = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; script-src 'sha256-{hashes['script']}'; style-src 'sha256-{hashes['style']}'; "
        "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return page, {"Content-Security-Policy": policy, "Referrer-Policy": "no-referrer"}
