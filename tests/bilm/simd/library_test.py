"""How many threads the C++ is given."""

import pytest
import torch

from elmo_plugin.bilm.simd import library
from elmo_plugin.bilm.simd.library import MULTIPLICATIONS_PER_THREAD, most_threads, num_threads_for


@pytest.fixture
def torch_has_four_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """By default, on a machine without quotas and other work."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 4)
    monkeypatch.setattr(library, "_TORCH_THREADS", 4)
    monkeypatch.setattr(library, "usable_cpus", lambda: 8)
    monkeypatch.setattr(library, "is_crowded", lambda: False)


@pytest.mark.usefixtures("torch_has_four_threads")
def test_each_thread_has_enough_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    work = [number * MULTIPLICATIONS_PER_THREAD for number in (0, 0.5, 1.5, 3, 100, 600, 10_000)]
    assert list(map(num_threads_for, work)) == [1, 1, 1, 3, 4, 4, 4]
    monkeypatch.setattr(library, "is_crowded", lambda: True)
    assert list(map(num_threads_for, work)) == [1, 1, 1, 1, 1, 2, 4]


@pytest.mark.usefixtures("torch_has_four_threads")
def test_a_quota_limits_the_threads_that_nobody_chose(monkeypatch: pytest.MonkeyPatch) -> None:
    assert most_threads() == 4
    monkeypatch.setattr(library, "usable_cpus", lambda: 2)
    assert most_threads() == num_threads_for(1e12) == 2
    # torch would wake up all four.
    assert not any(library.openmp_functions())
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)  # set_num_threads(3)
    assert most_threads() == 3
    monkeypatch.setattr(torch, "get_num_threads", lambda: 4)
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    assert most_threads() == num_threads_for(1e12) == 4
