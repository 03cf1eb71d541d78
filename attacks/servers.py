"""A server that is stopped or killed at any time gives no half answer, and can be started again at once."""

import json
import logging
import signal
import threading
import time
from http.client import HTTPConnection, HTTPException, IncompleteRead
from pathlib import Path
from random import Random
from typing import Any, Dict, List, Tuple

import torch

from attacks.archives import tiny_archives
from attacks.cluster import ended, kill, start
from attacks.crashes import set_up_process
from attacks.requests import check_same, lines_of
from attacks.trials import Attack, Trial, check
from elmo_plugin.predictors import load_predictor
from elmo_plugin.serving.options import ServeOptions
from elmo_plugin.serving.server import bound_socket, serve

TASKS = ("ner", "sst")
# Loading, and some requests: a server is ended in the middle of either.
MOST_SECONDS_TO_SIGNAL = 3.0
# Far above what a server takes to start or to end.
MAX_SECONDS = 60.0


class Clients:
    """
    Threads that send requests until they are told to end. Each answer must be whole and right, or its
    connection ends; it may end within an answer only if the server `may_cut` them.
    """

    def __init__(self, port: int, expected: Dict[Tuple[str, str], Any], random: Random) -> None:
        self.may_cut = False
        self.failures: List[str] = []
        self._port, self._expected = port, expected
        self._is_ended = threading.Event()
        self._threads = [
            threading.Thread(target=self._send, args=(Random(random.random()),))
            for _ in range(random.randint(1, 4))
        ]
        for thread in self._threads:
            thread.start()

    def end(self, output: str) -> None:
        self._is_ended.set()
        for thread in self._threads:
            thread.join()
        check(f"whole answers, found {self.failures[:3]}\n{output}", not self.failures)

    def _send(self, random: Random) -> None:
        while not self._is_ended.is_set():
            try:
                ask(self._port, *random.choice(list(self._expected.items())))
            except IncompleteRead as error:
                if not self.may_cut:
                    self.failures.append(repr(error))
            except (ConnectionError, HTTPException):  # it does not listen, or has ended
                time.sleep(0.01)
            except Exception as error:
                self.failures.append(repr(error))


def ask(port: int, request: Tuple[str, str], expected: Any) -> None:
    """Send a line to the model of a task, and check the answer."""
    task, line = request
    connection = HTTPConnection("127.0.0.1", port, timeout=MAX_SECONDS)
    try:
        connection.request("POST", f"/api/models/{task}/predict", line.encode())
        response = connection.getresponse()
        body = response.read()
    finally:
        connection.close()
    check(f"200, found {response.status} {body!r}", response.status == 200)
    check_same(json.loads(body), expected)


def prepare_server(folder: Path) -> Trial:
    set_up_process()
    archives = {task: archive for task, archive in tiny_archives(folder).items() if task in TASKS}
    expected = {}
    for task, archive in archives.items():
        model = load_predictor(archive)
        for line in lines_of(task):
            expected[task, line] = model.predict_json(json.loads(line))
    with bound_socket("127.0.0.1", 0) as bound:
        port = bound.getsockname()[1]
    words = [f"{task}={archive}" for task, archive in archives.items()]
    log = folder / "trial.log"

    def run() -> None:
        logging.disable(logging.NOTSET)
        # After a fork, threads that use torch first at the same time get its error "Invalid thread pool!".
        torch.set_num_threads(1)
        serve(ServeOptions(words, port=port))

    def trial(random: Random) -> None:
        process = start(run, log)
        clients = Clients(port, expected, random)
        time.sleep(random.uniform(0, MOST_SECONDS_TO_SIGNAL))
        is_serving = "Serving" in log.read_text()
        number = random.choice([signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
        clients.may_cut = number == signal.SIGKILL
        kill(process, number)
        if random.random() < 0.2:
            time.sleep(random.uniform(0, 0.1))
            clients.may_cut = True
            kill(process, signal.SIGKILL)
        status = ended(process, max_seconds=MAX_SECONDS)
        output = log.read_text()
        clients.end(output)
        check(f"an end in {MAX_SECONDS:g} seconds\n{output}", status is not None)
        # A server that still loads has nothing to end.
        if is_serving and not clients.may_cut:
            check(f"status 0, found {status}\n{output}", status == 0)
        process = start(run, log)
        first = random.choice(list(expected.items()))
        ask_when_it_listens(port, first)
        for item in expected.items():
            ask(port, *item)
        kill(process, signal.SIGTERM)
        status = ended(process, max_seconds=MAX_SECONDS)
        check(f"status 0, found {status}\n{log.read_text()}", status == 0)

    return trial


def ask_when_it_listens(port: int, item: Tuple[Tuple[str, str], Any]) -> None:
    end = time.monotonic() + MAX_SECONDS
    while True:
        try:
            return ask(port, *item)
        except ConnectionRefusedError:
            check("a server that listens", time.monotonic() < end)
            time.sleep(0.02)


ATTACKS = [
    Attack(
        "killed_server",
        "a server that is stopped or killed at any time gives no half answer, and can be started again at "
        "the same address",
        prepare_server,
        max_seconds=60.0,
    )
]
