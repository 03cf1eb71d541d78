"""
What strangers send: HTTP requests with JSON for predictors, and words of a command line; and how much of it a
process endures.
"""

import contextlib
import functools
import http.client
import io
import json
import logging
import os
import re
import socket
import subprocess
import sys
import threading
from pathlib import Path
from random import Random
from typing import Any, Dict, List, Tuple

import numpy
import torch

import elmo_plugin.commands.main as command_line
from attacks import FIXTURES
from attacks.archives import tiny_archives
from attacks.canary import Canary
from attacks.mutations import mutated_bytes, mutated_json, odd_word
from attacks.trials import Attack, Trial, check, megabytes
from elmo_plugin import ElmoEmbedder
from elmo_plugin.commands import report
from elmo_plugin.serving.answers import EXAMPLE, ServedModel, WordsInContext
from elmo_plugin.serving.app import make_app
from elmo_plugin.serving.options import Limits
from elmo_plugin.serving.server import bound_socket, server_of
from tests.closeness import assert_accurate
from tests.tasks.task_testing import texts_and_numbers

LIMITS = Limits(max_body=4000, max_tokens=60, timeout=1.0)
ADDRESS = b"127.0.0.1:8000"


def lines_of(task: str) -> List[str]:
    return (FIXTURES / task / "tiny" / "inputs.jsonl").read_text("utf-8").splitlines()


def check_same(found: Any, expected: Any) -> None:
    """Check the texts of two answers, and their numbers, which of small models differ less than vectors."""
    (texts, numbers), (expected_texts, expected_numbers) = map(texts_and_numbers, (found, expected))
    check(f"{expected_texts}, found {texts}", texts == expected_texts)
    assert_accurate(numbers, expected_numbers)


def check_error(answer: Any) -> None:
    """Check that an answer is one error, in one line that can be printed."""
    check(f"an error, found {answer}", isinstance(answer, dict) and list(answer) == ["error"])
    message = answer["error"]
    check(f"one line: {message!r}", bool(message) and message.isprintable())
    check("no traceback", "Traceback" not in message and len(message) < 10_000)


def _damaged(random: Random, line: str) -> bytes:
    if random.random() < 0.3:
        return mutated_bytes(random, line.encode())
    return json.dumps(mutated_json(random, json.loads(line))).encode()


def _prepared() -> Canary:
    torch.set_num_threads(1)
    logging.disable(logging.ERROR)
    return Canary()


class Served:
    """A server in a thread."""

    def __init__(self, folder: Path) -> None:
        self.models = {
            task: ServedModel(task, archive, LIMITS)
            for task, archive in tiny_archives(folder).items()
        }
        self.expected = {
            (task, line): model._predictor.predict_json(json.loads(line))
            for task, model in self.models.items()
            for line in lines_of(task)
        }
        words = WordsInContext("elmo_mini", ElmoEmbedder("elmo_mini"), LIMITS)
        app = make_app(list(self.models.values()), words, LIMITS)
        self._socket = bound_socket("127.0.0.1", 0)
        self._address = self._socket.getsockname()
        server = server_of(app, LIMITS.timeout)
        threading.Thread(target=server.run, args=([self._socket],), daemon=True).start()
        self.check_health()

    def connected(self) -> socket.socket:
        return socket.create_connection(self._address, timeout=10)

    def check_health(self) -> None:
        status, _, body = self.answer(request_of("GET", "/health", b"", {}))
        check("a server that answers", status == 200 and json.loads(body) == {"status": "ok"})

    def answer(self, data: bytes) -> Tuple[int, Dict[str, str], bytes]:
        """Return the status, the headers and the body of the first answer."""
        with self.connected() as client:
            with contextlib.suppress(ConnectionError):  # it may refuse a body that is not sent yet
                client.sendall(data)
            response = http.client.HTTPResponse(client)
            response.begin()
            headers = {name.lower(): value for name, value in response.getheaders()}
            return response.status, headers, response.read()


def request_of(method: str, path: str, body: bytes, headers: Dict[bytes, bytes]) -> bytes:
    if method == "POST":
        headers = {b"Content-Length": b"%d" % len(body), **headers}
    lines = b"".join(b"%s: %s\r\n" % item for item in {b"Host": ADDRESS, **headers}.items())
    return f"{method} {path} HTTP/1.1\r\n".encode() + lines + b"\r\n" + body


