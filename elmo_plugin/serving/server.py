"""Load the models, bind the address, and serve until a signal ends it."""

import ipaddress
import logging
import math
import re
import signal
import socket
from pathlib import Path
from typing import Any, Dict, Optional, Sequence

from elmo_plugin.bilm.model_files import task_model_names
from elmo_plugin.embedding.elmo_embedder import ElmoEmbedder
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.serving.answers import ServedModel, WordsInContext
from elmo_plugin.serving.app import make_app
from elmo_plugin.serving.options import ServeOptions

logger = logging.getLogger(__name__)

_NAME_IN_URLS = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def serve(options: ServeOptions) -> None:
    """
    Serve until SIGINT, SIGTERM or SIGHUP. Requests under way are answered first. Raise `ConfigurationError`
    if the address cannot be bound, and if a model cannot be loaded.
    """
    archives = named_archives(options.archives)
    limits, device = options.limits, options.cuda_device
    # The address first, since loading takes seconds. Clients that connect meanwhile wait.
    with bound_socket(options.host, options.port) as bound:
        models = [ServedModel(name, archives[name], limits, device) for name in archives]
        embedder = ElmoEmbedder(options.model, cuda_device=device)
        words = WordsInContext(options.model, embedder, limits)
        app = make_app(models, words, limits, options.allowed_host)
        server = server_of(app, limits.timeout)

        def stop(number: int, frame: Any) -> None:
            server.should_exit = True

        # uvicorn has its own handlers while it runs. A signal can arrive before that, and uvicorn re-raises
        # the signals that it has handled.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, stop)
        hang_up = getattr(signal, "SIGHUP", None)  # of a closed terminal; Windows has none
        if hang_up is not None and signal.getsignal(hang_up) != signal.SIG_IGN:  # as with nohup
            signal.signal(hang_up, stop)
        host, port = bound.getsockname()[:2]
        url = f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"
        print(f"Serving {', '.join(archives)} at {url} (Ctrl-C stops).", flush=True)
        server.run([bound])
    print("Stopped.", flush=True)


def named_archives(words: Sequence[str]) -> Dict[str, str]:
    """
    Return the archives that words of the command line name, by their names in URLs. A word is `ARCHIVE`,
    `NAME=ARCHIVE`, or the name of a task model of this package; without words all of these are returned.
    Raise `ConfigurationError` if a name cannot be part of a URL, or occurs twice.
    """
    archives: Dict[str, str] = {}
    for word in words or task_model_names():
        name, equals, archive = word.partition("=")
        if not equals or Path(word).exists():
            path = Path(word).absolute()
            folder_or_file = path.parent if path.name == "model.tar.gz" else path
            name, archive = folder_or_file.name.removesuffix(".tar.gz"), word
        if not _NAME_IN_URLS.fullmatch(name):
            raise ConfigurationError(
                f"{word}: its name would be '{name}', expected up to 64 letters of a to z, digits, '.', '_' "
                f"and '-'. Give NAME={archive}."
            )
        if name in archives:
            raise ConfigurationError(
                f"{word}: {archives[name]} has the name '{name}' too, expected different names. Give "
                f"NAME={archive}."
            )
        archives[name] = archive
    return archives


def bound_socket(host: str, port: int) -> socket.socket:
    """
    Return a socket that listens at an address, with a warning if other machines can reach it. Raise
    `ConfigurationError` if it cannot be bound.
    """
    is_ipv6 = ":" in host
    family = socket.AF_INET6 if is_ipv6 else socket.AF_INET
    try:
        bound = socket.create_server((host, port), family=family, dualstack_ipv6=is_ipv6)
    except (OSError, OverflowError, UnicodeError) as error:
        raise ConfigurationError(
            f"--host, --port: cannot serve at {host}, port {port} ({error}), expected an address of this "
            "machine and a free port. Give another one; --port 0 takes any free port."
        ) from error
    if not ipaddress.ip_address(bound.getsockname()[0]).is_loopback:
        logger.warning(
            "--host %s: all who can reach this machine's port can use the models. There is no password and "
            "no encryption; put a proxy that has both in front.",
            host,
        )
    return bound


def server_of(app: Any, timeout: float) -> Any:
    """Return the `uvicorn.Server` of an application."""
    # --include-package imports this module also where uvicorn is not installed.
    import uvicorn
    from uvicorn.protocols.http.h11_impl import H11Protocol

    class TimedProtocol(H11Protocol):
        """
        A connection that ends unless each request is answered in time, from its head to the last byte of the
        answer. (The application sees neither a head that does not end nor a client that does not read.)
        """

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._start_timer()

        def on_response_complete(self) -> None:
            self._timer.cancel()
            self._start_timer()
            super().on_response_complete()

        def connection_lost(self, exc: Optional[Exception]) -> None:
            self._timer.cancel()
            super().connection_lost(exc)

        def _start_timer(self) -> None:
            # The head of the request may begin until uvicorn ends an idle connection. Then the application
            # allows `timeout` for the body and for the answer.
            seconds = self.config.timeout_keep_alive + 3 * timeout
            self._timer = self.loop.call_later(seconds, self.transport.abort)

    config = uvicorn.Config(
        app,
        http=TimedProtocol,
        log_config=None,
        access_log=False,
        server_header=False,
        lifespan="on",
        timeout_keep_alive=min(5, math.ceil(timeout)),
        timeout_graceful_shutdown=math.ceil(timeout) + 5,  # requests end before that
    )
    return uvicorn.Server(config)
