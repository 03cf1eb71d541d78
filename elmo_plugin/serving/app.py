"""The routes of the server. Each error is a JSON object with one line, `error`."""

import base64
import hashlib
import re
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from importlib import resources
from typing import Any, AsyncIterator, Dict, List, Sequence, Tuple

from pydantic import BaseModel, Field

from elmo_plugin import __version__
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.files.json_input import shown_json
from elmo_plugin.serving.answers import (
    EXAMPLE,
    ModelCard,
    ModelDescription,
    ServedModel,
    WordAnswer,
    WordRequest,
    WordsDescription,
    WordsInContext,
)
from elmo_plugin.serving.options import Limits
from elmo_plugin.serving.requests import Batcher, RequestChecks, RequestError, error_response


class ErrorMessage(BaseModel):
    """An error."""

    error: str = Field(description="what is wrong, in one line")


class Listing(BaseModel):
    """The models, and the biLM that compares words."""

    models: List[ModelDescription]
    neighbors: WordsDescription


def make_app(
    models: Sequence[ServedModel],
    words: WordsInContext,
    limits: Limits,
    allowed_hosts: Sequence[str] = (),
) -> Any:
    """Return the FastAPI application: the routes, behind `RequestChecks`."""
    # --include-package imports this module also where FastAPI is not installed.
    from fastapi import FastAPI, Request
    from fastapi.exceptions import RequestValidationError
    from fastapi.responses import HTMLResponse
    from starlette.exceptions import HTTPException

    served = {model.name: model for model in models}
    batchers = {model.name: Batcher(model.answers, limits) for model in models}
    word_batcher = Batcher(lambda batch: map(words.answer, batch), replace(limits, max_batch=1))
    page, page_headers = _page_and_headers()

    def unknown_model(name: str) -> RequestError:
        return RequestError(
            404, f"There is no model '{name[:40]}', expected one of {', '.join(served)}."
        )

    @asynccontextmanager
    async def answering(app: FastAPI) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            for batcher in (*batchers.values(), word_batcher):
                await stack.enter_async_context(batcher.running())
            yield

    app = FastAPI(
        title="elmo serve",
        description="Task models with ELMo, and nearest occurrences of words in context.\n"
        "Bodies are JSON in UTF-8, and so are answers.",
        version=__version__,
        lifespan=answering,
        # FastAPI's pages load scripts from the network.
        docs_url=None,
        redoc_url=None,
        # A redirection would name the address that the Host header names.
        redirect_slashes=False,
        responses={"default": {"model": ErrorMessage, "description": "An error"}},
    )
    app.add_middleware(RequestChecks, limits=limits, allowed_hosts=allowed_hosts)

    @app.head("/", include_in_schema=False)
    @app.get("/", include_in_schema=False)
    async def show_page() -> HTMLResponse:
        return HTMLResponse(page, headers=page_headers)

    @app.get("/api/models")
    async def list_models() -> Listing:
        """List the models that are served, and what they expect."""
        return Listing(
            models=[model.description() for model in models], neighbors=words.description()
        )

    @app.get("/api/models/{name}/card")
    async def show_card(name: str) -> ModelCard:
        """Return the card of a model: its data, scores and limits."""
        if name not in served:
            raise unknown_model(name)
        if not served[name].card:
            raise RequestError(404, f"The model '{name}' has no card.")
        return ModelCard(card=served[name].card)

    @app.post("/api/models/{name}/predict")
    async def predict(name: str, inputs: Dict[str, Any]) -> Dict[str, Any]:
        """
        Return the answer of a model. Body and answer are those of a line of `elmo predict`: their keys depend
        on the task, and `/api/models` has an example of the body.
        """
        if name not in served:
            raise unknown_model(name)
        return await batchers[name].answer(inputs)

    @app.post("/api/neighbors")
    async def find_neighbors(request: WordRequest) -> WordAnswer:
        """Return the occurrences of a word in context, the nearest first."""
        return await word_batcher.answer(request)

    @app.head("/health", include_in_schema=False)
    @app.get("/health")
    async def health() -> Dict[str, str]:
        """Return that the server runs."""
        return {"status": "ok"}

    @app.exception_handler(ConfigurationError)
    async def refused(request: Request, error: ConfigurationError) -> Any:
        status = error.status if isinstance(error, RequestError) else 422
        return error_response(status, error.message)

    @app.exception_handler(RequestValidationError)
    async def invalid_body(request: Request, error: RequestValidationError) -> Any:
        """Answer a request whose body is not the JSON that its route expects, with an example of it."""
        name = request.path_params.get("name")
        if name is None:
            example = shown_json(EXAMPLE)
        elif name in served:
            example = served[name].example
        else:
            return await refused(request, unknown_model(name))
        problems = "; ".join(map(_described_problem, error.errors()))
        return error_response(422, f"{problems}. Expected a JSON object such as {example}")

    @app.exception_handler(HTTPException)
    async def unknown_route(request: Request, error: HTTPException) -> Any:
        """Answer a request to an unknown route, or with a body that FastAPI cannot parse."""
        message = f"{error.detail}. See /openapi.json."
        return error_response(error.status_code, message, error.headers)

    @app.exception_handler(Exception)
    async def bug(request: Request, error: Exception) -> Any:
        return error_response(500, "The server made an error, which its log describes.")

    return app


def _described_problem(problem: Dict[str, Any]) -> str:
    """Return the place of one of pydantic's problems, the value that was found there, and what is wrong."""
    if problem["type"] == "json_invalid":
        return f"The body is not JSON ({problem['ctx']['error']})"
    found = "" if problem["type"] == "missing" else f" is {shown_json(problem['input'])}"
    _, *field = problem["loc"]  # the first part is "body"
    if not field:
        return f"The body{found}: {problem['msg']}"
    # Only the indices of what follows the field: other parts name members of a union.
    indices = "".join(f"[{part}]" for part in field[1:] if isinstance(part, int))
    return f"'{field[0]}'{indices}{found}: {problem['msg']}"


def _page_and_headers() -> Tuple[str, Dict[str, str]]:
    """
    Return the page, and headers with which it can load nothing, run only the script and use only the style
    sheet in it, call only this server, and be in no frame.
    """
    page = resources.files("elmo_plugin.serving").joinpath("page.html").read_text("utf-8")
    policy = ["default-src 'none'", "connect-src 'self'", "img-src data:", "base-uri 'none'"]
    policy += ["form-action 'none'", "frame-ancestors 'none'"]
    for tag in ("script", "style"):
        [content] = re.findall(f"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        checksum = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        policy.append(f"{tag}-src 'sha256-{checksum}'")
    return page, {
        "Content-Security-Policy": "; ".join(policy),
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
    }
