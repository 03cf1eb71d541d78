"""
Processes that are killed, interrupted, or get an error from the system, at a chosen operation.

An operation is an event of Python's profiler: the begin or the end of a call. Nearly all that changes files
goes through a call from Python, so each state that a killed process can leave behind has a number.
"""

import errno
import os
import resource
import signal
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path
from random import Random
from types import FrameType
from typing import Any, Callable, Dict, NamedTuple

from tqdm import std as tqdm_module

from attacks.trials import BrokenPromise, check
from elmo_plugin.errors import ConfigurationError

COMPLETE, ERROR, INTERRUPTED, CRASHED = 0, 3, 130, 1

# Functions of C, by their names, that can change files or fail because of the disk.
_FILE_CALLS = {
    *{"open", "write", "writelines", "flush", "close", "truncate", "fsync"},
    *{"read", "readline", "readinto", "stat", "scandir", "listdir"},
    *{"replace", "rename", "unlink", "remove", "mkdir", "rmdir", "link"},
}
_ERRORS = [errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.EACCES, errno.EMFILE]


class Counts(NamedTuple):
    """Numbers of events in a process that was not disturbed."""

    calls: int  # of Python functions and of C functions, begins and ends
    file_calls: int  # those of functions in `_FILE_CALLS`


@dataclass(frozen=True)
class Disturbance:
    """What happens to a process, at which event."""

    kind: str = "none"  # or kill, interrupt, error, action, limit
    number: int = 0  # of the event, from 1; of a limit, bytes of a file
    only_file_calls: bool = True
    code: int = 0  # of an error
    action: Callable[[], None] = lambda: None
    clock_jumps: bool = False

    @classmethod
    def draw(cls, random: Random, counts: Counts) -> "Disturbance":
        """Return a disturbance at any of the events."""
        kind = random.choice(["kill", "kill", "interrupt", "error", "limit"])
        only_file_calls = kind == "error" or random.random() < 0.7
        number = random.randint(1, max(1, counts.file_calls if only_file_calls else counts.calls))
        if kind == "limit":
            number = random.choice([1, 100, 1_000, 4_096, random.randint(1, 200_000)])
        code = random.choice(_ERRORS)
        return cls(kind, number, only_file_calls, code, clock_jumps=random.random() < 0.2)


class Ended(NamedTuple):
    """How a process ended."""

    status: int  # one of the constants above, or minus the number of a signal
    message: str  # of its error
    counts: Counts


def run_disturbed(
    function: Callable[[], Any], log: Path, disturbance: Disturbance = Disturbance()
) -> Ended:
    """
    Call a function in a forked process, and return how that process ended.

    Raise `BrokenPromise` if it ended in another way than the disturbance explains: an error must be one
    of the classes that the command line shows as one line.
    """
    child = os.fork()
    if child == 0:
        _run(function, log, disturbance)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    lines = log.read_text(errors="replace").split("\n")
    numbers = [int(word) for word in lines[0].split()] if status in (COMPLETE, ERROR) else [0, 0]
    message = "\n".join(lines[1:])
    expected = {
        "kill": (COMPLETE, -signal.SIGKILL),
        "interrupt": (COMPLETE, INTERRUPTED),
        "none": (COMPLETE, ERROR),
    }.get(disturbance.kind, (COMPLETE, ERROR))
    # `shutil.rmtree` closes a folder again if the interrupt comes right after it has closed it.
    is_closed_twice = disturbance.kind == "interrupt" and os.strerror(errno.EBADF) in message
    if status not in expected and not is_closed_twice:
        raise BrokenPromise(f"{disturbance} ended with status {status}\n{message}")
    return Ended(status, message, Counts(*numbers))


def print_to(log: Path) -> int:
    """Let a forked process print to a file, whose number is returned, and be interrupted as a command is."""
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(output, 1)
    os.dup2(output, 2)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    return output


def _run(function: Callable[[], Any], log: Path, disturbance: Disturbance) -> None:
    """Call a function and end the process."""
    status, message = CRASHED, ""
    output = print_to(log)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # as Python does
    if disturbance.clock_jumps:
        generator = Random(disturbance.number)
        tqdm_module.time = lambda: generator.uniform(-1e9, 1e10)
    if disturbance.kind == "limit":
        resource.setrlimit(resource.RLIMIT_FSIZE, (disturbance.number, resource.RLIM_INFINITY))
    counter = _Counter(disturbance)
    try:
        try:
            sys.setprofile(counter)
            function()
        finally:
            sys.setprofile(None)
        status = COMPLETE
    except KeyboardInterrupt:
        status = INTERRUPTED
    except (OSError, ConfigurationError) as error:
        status, message = ERROR, str(error)
    except BaseException:
        message = traceback.format_exc()
    if disturbance.kind == "limit":
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    os.truncate(log, 0)
    os.lseek(output, 0, os.SEEK_SET)
    os.write(output, f"{counter.calls} {counter.file_calls}\n{message}".encode(errors="replace"))
    os._exit(status)


class _Counter:
    """A function for `sys.setprofile` that counts events and disturbs at one."""

    def __init__(self, disturbance: Disturbance) -> None:
        self.calls = self.file_calls = 0
        self._disturbance = disturbance
        self._is_done = False

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        self.calls += 1
        is_file_call = event[0] == "c" and getattr(argument, "__name__", "") in _FILE_CALLS
        self.file_calls += is_file_call
        count = self.file_calls if self._disturbance.only_file_calls else self.calls
        kind = self._disturbance.kind
        if kind in ("none", "limit") or self._is_done or count < self._disturbance.number:
            return
        if kind == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif kind == "interrupt":
            self._is_done = True
            os.kill(os.getpid(), signal.SIGINT)
        elif kind == "action":
            self._is_done = True
            self._disturbance.action()
        # In place of the call. Not of `close`, as the file would stay open.
        elif event == "c_call" and is_file_call and argument.__name__ != "close":
            self._is_done = True
            raise OSError(self._disturbance.code, os.strerror(self._disturbance.code))


def contents(path: Path) -> Dict[str, bytes]:
    """Return the bytes of a file, or of all files in a folder, by their names in it; empty if missing."""
    files = [path] if path.is_file() else sorted(path.rglob("*"))
    return {str(file.relative_to(path)): file.read_bytes() for file in files if file.is_file()}


def check_complete(ended: Ended) -> None:
    check(f"a run that is complete, found: {ended.message}", ended.status == COMPLETE)
