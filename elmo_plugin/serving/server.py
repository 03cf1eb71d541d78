"""Load the models, bind the address, and serve until a signal ends it."""

import ipaddress
import logging
import math
import re
import signal
import socket
from pathlib import Path
from typing import TYPE_CHECKING, List, NamedTuple, Sequence

from elmo_plugin.bilm.model_files import task_model_names
from elmo_plugin.embedding.elmo_embedder import ElmoEmbedder
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.serving.app import make_app
from elmo_plugin.serving.options import NONE, ServeOptions
from elmo_plugin.serving.served_model import ServedModel
from elmo_plugin.serving.words_in_context import WordsInContext

if TYPE_CHECKING:
    from fastapi import FastAPI

logger = logging.getLogger(__name__)

_NAME_IN_ADDRESSES = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class NamedArchive(NamedTuple):
    """An archive, and the name of its model in addresses."""

    name: str
    archive: str


def named_archives(words: Sequence[str]) -> List[NamedArchive]:
    """
    Return the archives that words of the command line name: `ARCHIVE`, `NAME=ARCHIVE`, or the name of a task
    model of this package; without words all of these.

    # Raises

    `ConfigurationError` if a name cannot be part of an address, or occurs twice.
    """
    found: List[NamedArchive] = []
    for word in words or task_model_names():
        name, equals, archive = word.partition("=")
        if not equals or Path(word).exists():
            name, archive = _default_name(word), word
        if not _NAME_IN_ADDRESSES.fullmatch(name):
            raise ConfigurationError(
                f"{word}: its name would be '{name}', expected up to 64 letters of a to z, digits, '.', '_' "
                f"and '-'. Give NAME={archive}."
            )
        for other in found:
            if other.name == name:
                raise ConfigurationError(
                    f"{word}: {other.archive} has the name '{name}' too, expected different names. Give "
                    f"NAME={archive}."
                )
        found.append(NamedArchive(name, archive))
    return found


def _default_name(archive: str) -> str:
    """Return the name of the folder of a `model.tar.gz`, and that of any other file or folder."""
    path = Path(archive).absolute()
    if path.name == "model.tar.gz":
        path = path.parent
    return path.name.removesuffix(".tar.gz")


def serve(options: ServeOptions) -> None:
    """
    Serve until SIGINT or SIGTERM. Requests under way are answered first.

    # Raises

    `ConfigurationError` if the address cannot be bound, and if a model cannot be loaded.
    """
    archives = named_archives(options.archives)
    limits, bilm = options.limits, options.occurrences.options_file
    # First, since loading takes seconds. It listens when the models are loaded.
    with bound_socket(options.host, options.port) as bound:
        models = [
            ServedModel(name, archive, limits, options.cuda_device) for name, archive in archives
        ]
        words = None
        if bilm != NONE:
            weight_file = options.occurrences.weight_file
            embedder = ElmoEmbedder(bilm, weight_file, cuda_device=options.cuda_device)
            words = WordsInContext(bilm, embedder, limits)
        app = make_app(models, words, limits, [options.host, *options.allowed_host])
        bound.listen()
        served = ", ".join(model.name for model in models) or "nearest occurrences"
        print(f"Serving {served} at {_address_of(bound)} (Ctrl-C stops).", flush=True)
        _run(app, bound, limits.timeout)
    print("Stopped.", flush=True)


def bound_socket(host: str, port: int) -> socket.socket:
    """
    Return a socket that is bound to an address, with a warning if other machines can reach it.

    # Raises

    `ConfigurationError` if it cannot be bound.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        bound = socket.socket(family, kind, protocol)
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind(address)
        except OSError:
            bound.close()
            raise
    except (OSError, OverflowError, UnicodeError, ValueError) as error:
        raise ConfigurationError(
            f"--host, --port: cannot serve at {host}, port {port} ({error}), expected an address of this "
            "machine and a free port. Give another one; --port 0 takes any free port."
        ) from error
    if not ipaddress.ip_address(bound.getsockname()[0].partition("%")[0]).is_loopback:
        logger.warning(
            "--host %s: all who can reach this machine's port can use the models. There is no password and "
            "no encryption; put a proxy that has both in front.",
            host,
        )
    return bound


def _address_of(bound: socket.socket) -> str:
    host, port = bound.getsockname()[:2]
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"


def _run(app: "FastAPI", bound: socket.socket, timeout: float) -> None:
    # --include-package imports this module also where uvicorn is not installed.
    import uvicorn

    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        lifespan="on",
        # Requests end before that.
        timeout_graceful_shutdown=math.ceil(timeout) + 5 if math.isfinite(timeout) else None,
    )
    # uvicorn raises the signals that it has handled again, which would end the process by them.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    uvicorn.Server(config).run([bound])
