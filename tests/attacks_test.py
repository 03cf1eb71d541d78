"""Attacks find what breaks a promise: exceptions, processes that end, endless trials, and memory."""

import os
import shutil
import signal
import sys
import time
from pathlib import Path
from random import Random
from typing import Callable

import pytest

from attacks.trials import Attack, as_table, generator, run_attack
from elmo_plugin.bilm.processor import CAPABILITY_VARIABLE, processor_features
from tests.conftest import REPOSITORY, run_program


def prepare_numbers(folder: Path) -> Callable[[Random], None]:
    """Fails in about one of ten trials."""

    def trial(random: Random) -> None:
        if random.random() < 0.1:
            raise ValueError(f"found in {folder.name}")

    return trial


def prepare_kill(folder: Path) -> Callable[[Random], None]:
    def trial(random: Random) -> None:
        print("what was written before", flush=True)
        if random.random() < 0.5:
            os.kill(os.getpid(), signal.SIGSEGV)

    return trial


def prepare_wait(folder: Path) -> Callable[[Random], None]:
    return lambda random: time.sleep(1000)


def prepare_work(folder: Path) -> Callable[[Random], None]:
    def trial(random: Random) -> None:
        while True:
            pass

    return trial


def prepare_memory(folder: Path) -> Callable[[Random], None]:
    count = 0

    def trial(random: Random) -> None:
        nonlocal count
        count += 1
        bytearray(b"a" * 2**27 if count == 3 else b"")

    return trial


def fail_to_prepare(folder: Path) -> Callable[[Random], None]:
    raise ValueError("no model")


def test_exceptions_fail_the_same_trials_in_each_run() -> None:
    attack = Attack("numbers", "none is small", prepare_numbers)
    outcome = run_attack(attack, seed=3, max_trials=50)
    small = [number for number in range(50) if generator(3, "numbers", number).random() < 0.1]
    assert [failure.number for failure in outcome.failures] == small != []
    assert outcome.num_trials == 50
    assert all("ValueError: found in work" in failure.reason for failure in outcome.failures)
    assert f"| none is small | `numbers` | 50 | {outcome.seconds:.0f} | {len(small)} |" in as_table(
        [outcome]
    )


def test_it_ends_after_its_time_or_a_number_of_failures() -> None:
    attack = Attack("numbers", "", prepare_numbers)
    assert len(run_attack(attack, max_failures=2).failures) == 2
    assert run_attack(attack, max_seconds=0.0).num_trials == 1


def test_a_process_that_ends_is_a_failure_and_the_next_trials_run() -> None:
    outcome = run_attack(Attack("kill", "", prepare_kill), max_trials=4)
    expected = [number for number in range(4) if generator(0, "kill", number).random() < 0.5]
    assert [failure.number for failure in outcome.failures] == expected != []
    assert f"ended with status {-signal.SIGSEGV} in the trial" in outcome.failures[0].reason
    assert "what was written before" in outcome.failures[0].reason


@pytest.mark.parametrize("prepare, max_seconds", [(prepare_wait, 0.1), (prepare_work, 0.5)])
def test_an_endless_trial_is_stopped(
    prepare: Callable[[Path], Callable[[Random], None]], max_seconds: float
) -> None:
    outcome = run_attack(Attack("endless", "", prepare, max_seconds=max_seconds), max_trials=1)
    assert [failure.number for failure in outcome.failures] == [0]
    assert f"the trial took more than {max_seconds} s" in outcome.failures[0].reason


def test_memory_is_bounded() -> None:
    outcome = run_attack(Attack("memory", "", prepare_memory, max_megabytes=50), max_trials=4)
    assert [failure.number for failure in outcome.failures] == [2]
    assert "MB more" in outcome.failures[0].reason


def test_a_preparation_that_fails_is_a_failure() -> None:
    (failure,) = run_attack(Attack("unprepared", "", fail_to_prepare)).failures
    assert "in the preparation" in failure.reason and "ValueError: no model" in failure.reason


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
@pytest.mark.skipif("avx2" not in processor_features(), reason="needs a processor with AVX2")
@pytest.mark.parametrize("sanitizer", ["address", "threads"])
def test_sanitizers_find_nothing(sanitizer: str) -> None:
    # `make sanitize` takes all vector units, and more attacks.
    command = [sys.executable, "-m", "attacks.sanitizers", sanitizer, "--attacks", "layers"]
    run = run_program(*command, "--trials", 20, cwd=REPOSITORY, **{CAPABILITY_VARIABLE: "avx2"})
    assert run.returncode == 0, run.stdout + run.stderr
    assert "layers: 20 trials passed" in run.stdout
