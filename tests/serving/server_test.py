"""The command `elmo serve` as users start, stop and kill it."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from contextlib import ExitStack, closing, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Dict, Iterator, List, Optional, Tuple

import pytest

from elmo_plugin.bilm.model_files import task_model_names
from elmo_plugin.commands.main import main
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.serving.answers import WordsInContext
from elmo_plugin.serving.app import make_app
from elmo_plugin.serving.options import Limits, ServeOptions
from elmo_plugin.serving.server import bound_socket, named_archives, serve, server_of

SENTENCE = {"sentence": "Ada Lovelace lived in London."}
PATH = "api/models/elmo_ner_small/predict"
TIMEOUT = 0.1  # of servers in a thread


@contextmanager
def running(*arguments: str, folder: Path) -> Iterator[Tuple["subprocess.Popen[str]", str]]:
    """A server, and its address."""
    process = subprocess.Popen(
        [sys.executable, "-m", "elmo_plugin", "serve", "elmo_ner_small", *arguments],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None and process.stderr is not None
        line = process.stdout.readline()
        address = re.search(r"http://\S+/", line)
        assert address, line + process.stderr.read()
        yield process, address[0]
    finally:
        process.kill()
        process.communicate()


@contextmanager
def serving(words: WordsInContext) -> Iterator[Tuple[str, int]]:
    """The address of a server in a thread."""
    app = make_app([], words, Limits(timeout=TIMEOUT))
    with bound_socket("127.0.0.1", 0) as bound:
        server = server_of(app, TIMEOUT)
        thread = threading.Thread(target=server.run, args=([bound],))
        thread.start()
        try:
            yield bound.getsockname()
        finally:
            server.should_exit = True
            thread.join(60)


def port_of(address: str) -> int:
    return int(address.rstrip("/").rpartition(":")[2])


def post(address: str, given: Any, host: str = "localhost") -> Tuple[int, Dict[str, Any]]:
    body = json.dumps(given).encode()
    request = urllib.request.Request(address + PATH, body, {"Host": host})
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def ended(process: "subprocess.Popen[str]") -> Tuple[int, str, str]:
    output, errors = process.communicate(timeout=60)
    return process.returncode, output, errors


@pytest.mark.slow
def test_a_signal_ends_it_when_requests_under_way_are_answered(tmp_path: Path) -> None:
    body = json.dumps({"sentence": "Ada lived in London . " * 150}).encode()
    head = f"POST /{PATH} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
    with running("--port", "0", folder=tmp_path) as (process, address), ExitStack() as stack:
        clients = [
            stack.enter_context(socket.create_connection(("127.0.0.1", port_of(address))))
            for _ in range(4)
        ]
        for client in clients:
            client.sendall(head.encode() + body)
        # The server reads in the order of arrival.
        with urllib.request.urlopen(address + "health", timeout=60) as response:
            assert response.status == 200
        process.send_signal(signal.SIGINT)
        for client in clients:
            with client.makefile("rb") as answer:
                assert answer.read().startswith(b"HTTP/1.1 200 ")
        assert ended(process) == (0, "Stopped.\n", "")


@pytest.mark.slow
def test_it_is_killed_and_started_again_at_the_same_port(tmp_path: Path) -> None:
    with running("--port", "0", folder=tmp_path) as (process, address):
        first = post(address, SENTENCE)
        assert first[0] == 200
        port = port_of(address)
        client = socket.create_connection(("127.0.0.1", port))  # when the server is killed
        process.kill()
        process.wait(60)
    names = ("--allowed-host", "elmo.example.org", "--allowed-host", "b.example.org")
    with running("--port", str(port), *names, folder=tmp_path) as (process, address):
        assert post(address, SENTENCE) == first
        client.close()
        for host, status in (("b", 200), ("elmo", 200), ("c", 403)):
            assert post(address, SENTENCE, host=f"{host}.example.org")[0] == status
        with socket.create_connection(("127.0.0.1", port), timeout=60) as client:
            client.sendall(b"hello\r\n\r\n")
            assert client.recv(4096).startswith(b"HTTP/1.1 400 ")
        assert post(address, SENTENCE) == first
        process.send_signal(signal.SIGTERM)
        code, output, log = ended(process)
        assert (code, output) == (0, "Stopped.\n")
        assert "Lovelace" not in log


_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@pytest.mark.parametrize("number", _SIGNALS)
def test_a_signal_before_uvicorn_handles_it_is_not_lost(
    number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Server:
        should_exit = False

        def run(self, sockets: List[socket.socket]) -> None:
            os.kill(os.getpid(), number)

    started = Server()
    monkeypatch.setattr("elmo_plugin.serving.server.server_of", lambda *arguments: started)
    monkeypatch.setattr("elmo_plugin.serving.server.ServedModel", lambda *arguments: None)
    monkeypatch.setattr("elmo_plugin.serving.server.make_app", lambda *arguments: None)
    before = [signal.getsignal(each) for each in _SIGNALS]
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # `nohup` lets programs ignore it
    try:
        serve(ServeOptions(["none=none"], port=0))
    finally:
        for each, handler in zip(_SIGNALS, before):
            signal.signal(each, handler)
    assert started.should_exit


def test_options_of_the_command_reach_what_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: Dict[str, Any] = {}

    def recorder(name: str) -> Any:
        def record(*arguments: Any, **options: Any) -> Any:
            assert name not in calls
            calls[name] = (*arguments, options)
            return SimpleNamespace(name=name, run=lambda sockets: None)

        return record

    for name in ("ServedModel", "ElmoEmbedder", "WordsInContext", "make_app", "server_of"):
        monkeypatch.setattr(f"elmo_plugin.serving.server.{name}", recorder(name))
    monkeypatch.setattr(signal, "signal", lambda *arguments: None)
    words = "serve mine=runs/ner --port 0 --max-body 11 --max-tokens 12 --timeout 13.5"
    main([*words.split(), "--model", "my_bilm", "--cuda-device", "3", "--allowed-host", "b.org"])
    limits = Limits(max_body=11, max_tokens=12, timeout=13.5)
    assert calls.pop("ServedModel") == ("mine", "runs/ner", limits, 3, {})
    assert calls.pop("ElmoEmbedder") == ("my_bilm", {"cuda_device": 3})
    name, embedder, *others = calls.pop("WordsInContext")
    assert (name, embedder.name, *others) == ("my_bilm", "ElmoEmbedder", limits, {})
    [model], in_context, *others = calls.pop("make_app")
    assert (model.name, in_context.name) == ("ServedModel", "WordsInContext")
    assert others == [limits, ("b.org",), {}]
    app, *others = calls.pop("server_of")
    assert (app.name, *others) == ("make_app", 13.5, {})


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"GET /health HTTP/1.1\r\nHost: loc",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n",  # answered with 408
        b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\nGET /",
    ],
)
def test_connections_end_in_time(sent: bytes, words: WordsInContext) -> None:
    with (
        serving(words) as address,
        socket.create_connection(address, timeout=TIMEOUT / 2) as client,
    ):
        client.sendall(sent)
        is_open, begin = True, time.monotonic()
        while is_open and time.monotonic() < begin + 20:
            try:
                client.send(b"a")  # a byte from time to time
                is_open = client.recv(4096) != b""
            except TimeoutError:
                pass
            except ConnectionError:
                is_open = False
        assert not is_open


def test_requests_after_pauses_are_answered(words: WordsInContext) -> None:
    with serving(words) as address, closing(HTTPConnection(*address, timeout=60)) as client:
        # Each longer than a request may take; together longer than the connection may wait for one.
        for seconds in (0.5, 0.5, 0.5, 0):
            client.request("GET", "/health")
            assert client.getresponse().read() == b'{"status":"ok"}'
            client.auto_open = 0  # the same connection
            time.sleep(seconds)


def test_names_are_those_of_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["runs/demo/model.tar.gz", "runs/ner", "sst.tar.gz", "mine=runs/ner", "c=a=b"]
    assert named_archives([*words, "model.tar.gz"]) == {
        "demo": "runs/demo/model.tar.gz",
        "ner": "runs/ner",
        "sst": "sst.tar.gz",
        "mine": "runs/ner",
        "c": "a=b",
        tmp_path.name: "model.tar.gz",
    }
    # A file whose path has such a character.
    (tmp_path / "lr=1").mkdir()
    (tmp_path / "lr=1" / "ner.tar.gz").touch()
    assert named_archives(["lr=1/ner.tar.gz"]) == {"ner": "lr=1/ner.tar.gz"}
    # By default what comes with the package.
    assert named_archives([]) == {name: name for name in task_model_names()}


@pytest.mark.parametrize(
    "words, message",
    [
        (["runs/my model"], "runs/my model: its name would be 'my model', expected"),
        (["=runs/ner"], "its name would be '', expected"),
        (["a/b=runs/ner"], "its name would be 'a/b', expected"),
        (["a/ner", "b/ner"], "b/ner: a/ner has the name 'ner' too, expected different names"),
    ],
)
def test_invalid_names(words: List[str], message: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(message)):
        named_archives(words)


@pytest.mark.parametrize(
    "host, port",
    [
        ("127.0.0.1", None),
        ("no.such.host.invalid", 0),
        ("203.0.113.1", 0),
        ("a" * 70, 0),
        ("127.0.0.1", 65536),
    ],
)
def test_addresses_that_cannot_be_bound(host: str, port: Optional[int]) -> None:
    with bound_socket("127.0.0.1", 0) as used:
        port = used.getsockname()[1] if port is None else port
        match = f"--host, --port: cannot serve at {host}, port {port} "
        with pytest.raises(ConfigurationError, match=match):
            serve(ServeOptions(["no.gz"], host=host, port=port))  # nothing is loaded


@pytest.mark.parametrize("host, is_warned", [("127.0.0.1", False), ("0.0.0.0", True)])
def test_addresses_that_other_machines_reach_are_warned_of(
    host: str, is_warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    bound_socket(host, 0).close()
    assert ("There is no password and no encryption" in caplog.text) == is_warned
