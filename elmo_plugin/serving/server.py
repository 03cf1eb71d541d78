"""Load the models, bind the address, and serve until a signal ends it."""

import ipaddress
import json
import logging
import math
import re
import signal
import socket
from pathlib import Path
from typing import Any, List, NamedTuple, Optional, Sequence

from elmo_plugin.bilm.model_files import task_model_names
from elmo_plugin.embedding.elmo_embedder import ElmoEmbedder
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.serving.app import make_app
from elmo_plugin.serving.limits import Limits
from elmo_plugin.serving.senses import SenseFinder
from elmo_plugin.serving.served_model import ServedModel

logger = logging.getLogger(__name__)

# Part of addresses and of metrics.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class NamedArchive(NamedTuple):
    """An archive, and the name of its model in addresses."""

    name: str
    archive: str


def named_archives(words: Sequence[str]) -> List[NamedArchive]:
    """
    Return the archives that words of the command line stand for: `ARCHIVE`, `NAME=ARCHIVE`, or the name of a
    task model of this package; without words all of these.

    # Raises

    `ConfigurationError` if a name cannot be part of an address, or occurs twice.
    """
    found: List[NamedArchive] = []
    for word in words or task_model_names():
        name, equals, archive = word.partition("=")
        if not equals or Path(word).exists():
            name, archive = _default_name(word), word
        if not _NAME.fullmatch(name):
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


def serve(
    archives: Sequence[NamedArchive],
    bilm: Optional[str],
    weight_file: Optional[str],
    host: str,
    port: int,
    cuda_device: int,
    limits: Limits,
) -> None:
    """
    Serve until SIGINT or SIGTERM. Requests under way are answered first.

    # Parameters

    archives : `Sequence[NamedArchive]`
        The task models.
    bilm, weight_file : `str`, optional
        Files of the biLM of nearest occurrences, as in `ElmoEmbedder`. Without them there is no such route.
    host, port
        The address. Port 0 is any free one.
    cuda_device : `int`
        Index of the GPU to run on; -1 for the CPU.
    limits : `Limits`
        What is accepted.

    # Raises

    `ConfigurationError` if the address cannot be bound, and if a model cannot be loaded.
    """
    # First, since loading takes seconds. It listens when the models are loaded.
    bound = _bound_socket(host, port)
    try:
        models = [
            ServedModel(name, archive, limits.max_tokens, cuda_device) for name, archive in archives
        ]
        senses = None
        if bilm is not None:
            embedder = ElmoEmbedder(bilm, weight_file, cuda_device=cuda_device)
            senses = SenseFinder(bilm, embedder, limits.max_tokens)
        _run(make_app(models, senses, limits), bound, [model.name for model in models], limits)
    finally:
        bound.close()


def _run(app: Any, bound: socket.socket, names: Sequence[str], limits: Limits) -> None:
    # This module is imported without uvicorn too, by --include-package.
    import uvicorn
    from uvicorn.protocols.http.h11_impl import H11Protocol

    host, port = bound.getsockname()[:2]
    address = f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"

    class Protocol(H11Protocol):
        """Answers what is not HTTP as all errors are answered: with a line of JSON."""

        def send_400_response(self, msg: str) -> None:
            body = json.dumps({"error": msg}).encode()
            head = (
                "HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\n"
                f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
            )
            self.transport.write(head.encode() + body)
            self.transport.close()

    class Server(uvicorn.Server):
        """Prints when it is ready and when it has stopped."""

        async def startup(self, sockets: Any = None) -> None:
            await super().startup(sockets)
            served = ", ".join(names) or "nearest occurrences"
            print(f"Serving {served} at {address} (Ctrl-C stops).", flush=True)

        async def shutdown(self, sockets: Any = None) -> None:
            await super().shutdown(sockets)
            print("Stopped.", flush=True)

    # Requests end before that.
    last = math.ceil(limits.timeout) + 5 if math.isfinite(limits.timeout) else None
    config = uvicorn.Config(
        app,
        http=Protocol,
        log_config=None,
        access_log=False,
        server_header=False,
        lifespan="on",
        timeout_graceful_shutdown=last,
    )
    # uvicorn raises the signals that it has handled again, which would end the process by them.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    Server(config).run([bound])


def _bound_socket(host: str, port: int) -> socket.socket:
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
    except (OSError, OverflowError, UnicodeError) as error:
        raise ConfigurationError(
            f"--host, --port: cannot serve at {host}, port {port} ({error}), expected an address of this "
            "machine and a free port. Give another one; --port 0 takes any that is free."
        ) from error
    if not _is_loopback(bound):
        logger.warning(
            "--host %s: all who can reach this machine's port can use the models. There is no password and "
            "no encryption; put a proxy in front that has them.",
            host,
        )
    return bound


def _is_loopback(bound: socket.socket) -> bool:
    return ipaddress.ip_address(bound.getsockname()[0].partition("%")[0]).is_loopback