def server(folder: Path) -> Trial:
    """Requests with damaged JSON, damaged HTTP, and bodies without an end."""
    _prepared()
    served = Served(folder)

    def trial(random: Random) -> None:
        kind = random.random()
        if kind < 0.6:
            _ask(random, served)
        elif kind < 0.9:
            _send_damaged(random, served)
        else:
            _send_huge(random, served)
        served.check_health()

    return trial


def _ask(random: Random, served: Served) -> None:
    task = random.choice([*served.models, "words"])
    line = json.dumps(EXAMPLE) if task == "words" else random.choice(lines_of(task))
    is_damaged = random.random() < 0.7
    body = _damaged(random, line) if is_damaged else line.encode()
    path = "/api/neighbors" if task == "words" else f"/api/models/{task}/predict"
    headers: Dict[bytes, bytes] = {}
    if random.random() < 0.3:
        headers[b"Content-Type"] = random.choice([b"text/plain", b"a/b; charset=utf-16", b"\xff"])
        headers[b"X-Forwarded-Host"] = b"127.0.0.1:8000"
    status, found, answer = served.answer(request_of("POST", path, body, headers))
    check(f"JSON, found {found['content-type']}", found["content-type"] == "application/json")
    if not is_damaged:
        check(f"200, found {status} {answer!r}", status == 200)
        if task != "words":
            check_same(json.loads(answer), served.expected[task, line])
    check(f"a status, found {status}", status in (200, 400, 413, 422))
    if status != 200:
        check_error(json.loads(answer))


def _send_damaged(random: Random, served: Served) -> None:
    """Send damaged requests one after the other, in pieces, and read what comes."""
    data = b""
    for _ in range(random.randint(1, 4)):
        task = random.choice(list(served.models))
        body = random.choice(lines_of(task)).encode()
        path = random.choice(["/", "/health", "/api/models", f"/api/models/{task}/predict", "/%00"])
        method = random.choice(["GET", "POST", "POST", "HEAD", "OPTIONS", "PUT", "TRACE"])
        request = request_of(method, path, body if method == "POST" else b"", {})
        if random.random() < 0.3:
            chunk = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
            request = request_of("POST", path, b"", {b"Transfer-Encoding": b"chunked"}) + chunk
        data += mutated_bytes(random, request) if random.random() < 0.7 else request
    with served.connected() as client, contextlib.suppress(ConnectionError, TimeoutError):
        client.settimeout(random.choice([0.01, 0.1]))
        place = 0
        while place < len(data):
            size = random.choice([1, 10, 100, 10_000])
            client.sendall(data[place : place + size])
            place += size
        received = b""
        while piece := client.recv(65536):
            received += piece
            statuses = re.findall(rb"HTTP/1\.1 (\d+) ", received)
            check(f"no error of the server: {statuses}", not any(s[:1] == b"5" for s in statuses))


def _send_huge(random: Random, served: Served) -> None:
    """Send a body that is too large, or that does not end, and see it refused early."""
    path = random.choice(["/api/models/ner/predict", "/api/neighbors", "/", "/no"])
    is_chunked = random.random() < 0.5
    length = {b"Transfer-Encoding": b"chunked"} if is_chunked else {b"Content-Length": b"99999999"}
    piece = b"a" * 65536
    chunk = b"10000\r\n" + piece + b"\r\n" if is_chunked else piece
    head = request_of("GET", path, b"", length).replace(b"GET", b"POST", 1)
    status, _, answer = served.answer(head + chunk * random.choice([1, 1, 30]))
    check(f"413, found {status}", status == 413)
    check_error(json.loads(answer))


