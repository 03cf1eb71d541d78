"""The routes of the server. Each error is a JSON object with one line, `error`."""

import base64
import hashlib
import re
from contextlib import asynccontextmanager
from importlib import resources
from typing import TYPE_CHECKING, Any, AsyncIterator, Dict, List, Sequence, Tuple

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
    """The models, and the biLM that compares words."""

    models: List[ModelDescription]
    neighbors: WordsDescription


class Api:
    """
    The functions behind the routes.

    # Parameters

    models : `Sequence[ServedModel]`
        The task models.
    words : `WordsInContext`
        Finds nearest occurrences.
    limits : `Limits`
        Limits of requests.
    """

    def __init__(
        self, models: Sequence[ServedModel], words: WordsInContext, limits: Limits
    ) -> None:
        self._models = {model.name: model for model in models}
        self._words = words
        self._batchers = {model.name: Batcher(model.answers, limits) for model in models}
        self._word_batcher = Batcher(words.answers, limits)
        self._page, self._page_headers = _page_and_headers()

    @asynccontextmanager
    async def running(self, app: "FastAPI") -> AsyncIterator[None]:
        """Answer requests within the context."""
        batchers = [*self._batchers.values(), self._word_batcher]
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
            neighbors=self._words.description(),
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
        answer: WordAnswer = await self._word_batcher.answer(request)
        return answer

    async def health(self) -> Dict[str, str]:
        """Return that the server runs."""
        return {"status": "ok"}

    async def invalid_body(self, request: "Request", error: Any) -> Any:
        """Answer a request whose body is not the JSON that its route expects, with an example of it."""
        model = self._models.get(request.path_params.get("name", ""))
        example = shown_json(EXAMPLE) if model is None else model.example
        problems = "; ".join(map(_described_problem, error.errors()))
        return error_response(422, f"{problems}. Expected a JSON object such as {example}")


def make_app(
    models: Sequence[ServedModel],
    words: WordsInContext,
    limits: Limits,
    allowed_hosts: Sequence[str] = (),
) -> "FastAPI":
    """Return the application. The parameters are those of `Api` and `RequestChecks`."""
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
            RequestValidationError: api.invalid_body,
            HTTPException: _http_error,
            Exception: _server_error,
        },
    )
    app.get("/", include_in_schema=False)(api.show_page)
    app.get("/api/models")(api.list_models)
    app.post("/api/models/{name}/predict")(api.predict)
    app.post("/api/neighbors")(api.find_neighbors)
    app.get("/health")(api.health)
    app.add_middleware(RequestChecks, limits=limits, allowed_hosts=allowed_hosts)
    return app


async def _request_error(request: "Request", error: Any) -> Any:
    headers = {"Retry-After": "1"} if error.status == 429 else None
    return error_response(error.status, str(error), headers)


async def _configuration_error(request: "Request", error: Any) -> Any:
    return error_response(422, error.message)


async def _http_error(request: "Request", error: Any) -> Any:
    # An unknown address or method, or a body that FastAPI cannot parse.
    return error_response(error.status_code, f"{error.detail}. See /openapi.json.", error.headers)


async def _server_error(request: "Request", error: Any) -> Any:
    return error_response(500, "The server made an error, which its log describes.")


def _described_problem(problem: Dict[str, Any]) -> str:
    """Return the place of one of pydantic's problems, the value that was found there, and what is wrong."""
    if problem["type"] == "json_invalid":
        return f"The body is not JSON ({problem['ctx']['error']})"
    found = "" if problem["type"] == "missing" else f" is {shown_json(problem['input'])}"
    _, *field = problem["loc"]  # the first part is "body"
    if not field:
        return f"The body{found}: {problem['msg']}"
    # Of what follows the field only indices: other parts name members of a union.
    indices = "".join(f"[{part}]" for part in field[1:] if isinstance(part, int))
    return f"'{field[0]}'{indices}{found}: {problem['msg']}"


def _page_and_headers() -> Tuple[str, Dict[str, str]]:
    """
    Return the page, and headers with which it can load nothing, run only the script and use only the style
    sheet in it, call only this server, and be in no frame.
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
