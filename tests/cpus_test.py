import math
import os
from pathlib import Path
from typing import Dict

import pytest

from elmo_plugin import cpus

SYSTEMD = "0::/user.slice/job.scope\n"
CGROUPS_1 = "4:memory:/docker/1f\n3:cpuset:/docker/1f\n2:cpu,cpuacct:/docker/1f\n0::/\n"


@pytest.mark.parametrize(
    "cgroup, files, quota",
    [
        # Version 2.
        ("0::/\n", {"cpu.max": "100000 100000\n"}, 1),
        ("0::/\n", {"cpu.max": "150000 100000\n"}, 1.5),
        ("0::/\n", {"cpu.max": "max 100000\n"}, math.inf),
        ("0::/\n", {}, math.inf),
        (SYSTEMD, {"user.slice/job.scope/cpu.max": "50000 20000\n"}, 2.5),
        (
            SYSTEMD,
            {
                "user.slice/job.scope/cpu.max": "300000 100000",
                "user.slice/cpu.max": "200000 100000",
            },
            2,
        ),
        (
            SYSTEMD,
            {"user.slice/job.scope/cpu.max": "max 100000", "user.slice/cpu.max": "200000 100000"},
            2,
        ),
        ("0::/../other\n", {"cpu.max": "100000 100000"}, 1),  # of a process in another container
        # Version 1, and both.
        ("1:cpu:/\n", {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, math.inf),
        (
            CGROUPS_1,  # in the container
            {"cpu/cpu.cfs_quota_us": "200000\n", "cpu/cpu.cfs_period_us": "100000\n"},
            2,
        ),
        (
            CGROUPS_1,  # outside
            {
                "cpu/docker/1f/cpu.cfs_quota_us": "50000\n",
                "cpu/docker/1f/cpu.cfs_period_us": "100000\n",
                "cpu/cpu.cfs_quota_us": "-1",
                "cpu/cpu.cfs_period_us": "100000",
            },
            0.5,
        ),
        ("3:cpuset:/\n", {"cpu/cpu.cfs_quota_us": "1", "cpu/cpu.cfs_period_us": "1"}, math.inf),
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
    monkeypatch.setattr(cpus, "_own_quota", lambda: quota)
    assert cpus.usable_cpus() == usable


def test_without_affinity_all_cpus_are_usable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(cpus, "_own_quota", lambda: math.inf)
    for count, usable in [(8, 8), (None, 1)]:
        monkeypatch.setattr(os, "cpu_count", lambda count=count: count)
        assert cpus.usable_cpus() == usable