def command_lines(folder: Path) -> Trial:
    """Words of a command line: they are accepted, or one line says what is wrong, with exit status 2."""
    canary = _prepared()
    os.chdir(folder)
    # What is accepted is not run.
    vocabulary = _words_of_commands()

    def declare(parser: Any, command: Any) -> None:
        if hasattr(command, "run"):
            command = _NotRun(command)
        _declare(parser, command)

    command_line.declare = declare
    report.declare = declare

    def trial(random: Random) -> None:
        words = [random.choice(list(command_line.COMMANDS))] if random.random() < 0.95 else []
        for _ in range(random.choice([0, 1, 2, 3, 6, 12])):
            words.append(random.choice(vocabulary) if random.random() < 0.7 else odd_word(random))
        words = [word.replace("\x00", "") for word in words if "include-package" not in word]
        words = [word for word in words if word != "--debug"]
        output, errors = io.StringIO(), io.StringIO()
        status: Any = 0
        with (
            canary.only_writes_in(folder / "nowhere"),
            contextlib.redirect_stdout(output),
            contextlib.redirect_stderr(errors),
        ):
            try:
                command_line.main(words)
            except SystemExit as error:
                status = error.code
        lines = errors.getvalue().splitlines()
        if status:
            check(f"status 2 for {words}, found {status}", status == 2)
            check(f"one line for {words}, found {lines}", len(lines) == 1)
            check(f"an error, found {lines[0]}", bool(re.match(r"elmo[a-z -]*: error: ", lines[0])))
        else:
            check(f"no errors of {words}, found {lines}", not lines)

    return trial


_declare = command_line.declare


class _NotRun:
    """A command that only parses its arguments."""

    def __init__(self, command: Any) -> None:
        self.DESCRIPTION, self.USAGE = command.DESCRIPTION, getattr(command, "USAGE", None)
        self.run = functools.wraps(command.run)(lambda options: None)


def _words_of_commands() -> List[str]:
    """Return the options of all commands, and values of all kinds."""
    words = ["x", "é", "-", "--", "0", "1", "-1", "1.5", "nan", "inf", "9" * 30]
    words += ["{}", '{"a": 1}', "[1]"]
    words += ["--no-such", "-h", "--help", "=", "--model=", "--seed=x", "a=b", ".", "/dev/null"]
    for name in command_line.COMMANDS:
        parser = command_line.LazyParser(prog="elmo")
        command_line.declare_command(name, parser)
        words += [option for action in parser._actions for option in action.option_strings]
        words += [str(choice) for action in parser._actions for choice in action.choices or ()]
    return words


# The program of a fresh process, which embeds the same sentences.
_FRESH = """
import sys, numpy
from elmo_plugin import ElmoEmbedder
words = open(sys.argv[1], encoding="utf-8").read().split("\\n")
vectors = ElmoEmbedder("elmo_mini").embed_batch([line.split(" ") for line in words])
numpy.savez(sys.argv[2], *vectors)
"""
WARM_UP = 20


def soak(folder: Path) -> Trial:
    """
    A process that embeds sentences and answers requests without an end: its memory stays, and its results are
    those of a fresh process.
    """
    _prepared()
    served = Served(folder)
    embedder = ElmoEmbedder("elmo_mini", word_cache_size=3000)
    sentences = [["The", "bank", "."], ["naïve", "日本語"], ["a"] * 40, ["x" * 80, "é"]]
    (folder / "words.txt").write_text("\n".join(map(" ".join, sentences)), "utf-8")
    files = [str(folder / name) for name in ("words.txt", "vectors.npz")]
    subprocess.run([sys.executable, "-c", _FRESH, *files], check=True)
    with numpy.load(files[1]) as stored:
        expected = list(stored.values())
    sizes: List[int] = []

    def trial(random: Random) -> None:
        for _ in range(20):
            words = [
                "".join(random.choices("abcdeé漢", k=random.randint(1, 9))) for _ in range(500)
            ]
            embedder.embed_batch([words[first : first + 10] for first in range(0, 500, 10)])
        found = embedder.embed_batch(sentences)
        check("the vectors of a fresh process", all(map(numpy.array_equal, found, expected)))
        for _ in range(100):
            _ask(random, served)
        sizes.append(megabytes("VmRSS"))
        if len(sizes) > WARM_UP:
            growth = sizes[-1] / max(sizes[:WARM_UP])
            check(f"at most 5 % more memory, found {growth:.3f}", growth <= 1.05)

    return trial


ATTACKS = [
    Attack("server", "damaged and huge requests are refused, and harm no other", server),
    Attack(
        "command_lines",
        "words of a command line are accepted, or one line says what is wrong",
        command_lines,
    ),
    Attack("soak", "a process that runs on has the memory and the results of a fresh one", soak),
]
