"""`allennlp train` as a process of its own: its config, its start and end, and its failure in one line."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Iterator, List, Mapping, Optional, Sequence

import elmo_plugin

# The configs of this package.
CONFIGS = Path(elmo_plugin.__file__).with_name("training_configs")

SECONDS_TO_STOP = 10.0
SECONDS_BETWEEN_POLLS = 0.5
# An environment variable of trainings: the process that has started them.
_STARTED_BY = "ELMO_STARTED_BY"
# The last line of a traceback, such as `allennlp.common.checks.ConfigurationError: ...`.
_ERROR_LINE = re.compile(
    r"^[A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit|Received)\b.*", re.MULTILINE
)


def config_path(name: str) -> Path:
    """
    Return the path of a config: a file, or an experiment of this package by its name, such as `ner_small`.
    """
    of_package = CONFIGS / f"{name.removesuffix('.jsonnet')}.jsonnet"
    is_name = Path(name).name == name and not Path(name).exists()
    return of_package if is_name and of_package.exists() else Path(name)


def train_command(
    config_file: Path,
    serialization_dir: Path,
    *arguments: str,
    include_package: Sequence[str] = (),
) -> List[str]:
    """Return the command that trains a config, with `--recover` or `--force` among `arguments`."""
    packages = dict.fromkeys(["elmo_plugin", *include_package])
    return [
        *(sys.executable, "-m", "allennlp", "train", str(config_file)),
        *("-s", str(serialization_dir), "--file-friendly-logging", *arguments),
        *(argument for package in packages for argument in ("--include-package", package)),
    ]


def start_training(
    command: Sequence[str],
    log_file: Path,
    environment: Optional[Mapping[str, str]] = None,
    folder: Optional[Path] = None,
) -> subprocess.Popen:
    """
    Start a command that writes to a log, in this folder, by default that of this process. Its process group
    is its own, so that it can be stopped with the processes that it starts; see also `end_with_parent`.
    """
    environment = {**(environment or os.environ), _STARTED_BY: str(os.getpid())}
    if "PYTHONPATH" in environment:  # it may be relative to this folder
        paths = environment["PYTHONPATH"].split(os.pathsep)
        environment["PYTHONPATH"] = os.pathsep.join(map(os.path.abspath, paths))
    with open(log_file, "w", encoding="utf-8") as log:
        return subprocess.Popen(
            command,
            env=environment,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def end_with_parent() -> None:
    """
    In a training that `start_training` has started: end with that process, however it is killed. Otherwise
    the training would go on beside the one that resumes it, in the same folder.
    """
    parent = os.environ.pop(_STARTED_BY, None)
    if parent is None:
        return

    def watch(parent_id: int) -> None:
        while os.getppid() == parent_id:
            time.sleep(SECONDS_BETWEEN_POLLS)
        os.killpg(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, args=(int(parent),), daemon=True).start()


def stop_training(processes: Sequence[subprocess.Popen]) -> None:
    """Stop processes, with those that they have started: by SIGTERM, and after ten seconds by SIGKILL."""
    for process in processes:
        _signal_group(process, signal.SIGTERM)
    for process in processes:
        with suppress(subprocess.TimeoutExpired):
            process.wait(SECONDS_TO_STOP)
        _signal_group(process, signal.SIGKILL)
        process.wait()


def failure_reason(return_code: int, log_file: Path) -> str:
    """Return the reason of a failure in one line, from the exit code and the log."""
    if return_code < 0:
        hint = ", perhaps for lack of memory" if return_code == -signal.SIGKILL else ""
        reason = f"stopped by signal {-return_code}{hint}"
    else:
        log = log_file.read_text(encoding="utf-8", errors="replace").strip()
        lines = _ERROR_LINE.findall(log) or log.split("\n")
        reason = lines[-1].strip() or f"exited with code {return_code} and an empty log"
    return f"{reason} (log: {log_file})"


@contextmanager
def sigterm_interrupts() -> Iterator[None]:
    """
    Let SIGTERM do within the context what Ctrl-C does, so that no process and no partial file is left behind;
    and SIGHUP, with which a closed terminal ends its programs, unless `nohup` has made them ignore it. Only
    the main thread may set that; in others nothing changes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    # Windows has no SIGHUP. `getsignal` returns `None` for a handler that Python did not install.
    numbers = [getattr(signal, name, None) for name in ("SIGTERM", "SIGHUP")]
    previous = {
        number: signal.signal(number, interrupt)
        for number in numbers
        if number is not None and signal.getsignal(number) not in (signal.SIG_IGN, None)
    }
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _signal_group(process: subprocess.Popen, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):  # it has already ended
        os.killpg(process.pid, number)
