"""`allennlp train` as a process of its own."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Tuple

import pytest

from elmo_plugin.compat.training_process import (
    CONFIGS,
    config_path,
    failure_reason,
    sigterm_interrupts,
    start_training,
    stop_training,
    train_command,
)
from tests.conftest import REPOSITORY, run_program


def is_running(process_id: int) -> bool:
    state = run_program("ps", "-o", "stat=", "-p", process_id).stdout.strip()
    return state[:1] not in ("", "Z")


def ends_within(seconds: float, process_id: int) -> bool:
    """Wait until a process ends, or some seconds. All of these tests' would run for 100 s."""
    deadline = time.monotonic() + seconds
    while is_running(process_id) and time.monotonic() < deadline:
        time.sleep(0.1)
    return not is_running(process_id)


def start_program(program: str, folder: Path) -> Tuple[subprocess.Popen, int]:
    """Start a program in Python; return it with the id, which it prints, of a process that it has started."""
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        text=True,
        # As a test that runs under nohup would pass it on.
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),
    )
    return process, int(process.stdout.readline())


def test_a_config_is_a_file_or_an_experiment_of_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert (
        config_path("ner_small")
        == config_path("ner_small.jsonnet")
        == CONFIGS / "ner_small.jsonnet"
    )
    assert (CONFIGS / "ner_small.jsonnet").is_file()
    for other in ("other", "mine/ner_small.jsonnet", "ner_small.json"):
        assert config_path(other) == Path(other)
    (tmp_path / "ner_small.jsonnet").write_text("{}")  # a file of this name comes first
    assert config_path("ner_small.jsonnet") == Path("ner_small.jsonnet")


def test_the_command_imports_each_package_once() -> None:
    command = train_command(
        Path("c.json"), Path("run"), "--force", include_package=("mine", "elmo_plugin")
    )
    assert command[1:5] == ["-m", "allennlp", "train", "c.json"]
    assert command[-4:] == ["--include-package", "elmo_plugin", "--include-package", "mine"]
    assert "--force" in command


def test_a_relative_python_path_holds_in_another_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "other").mkdir()
    (tmp_path / "my_module.py").write_text("print('found')")
    command = [sys.executable, "-S", "-c", "import my_module"]
    environment = {**os.environ, "PYTHONPATH": "."}
    process = start_training(command, tmp_path / "log", environment, tmp_path / "other")
    assert process.wait() == 0
    assert (tmp_path / "log").read_text() == "found\n"


def test_what_a_process_has_started_is_stopped_with_it(tmp_path: Path) -> None:
    process = start_training(["sh", "-c", "sleep 100 & echo $! && wait"], tmp_path / "log")
    while not (tmp_path / "log").read_text():
        assert process.poll() is None
        time.sleep(0.01)
    child = int((tmp_path / "log").read_text())
    stop_training([process])
    assert process.returncode is not None
    # A busy machine ends it later than it is sent the signal.
    assert ends_within(30, child)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_the_end_of_a_terminal_stops_what_a_process_has_started(
    number: signal.Signals, tmp_path: Path
) -> None:
    program = """
from pathlib import Path
from elmo_plugin.compat.training_process import *
with sigterm_interrupts():
    process = start_training(["sleep", "100"], Path("log"))
    try:
        print(process.pid, flush=True)
        process.wait()
    finally:
        stop_training([process])
"""
    parent, child = start_program(program, tmp_path)
    parent.send_signal(number)
    _, error = parent.communicate()
    if is_left := is_running(child):
        os.kill(child, signal.SIGKILL)
    assert not is_left
    assert "KeyboardInterrupt" in error


def test_a_training_ends_with_a_process_that_is_killed(tmp_path: Path) -> None:
    child = """
from elmo_plugin.compat.training_process import *
end_with_parent()
print("waits", flush=True)
time.sleep(100)
"""
    program = f"""
import sys, time
from pathlib import Path
from elmo_plugin.compat.training_process import start_training
print(start_training([sys.executable, "-c", {child!r}], Path("log")).pid, flush=True)
time.sleep(100)
"""
    parent, number = start_program(program, tmp_path)
    while "waits" not in (tmp_path / "log").read_text():
        assert not ends_within(0.02, number)
    parent.kill()
    parent.wait()
    is_left = not ends_within(60, number)
    if is_left:
        os.kill(number, signal.SIGKILL)
    assert not is_left


def test_signals_do_afterwards_what_they_did_before() -> None:
    numbers = [signal.SIGTERM, signal.SIGHUP]
    previous = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    try:
        handlers = list(map(signal.getsignal, numbers))
        with sigterm_interrupts():
            os.kill(os.getpid(), signal.SIGHUP)
            assert signal.getsignal(signal.SIGTERM) not in handlers
        assert list(map(signal.getsignal, numbers)) == handlers
    finally:
        signal.signal(signal.SIGHUP, previous)


@pytest.mark.parametrize(
    "log, return_code, failure",
    [
        ("ValueError: first\nRuntimeError: then\n", 1, "RuntimeError: then"),
        ("the last line\n\n", 3, "the last line"),
        ("", 3, "exited with code 3 and an empty log"),
        ("RuntimeError: earlier\n", -9, "stopped by signal 9, perhaps for lack of memory"),
        ("", -15, "stopped by signal 15"),
    ],
)
def test_a_failure_is_one_line(log: str, return_code: int, failure: str, tmp_path: Path) -> None:
    log_file = tmp_path / "log"
    log_file.write_text(log)
    assert failure_reason(return_code, log_file) == f"{failure} (log: {log_file})"
