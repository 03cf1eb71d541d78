"""
Run an attack: trials with random input, in a process that may hang, run out of memory or die.

Linux only. A trial is known by its number: its random numbers depend on the seed, the name of the attack and
that number alone, so that a failure can be repeated.
"""

import itertools
import multiprocessing
import os
import sys
import tempfile
import time
import traceback
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from typing import Any, Callable, List, NamedTuple

# Called with a generator of random numbers. Raises an exception if the promise was broken.
Trial = Callable[[Random], None]
PREPARING, DONE = -1, -2
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
    process that dies, or that is killed because a trial takes too long, is replaced by another.
    """
    outcome = Outcome(attack, seed)
    begin = time.monotonic()
    context = multiprocessing.get_context("forkserver")
    first = 0

    def add(failure: Failure) -> None:
        # What a process has sent before it is killed may be more.
        if len(outcome.failures) < max_failures:
            outcome.failures.append(failure)
            report(failure)

    def receive(kind: str, value: Any) -> bool:
        """Note a trial or a failure, and return whether no more are needed."""
        if kind == "failure":
            add(value)
        else:
            outcome.num_trials += value
        return len(outcome.failures) >= max_failures

    while first < max_trials and len(outcome.failures) < max_failures:
        seconds = max_seconds - (time.monotonic() - begin)
        if seconds <= 0 and first:
            break
        current = context.Value("q", PREPARING)
        receiver, sender = context.Pipe(duplex=False)
        with tempfile.TemporaryDirectory(prefix="attack-", ignore_cleanup_errors=True) as folder:
            process = context.Process(
                target=_work,
                args=(attack, seed, range(first, max_trials), seconds, folder, current, sender),
            )
            process.start()
            sender.close()
            is_killed = _watch(process, attack, current, receiver, receive)
            last = current.value
            if last == DONE:
                first = max_trials
            elif len(outcome.failures) < max_failures:
                number = max(last, first)
                what = "preparation" if last == PREPARING else "trial"
                limit = MAX_SECONDS_TO_PREPARE if last == PREPARING else attack.max_seconds
                how = (
                    f"the {what} took more than {limit:g} s of processor time, or {PATIENCE} times as long"
                    if is_killed
                    else f"the process ended with status {process.exitcode} in the {what}"
                )
                add(Failure(number, f"{how}\n{_end_of_log(Path(folder))}"))
                first = number + 1
                if last == PREPARING:
                    break
    outcome.seconds = time.monotonic() - begin
    return outcome


def _watch(
    process: Any,
    attack: Attack,
    current: Any,
    receiver: Connection,
    receive: Callable[[str, Any], bool],
) -> bool:
    """
    Wait until a process ends, and return whether it was killed because it took too long. `receive` gets its
    messages, and returns whether to kill it.
    """
    number, since, used = current.value, time.monotonic(), _processor_seconds(process.pid)
    is_open = True
    while is_open or process.is_alive():
        if is_open and receiver.poll(0.1):
            try:
                message = receiver.recv()
            except EOFError:
                is_open = False
                process.join(5)
                continue
            if receive(*message):
                process.kill()
        if current.value != number:
            number, since, used = current.value, time.monotonic(), _processor_seconds(process.pid)
        limit = MAX_SECONDS_TO_PREPARE if number == PREPARING else attack.max_seconds
        is_late = time.monotonic() - since > PATIENCE * limit
        if number != DONE and (is_late or _processor_seconds(process.pid) - used > limit):
            process.kill()
            process.join()
            return True
    process.join()
    return False


def _processor_seconds(process_id: int) -> float:
    """Return the processor time of a process without its children, 0 after its end."""
    try:
        status = Path(f"/proc/{process_id}/stat").read_text()
    except OSError:
        return 0.0
    # Fields 14 and 15; the second one, in brackets, may have spaces.
    fields = status.rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _work(
    attack: Attack,
    seed: int,
    numbers: range,
    seconds: float,
    folder: str,
    current: Any,
    sender: Connection,
) -> None:
    """Run trials in a process of their own, for a number of seconds, but at least one."""
    deadline = time.monotonic() + seconds
    log = os.open(Path(folder) / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for stream in (sys.stdout, sys.stderr):
        os.dup2(log, stream.fileno())
    place = Path(folder) / "work"
    place.mkdir()
    trial = attack.prepare(place)
    count = itertools.count(1)
    for number in numbers:
        current.value = number
        before = _megabytes("VmRSS")
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins at what is there now
        try:
            trial(generator(seed, attack.name, number))
        except Exception:
            sender.send(("failure", Failure(number, traceback.format_exc(limit=-6))))
        growth = _megabytes("VmHWM") - before
        if next(count) > 1 and growth > attack.max_megabytes:
            sender.send(("failure", Failure(number, f"the trial needed {growth:,} MB more")))
        sender.send(("trials", 1))
        if time.monotonic() > deadline:
            break
    current.value = DONE


def _megabytes(entry: str) -> int:
    status = Path("/proc/self/status").read_text()
    return (
        next(int(line.split()[1]) for line in status.splitlines() if line.startswith(entry)) // 1024
    )


def _end_of_log(folder: Path) -> str:
    log = folder / "log"
    return log.read_text(errors="replace")[-2000:] if log.exists() else ""


def as_table(outcomes: List[Outcome]) -> str:
    """Return a Markdown table with a row for each attack."""
    rows = ["| promise | attack | trials | seconds | failures |", "|---|---|---|---|---|"]
    rows += [
        f"| {outcome.attack.promise} | `{outcome.attack.name}` | {outcome.num_trials:,} | "
        f"{outcome.seconds:.0f} | {len(outcome.failures)} |"
        for outcome in outcomes
    ]
    return "\n".join(rows)
