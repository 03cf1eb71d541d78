"""The CPUs that this process may use, and whether other work keeps it from using them."""

import functools
import math
import os
import time
from pathlib import Path
from typing import Dict, NamedTuple, Tuple

# A reading takes 10 to 20 microseconds for each thread.
SECONDS_BETWEEN_READINGS = 0.5

# A share of the time that threads want to run. On a machine without other work they wait for a hundredth of
# it; beside a busy process for each CPU, for a third or half.
CROWDED_SHARE = 0.2


def usable_cpus() -> int:
    """
    Return the number of CPUs that this process may use, at least 1: those of its affinity, but no more than
    whole CPUs of its quota. Threads that use up a quota are stopped until its next period.
    """
    return max(1, int(min(affinity_cpus(), cpu_quota())))


def affinity_cpus() -> int:
    """Return the number of CPUs that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1  # macOS


@functools.cache
def cpu_quota(root: Path = Path("/")) -> float:
    """
    Return the number of CPUs whose time this process may use by the control groups of Linux, versions 1 and
    2; infinite if nothing limits it. The group of a process and those around it each may have a quota.
    """
    quotas = [math.inf]
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, _, controllers_and_path = line.partition(":")
        controllers, _, path = controllers_and_path.partition(":")
        if controllers and "cpu" not in controllers.split(","):
            continue
        folder = root / "sys/fs/cgroup" / ("cpu" if controllers else "")
        # In a container the folder of its group may stand at the root, and the path lead nowhere.
        for group in (Path(path), *Path(path).parents):
            quotas.append(
                _quota_of(folder / str(group).lstrip("/"), version=1 if controllers else 2)
            )
    return min(quotas)


def _quota_of(group: Path, version: int) -> float:
    if version == 2:
        fields = _read(group / "cpu.max").split()
    else:
        fields = [_read(group / "cpu.cfs_quota_us"), _read(group / "cpu.cfs_period_us")]
    try:
        quota, period = map(int, fields)
    except ValueError:  # no such file, or "max"
        return math.inf
    return quota / period if quota > 0 and period > 0 else math.inf


class _Reading(NamedTuple):
    time: float
    threads: Dict[str, Tuple[int, int]]  # see `thread_times`
    is_crowded: bool


_reading = _Reading(-math.inf, {}, False)


def is_crowded() -> bool:
    """
    Return whether the threads of this process have lately waited for CPUs, because of other processes or of
    its own threads. Always false where the system has no `/proc/self/task/*/schedstat`.
    """
    global _reading
    last, now = _reading, time.monotonic()
    if now - last.time >= SECONDS_BETWEEN_READINGS:
        threads = thread_times()
        ran = waited = 0
        for name in threads.keys() & last.threads.keys():
            ran += threads[name][0] - last.threads[name][0]
            waited += threads[name][1] - last.threads[name][1]
        _reading = _Reading(now, threads, waited > CROWDED_SHARE * (ran + waited))
    return _reading.is_crowded


def thread_times(tasks: Path = Path("/proc/self/task")) -> Dict[str, Tuple[int, int]]:
    """Return the nanoseconds that each thread has run, and has waited for a CPU, by its number."""
    times = {}
    for thread in os.listdir(tasks) if tasks.exists() else ():
        fields = _read(tasks / thread / "schedstat").split()
        if len(fields) == 3:  # not if it has just ended
            times[thread] = int(fields[0]), int(fields[1])
    return times


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
