"""How many threads the C++ is given, and what is said where it was not compiled."""

from pathlib import Path
from typing import Iterator

import pytest
import torch

from elmo_plugin import ElmoEmbedder
from elmo_plugin.bilm.simd import library
from elmo_plugin.bilm.simd.library import (
    MULTIPLICATIONS_PER_THREAD,
    best_unit,
    most_threads,
    num_threads_for,
)


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


@pytest.fixture
def without_libraries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As the wheel without compiled libraries is installed."""
    if best_unit() is None:
        pytest.skip("No library is for this processor.")
    monkeypatch.setattr(library, "__file__", str(tmp_path / "library.py"))
    library._library_problem.cache_clear()
    yield
    library._library_problem.cache_clear()


@pytest.mark.usefixtures("without_libraries")
def test_without_libraries_one_line_says_that_it_is_slower(
    caplog: pytest.LogCaptureFixture,
) -> None:
    for _ in range(2):
        assert ElmoEmbedder("elmo_mini").embed_sentence(["Hello"]).shape == (3, 1, 256)
    assert caplog.messages == [
        "The simd kernel cannot be used, so ELMo runs at half of its speed or less: it was not compiled "
        f"for {best_unit()} when elmo_plugin was installed; install the wheel of this platform, or g++ or "
        "clang and then elmo_plugin from its sources."
    ]
