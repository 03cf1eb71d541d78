"""
Run an attack: trials with random input, in a process that may hang, run out of memory or die.

Linux only. A trial is known by its number: its random numbers depend on the seed, the name of the attack and
that number alone, so that a failure can be repeated.
"""

import multiprocessing
import os
import signal
import sys
import tempfile
import time
import traceback
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from random import Random
from typing import Any, Callable, Iterator, List, NamedTuple

# Called with a generator of random numbers. Raises an exception if the promise was broken.
Trial = Callable[[Random], None]
PREPARING, DONE = -1, "done"
# What takes a second of processor time may take so many seconds on a busy machine.
PATIENCE = 10
MAX_SECONDS_TO_PREPARE = 100.0


@dataclass(frozen=True)
class Attack:
    """
    `prepare` gets an empty folder and returns what runs one trial. A trial fails if it raises an exception,
    ends its process, takes too long, or needs too much memory beyond what earlier trials needed.
    """

    name: str
    promise: str
    prepare: Callable[[Path], Trial]
    max_seconds: float = (
        20.0  # of processor time, of a trial; and a `PATIENCE` times as long in all
    )
    max_megabytes: int = 1000


class Failure(NamedTuple):
    """The number of a trial, and what happened. `reason` is shortened where it is shown."""

    number: int
    reason: str


@dataclass
class Outcome:
    """What was tried, and what failed."""

    attack: Attack
    seed: int
    num_trials: int = 0
    seconds: float = 0.0
    failures: List[Failure] = field(default_factory=list)


class BrokenPromise(AssertionError):
    """What the package did, and what it promises."""


def check(expected: str, is_kept: bool) -> None:
    """Raise `BrokenPromise` unless what is expected was found."""
    if not is_kept:
        raise BrokenPromise(f"expected {expected}")


def generator(seed: int, name: str, number: int) -> Random:
    """Return the random numbers of a trial."""
    return Random(f"{seed}/{name}/{number}")


def run_attack(
    attack: Attack,
    seed: int = 0,
    max_seconds: float = 60.0,
    max_trials: int = sys.maxsize,
    max_failures: int = 20,
    report: Callable[[Failure], None] = lambda failure: None,
) -> Outcome:
    """
    Run trials one after another until one of the limits is reached. `report` is called with each failure. A
    process that dies, or that the system ends because a trial takes too long, is replaced by another.
    """
    outcome = Outcome(attack, seed)
    begin = time.monotonic()
    context = multiprocessing.get_context("forkserver")
    is_done = False
    while not is_done:
        current = context.Value("q", PREPARING)
        numbers = range(outcome.num_trials, max_trials)
        seconds = max_seconds - (time.monotonic() - begin)
        limits = seconds, max_failures - len(outcome.failures)
        receiver, sender = context.Pipe(duplex=False)
        with tempfile.TemporaryDirectory(prefix="attack-", ignore_cleanup_errors=True) as folder:
            process = context.Process(
                target=_work, args=(attack, seed, numbers, *limits, folder, current, sender)
            )
            process.start()
            sender.close()
            failures = []
            for message in _messages_of(process, receiver):
                if message == DONE:
                    is_done = True
                    break
                failures.append(message)
                report(message)
            process.join()
            if not is_done:
                failures.append(_end_of(process, attack, numbers, current.value, Path(folder)))
                report(failures[-1])
                is_done = current.value == PREPARING
        outcome.failures += failures
        if current.value != PREPARING:
            outcome.num_trials = current.value + 1
        is_done |= outcome.num_trials >= max_trials or len(outcome.failures) >= max_failures
        is_done |= time.monotonic() > begin + max_seconds
    outcome.seconds = time.monotonic() - begin
    return outcome


def _messages_of(process: Any, receiver: Connection) -> Iterator[Any]:
    """Yield what a process sends until it ends. Those that it has started may keep the pipe open."""
    while receiver in wait([receiver, process.sentinel]):
        try:
            yield receiver.recv()
        except EOFError:
            return


def _end_of(process: Any, attack: Attack, numbers: range, current: int, folder: Path) -> Failure:
    """Return the failure of a process that ended in its preparation or in a trial."""
    what, limit = "trial", attack.max_seconds
    if current == PREPARING:
        what, limit = "preparation", MAX_SECONDS_TO_PREPARE
    if process.exitcode in (-signal.SIGPROF, -signal.SIGALRM):
        how = (
            f"the {what} took more than {limit:g} s of processor time, or {PATIENCE} times as long"
        )
    else:
        how = f"the process ended with status {process.exitcode} in the {what}"
    log = folder / "log"
    output = log.read_text(errors="replace")[-2000:] if log.exists() else ""
    return Failure(max(current, numbers.start), f"{how}\n{output}")


def _work(
    attack: Attack,
    seed: int,
    numbers: range,
    seconds: float,
    max_failures: int,
    folder: str,
    current: Any,
    sender: Connection,
) -> None:
    """Run trials in a process of their own, for a number of seconds, but at least one."""
    end = time.monotonic() + seconds
    log = os.open(Path(folder) / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for stream in (sys.stdout, sys.stderr):
        os.dup2(log, stream.fileno())
    place = Path(folder) / "work"
    place.mkdir()
    _end_after(MAX_SECONDS_TO_PREPARE)
    trial = attack.prepare(place)
    num_failures = 0
    for number in numbers:
        current.value = number
        _end_after(attack.max_seconds)
        before = megabytes("VmRSS")
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins at what is there now
        reason = ""
        try:
            trial(generator(seed, attack.name, number))
        except Exception:
            reason = traceback.format_exc(limit=-6)
        growth = megabytes("VmHWM") - before
        if not reason and number > numbers.start and growth > attack.max_megabytes:
            reason = f"the trial needed {growth:,} MB more"
        if reason:
            sender.send(Failure(number, reason))
            num_failures += 1
        if time.monotonic() > end or num_failures == max_failures:
            break
    sender.send(DONE)


def _end_after(max_seconds: float) -> None:
    """Have the system end this process by a signal, of timers that its own processes do not inherit."""
    signal.setitimer(signal.ITIMER_PROF, max_seconds)  # of the processor, in all threads
    signal.setitimer(signal.ITIMER_REAL, PATIENCE * max_seconds)


def megabytes(entry: str) -> int:
    """Return an entry of the status of this process, such as `VmRSS`, in MB."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition(f"{entry}:")[2].split()[0]) // 1024


def as_table(outcomes: List[Outcome]) -> str:
    """Return a Markdown table with a row for each attack."""
    rows = ["| promise | attack | trials | seconds | failures |", "|---|---|---|---|---|"]
    rows += [
        f"| {outcome.attack.promise} | `{outcome.attack.name}` | {outcome.num_trials:,} | "
        f"{outcome.seconds:.0f} | {len(outcome.failures)} |"
        for outcome in outcomes
    ]
    return "\n".join(rows)
