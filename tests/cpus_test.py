import math
import os
import threading
from pathlib import Path
from typing import Dict, Tuple

import pytest

from elmo_plugin import cpus

SYSTEMD = "0::/user.slice/job.scope\n"
JOB, SLICE = "user.slice/job.scope/cpu.max", "user.slice/cpu.max"
CGROUPS_1 = "4:memory:/docker/1f\n3:cpuset:/docker/1f\n2:cpu,cpuacct:/docker/1f\n0::/\n"


def of_version_1(quota: str, period: str, folder: str = "cpu") -> Dict[str, str]:
    return {f"{folder}/cpu.cfs_quota_us": quota, f"{folder}/cpu.cfs_period_us": period}


NO_QUOTA_1 = of_version_1("-1", "100000")


@pytest.mark.parametrize(
    "cgroup, files, quota",
    [
        # Version 2.
        ("0::/\n", {"cpu.max": "100000 100000\n"}, 1),
        ("0::/\n", {"cpu.max": "150000 100000\n"}, 1.5),
        ("0::/\n", {"cpu.max": "max 100000\n"}, math.inf),
        ("0::/\n", {}, math.inf),
        (SYSTEMD, {JOB: "50000 20000\n"}, 2.5),
        (SYSTEMD, {JOB: "300000 100000", SLICE: "200000 100000"}, 2),
        (SYSTEMD, {JOB: "max 100000", SLICE: "200000 100000"}, 2),
        ("0::/../other\n", {"cpu.max": "100000 100000"}, 1),  # of a process in another container
        # Version 1, and both; in the container, and outside.
        ("1:cpu:/\n", NO_QUOTA_1, math.inf),
        (CGROUPS_1, of_version_1("200000\n", "100000\n"), 2),
        (CGROUPS_1, {**of_version_1("50000\n", "100000\n", "cpu/docker/1f"), **NO_QUOTA_1}, 0.5),
        ("3:cpuset:/\n", of_version_1("1", "1"), math.inf),
        # What no kernel writes.
        ("0::/\n", {"cpu.max": ""}, math.inf),
        ("0::/\n", {"cpu.max": "100000"}, math.inf),
        ("0::/\n", {"cpu.max": "a b"}, math.inf),
        ("0::/\n", {"cpu.max": "100000 0"}, math.inf),
        ("1:cpu:/\n", {"cpu/cpu.cfs_quota_us": "100000"}, math.inf),
        ("nonsense\n\n", {}, math.inf),
        ("", {}, math.inf),
    ],
)
def test_the_quota_of_control_groups(
    cgroup: str, files: Dict[str, str], quota: float, tmp_path: Path
) -> None:
    for name, text in {"proc/self/cgroup": cgroup, **files}.items():
        path = tmp_path / (name if name.startswith("proc") else f"sys/fs/cgroup/{name}")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert cpus.cpu_quota(tmp_path) == quota


def test_no_control_groups(tmp_path: Path) -> None:
    assert cpus.cpu_quota(tmp_path) == math.inf


@pytest.mark.parametrize(
    "affinity, quota, usable", [(4, math.inf, 4), (4, 2.9, 2), (4, 0.5, 1), (2, 8, 2)]
)
def test_usable_cpus(
    affinity: int, quota: float, usable: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(affinity)), raising=False)
    monkeypatch.setattr(cpus, "cpu_quota", lambda: quota)
    assert cpus.usable_cpus() == usable


def test_without_affinity_all_cpus_are_usable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(cpus, "cpu_quota", lambda: math.inf)
    for count, usable in [(8, 8), (None, 1)]:
        monkeypatch.setattr(os, "cpu_count", lambda count=count: count)
        assert cpus.usable_cpus() == usable


class Machine:
    """Threads that run and wait as told."""

    def __init__(self) -> None:
        self.time = 1000.0
        self.threads: Dict[str, Tuple[int, int]] = {}
        self.num_readings = 0

    def read(self) -> Dict[str, Tuple[int, int]]:
        self.num_readings += 1
        return dict(self.threads)

    def passes(self, seconds: float, **ran_and_waited: Tuple[int, int]) -> bool:
        """Return whether it is crowded after these seconds."""
        self.time += seconds
        for name, (ran, waited) in ran_and_waited.items():
            before = self.threads.get(name, (0, 0))
            self.threads[name] = before[0] + ran, before[1] + waited
        return cpus.is_crowded()


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    machine = Machine()
    monkeypatch.setattr(cpus, "_reading", cpus._Reading(-math.inf, {}, False))
    monkeypatch.setattr(cpus, "thread_times", machine.read)
    monkeypatch.setattr(cpus.time, "monotonic", lambda: machine.time)
    return machine


def test_a_machine_is_crowded_while_threads_wait_for_cpus(machine: Machine) -> None:
    assert not machine.passes(0, main=(100, 900), worker=(100, 900))  # The past is not known.
    assert not machine.passes(1, main=(100, 1), worker=(100, 1))
    assert machine.passes(1, main=(100, 0), worker=(100, 60))
    assert not machine.passes(1, main=(100, 40), worker=(100, 0))
    assert machine.passes(1, main=(100, 40), worker=(100, 40))
    assert not machine.passes(1)  # No thread has run.


def test_threads_that_start_or_end_do_not_count(machine: Machine) -> None:
    machine.passes(0, main=(100, 0), ending=(100, 900))
    del machine.threads["ending"]
    assert not machine.passes(1, main=(100, 0), starting=(100, 900))
    assert machine.passes(1, main=(100, 0), starting=(100, 900))


def test_times_are_read_twice_a_second(machine: Machine) -> None:
    machine.passes(0)
    assert [machine.passes(0.1, main=(1, 1)) for _ in range(4)] == [False] * 4
    assert machine.num_readings == 1
    machine.passes(0.2)
    assert machine.num_readings == 2


def test_times_of_threads(tmp_path: Path) -> None:
    for name, text in {"7": "30 20 1\n", "8": "3 4 1\n", "9": ""}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "schedstat").write_text(text)
    (tmp_path / "10").mkdir()
    assert cpus.thread_times(tmp_path) == {"7": (30, 20), "8": (3, 4)}
    assert cpus.thread_times(tmp_path / "none") == {}


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="Linux says it")
def test_this_process_has_times() -> None:
    own = cpus.thread_times()[str(threading.get_native_id())]
    assert own[0] > 0
