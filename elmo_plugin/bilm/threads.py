"""How many threads run a biLM on CPUs, and fewer on a crowded machine and in forked processes."""

import ctypes
import functools
import os
import sys
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import Iterator, Optional, Sequence

import torch

from elmo_plugin.cpus import is_crowded, usable_cpus

# For each thread of a call of the C++; with less, it takes longer to start a thread than to do its work.
MULTIPLICATIONS_PER_THREAD = 1_000_000

# On a crowded machine a thread starts when it gets a CPU. Until then the others wait, and OpenMP spins for
# milliseconds, so each thread must have this many times as much to do.
CROWD_FACTOR = 250

# What the C++ calls, in the order of its `use_openmp`.
_FUNCTIONS = ("GOMP_parallel", "omp_get_max_threads", "omp_get_num_threads", "omp_get_thread_num")

_PROCESS = os.getpid()
_TORCH_THREADS = torch.get_num_threads()  # Later another number is the user's choice.
_calling = threading.local()  # the calling thread

# A fork does not copy threads, and OpenMP would wait for them. At import: a process may fork at any time.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=functools.partial(torch.set_num_threads, 1))


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
    threads = _torch_threads()
    is_chosen = threads != _TORCH_THREADS or "OMP_NUM_THREADS" in os.environ
    return threads if is_chosen else min(threads, usable_cpus())


def _torch_threads() -> int:
    """Return the number of torch's threads outside of `torch_in_one_thread_if_crowded`."""
    return getattr(_calling, "torch_threads", None) or torch.get_num_threads()


@contextmanager
def torch_in_one_thread_if_crowded() -> Iterator[None]:
    """
    On a crowded machine, run torch's operations in the calling thread alone. This is for operations between
    calls of the C++, which are short (but not those for new words of ELMoForManyLangs): their threads would
    spin for milliseconds while one of them waits for a CPU. The C++ has as many threads as it has without
    this (`num_threads_for`).

    Not by `torch.set_num_threads`: a thread of the program that calls torch for the first time would keep
    that number.
    """
    openmp = _openmp_of_torch() if is_crowded() else None
    threads = torch.get_num_threads()
    if openmp is None or threads == 1:
        yield
        return
    try:
        _calling.torch_threads = threads
        openmp.omp_set_num_threads(1)  # of the calling thread
        yield
    finally:
        openmp.omp_set_num_threads(threads)
        _calling.torch_threads = None


def openmp_functions() -> Sequence[Optional[ctypes.c_void_p]]:
    """
    Return the addresses of functions of the OpenMP library whose threads torch uses. `None`s if it is
    another kind of library, or if torch's threads, which all wake up and spin, are more than we may use.
    """
    # The threads of another process do not run in its forks.
    is_usable = os.getpid() == _PROCESS and most_threads() == _torch_threads()
    openmp = _openmp_of_torch() if is_usable else None
    if openmp is None:
        return [None] * len(_FUNCTIONS)
    return [ctypes.cast(getattr(openmp, name), ctypes.c_void_p) for name in _FUNCTIONS]


@functools.cache
def _openmp_of_torch() -> Optional[ctypes.CDLL]:
    """Return the OpenMP library whose threads torch uses; `None` if it is not known or of another kind."""
    threads = _torch_threads()
    # A preloaded library comes first, as for torch; then torch's own, which is loaded already, with the
    # libraries that it depends on. Names of files and functions are those of Linux.
    of_torch = str(Path(torch.__file__).parent / "lib/libtorch_cpu.so")
    for file in (None, of_torch) if sys.platform == "linux" else ():
        try:
            library = ctypes.CDLL(file)
            for name in (*_FUNCTIONS, "omp_set_num_threads"):
                getattr(library, name)
        except (OSError, AttributeError):
            continue
        if library.omp_get_max_threads() == threads:
            return library
    return None
