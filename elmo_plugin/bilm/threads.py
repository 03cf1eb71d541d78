"""How many threads run a biLM on CPUs, and fewer on a crowded machine."""

import ctypes
import functools
import os
import sys
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import Iterator, Optional

import torch

from elmo_plugin.cpus import is_crowded, usable_cpus

# For each thread of a call of the C++; with less, it takes longer to start a thread than to do its work.
MULTIPLICATIONS_PER_THREAD = 1_000_000

# On a crowded machine a thread starts when it gets a CPU. Until then the others wait, and OpenMP spins for
# milliseconds, so each thread must have this many times as much to do.
CROWD_FACTOR = 250

# What the C++ calls, in the order of its `use_openmp`.
OPENMP_FUNCTIONS = (
    "GOMP_parallel",
    "omp_get_max_threads",
    "omp_get_num_threads",
    "omp_get_thread_num",
)

_TORCH_THREADS = torch.get_num_threads()  # Later another number is the user's choice.


def num_threads_for(multiplications: float) -> int:
    """Return the number of threads of the C++ that are worth starting."""
    most = min(most_threads(), int(multiplications / MULTIPLICATIONS_PER_THREAD))
    if most > 1 and is_crowded():
        most = min(most, int(multiplications / MULTIPLICATIONS_PER_THREAD / CROWD_FACTOR))
    return max(1, most)


def most_threads() -> int:
    """
    Return the number of torch's threads but, if the user has not chosen it, at most that of the CPUs that
    this process may use: torch does not know of quotas.
    """
    if _calling.most_threads is not None:
        return _calling.most_threads
    threads = torch.get_num_threads()
    is_chosen = threads != _TORCH_THREADS or "OMP_NUM_THREADS" in os.environ
    return threads if is_chosen else min(threads, usable_cpus())


class _CallingThread(threading.local):
    most_threads: Optional[int] = None  # of `torch_in_one_thread_if_crowded`


_calling = _CallingThread()


@contextmanager
def torch_in_one_thread_if_crowded() -> Iterator[None]:
    """
    On a crowded machine, run torch's operations in the calling thread alone. They are short here, and their
    threads spin for milliseconds while one of them waits for a CPU. The C++ has as many threads as without
    this (`num_threads_for`).

    Not `torch.set_num_threads`: threads of the program that call torch for the first time would keep its
    number.
    """
    openmp = openmp_of_torch() if is_crowded() else None
    if openmp is None:
        yield
        return
    num_threads, before = torch.get_num_threads(), _calling.most_threads
    _calling.most_threads = most_threads()
    openmp.omp_set_num_threads(1)  # of the calling thread
    try:
        yield
    finally:
        openmp.omp_set_num_threads(num_threads)
        _calling.most_threads = before


@functools.cache
def openmp_of_torch() -> Optional[ctypes.CDLL]:
    """Return the OpenMP library whose threads torch uses; `None` if it is not known or of another kind."""
    # A preloaded library comes first, as for torch; then torch's own, which is loaded already, with the
    # libraries that it depends on. Names of files and functions are those of Linux.
    of_torch = str(Path(torch.__file__).parent / "lib/libtorch_cpu.so")
    for file in (None, of_torch) if sys.platform == "linux" else ():
        try:
            library = ctypes.CDLL(file)
            for name in (*OPENMP_FUNCTIONS, "omp_set_num_threads"):
                getattr(library, name)
        except (OSError, AttributeError):
            continue
        if library.omp_get_max_threads() == torch.get_num_threads():
            return library
    return None
