"""How many threads the C++ and torch are given."""

import threading
from typing import Any, List, Tuple

import pytest
import torch
from torch import Tensor

from elmo_plugin import FrozenBiLM, batch_to_ids
from elmo_plugin.bilm import threads
from elmo_plugin.bilm.simd.library import best_unit
from elmo_plugin.bilm.threads import (
    MULTIPLICATIONS_PER_THREAD,
    most_threads,
    num_threads_for,
    openmp_functions,
    torch_in_one_thread_if_crowded,
)
from tests.bilm.conftest import skip_without_library
from tests.conftest import BiLMFiles


@pytest.fixture
def torch_has_four_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """By default, on a machine without quotas and other work."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 4)
    monkeypatch.setattr(threads, "_TORCH_THREADS", 4)
    monkeypatch.setattr(threads, "usable_cpus", lambda: 8)
    monkeypatch.setattr(threads, "is_crowded", lambda: False)


@pytest.mark.usefixtures("torch_has_four_threads")
def test_each_thread_has_enough_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    work = [number * MULTIPLICATIONS_PER_THREAD for number in (0, 0.5, 1.5, 3, 100, 600, 10_000)]
    assert list(map(num_threads_for, work)) == [1, 1, 1, 3, 4, 4, 4]
    monkeypatch.setattr(threads, "is_crowded", lambda: True)
    assert list(map(num_threads_for, work)) == [1, 1, 1, 1, 1, 2, 4]


@pytest.mark.usefixtures("torch_has_four_threads")
def test_a_quota_limits_the_threads_that_nobody_chose(monkeypatch: pytest.MonkeyPatch) -> None:
    assert most_threads() == 4
    monkeypatch.setattr(threads, "usable_cpus", lambda: 2)
    assert most_threads() == num_threads_for(1e12) == 2
    # torch would wake up all four.
    assert not any(openmp_functions())
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)  # set_num_threads(3)
    assert most_threads() == 3
    monkeypatch.setattr(torch, "get_num_threads", lambda: 4)
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    assert most_threads() == num_threads_for(1e12) == 4


@pytest.fixture
def three_threads_in_a_crowd(
    same_threads_afterwards: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if threads._openmp_of_torch() is None:
        pytest.skip("The threads of this torch are not those of an OpenMP library that is known.")
    monkeypatch.setattr(threads, "is_crowded", lambda: True)
    torch.set_num_threads(3)


def numbers() -> Tuple[int, int]:
    """Return the number of threads of torch, and of large calls of the C++."""
    return torch.get_num_threads(), num_threads_for(1e12)


@pytest.mark.usefixtures("three_threads_in_a_crowd")
def test_in_a_crowd_torch_has_one_thread_until_the_end() -> None:
    assert numbers() == (3, 3)
    with pytest.raises(KeyboardInterrupt), torch_in_one_thread_if_crowded():
        with torch_in_one_thread_if_crowded():
            assert numbers() == (1, 3)
            assert all(openmp_functions())
        assert numbers() == (1, 3)
        raise KeyboardInterrupt
    assert numbers() == (3, 3)


@pytest.mark.usefixtures("three_threads_in_a_crowd")
def test_in_a_crowd_other_threads_of_the_program_keep_theirs() -> None:
    seen: List[Tuple[int, int]] = []

    def compute() -> None:
        torch.ones(100_000).add(1)
        seen.append(numbers())

    with torch_in_one_thread_if_crowded():
        other = threading.Thread(target=compute)
        other.start()
        other.join()
    assert seen == [(3, 3)]


@pytest.mark.parametrize("kernel", ["simd", "reference"])
@pytest.mark.usefixtures("three_threads_in_a_crowd")
def test_in_a_crowd_a_frozen_bilm_computes_the_same(
    kernel: str, bilm_files: BiLMFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kernel == "simd":
        skip_without_library(best_unit())
    frozen = FrozenBiLM.from_files(*bilm_files, kernel=kernel)
    words = batch_to_ids([["A", "cat", "sat"], ["No"]])
    monkeypatch.setattr(threads, "is_crowded", lambda: False)
    expected = frozen(words)["activations"]
    monkeypatch.setattr(threads, "is_crowded", lambda: True)
    seen: List[Tuple[int, int]] = []
    read = frozen.word_vectors.read

    def noted_read(*arguments: Any) -> Tensor:
        seen.append(numbers())
        return read(*arguments)

    monkeypatch.setattr(frozen.word_vectors, "read", noted_read)
    for ours, theirs in zip(frozen(words)["activations"], expected, strict=True):
        assert torch.equal(ours, theirs)
    # Nearly all of the reference's work is torch's.
    assert seen == [(1, 3) if kernel == "simd" else (3, 3)]
