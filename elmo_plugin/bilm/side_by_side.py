"""Independent work on several CPU threads at once, each with its share of the processor's cores."""

import functools
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Callable, List, Sequence, TypeVar

import torch

Argument = TypeVar("Argument")
Result = TypeVar("Result")


def map_side_by_side(
    function: Callable[[Argument], Result], arguments: Sequence[Argument], is_worthwhile: bool
) -> List[Result]:
    """
    `[function(argument) for argument in arguments]`, without gradients.

    Small operations, as those of an LSTM step, gain little from several cores each; two loops of them, on one
    core each, gain much. Where torch may use only one core, the calls follow one another.

    Autocast does not reach `function`.

    # Parameters

    function : `Callable[[Argument], Result]`
        Must be safe to call from several threads at once.
    arguments : `Sequence[Argument]`
        One for each call.
    is_worthwhile : `bool`
        Whether to use threads at all: not for work on a GPU, nor for so little that threads cost more.
    """
    num_threads = torch.get_num_threads() // len(arguments)
    if not is_worthwhile or num_threads < 1 or len(arguments) < 2:
        with torch.no_grad():
            return [function(argument) for argument in arguments]
    # Modes belong to a thread.
    is_inference = torch.is_inference_mode_enabled()

    def call(argument: Argument) -> Result:
        with torch.inference_mode(is_inference), torch.no_grad():
            return function(argument)

    return list(_workers(os.getpid(), len(arguments), num_threads).map(call, arguments))


def _use_threads(num_threads: int) -> None:
    # A new thread takes the number last set in any other when it first needs it: let that be now.
    torch.get_num_threads()
    torch.set_num_threads(num_threads)


# One for each process: threads do not survive a fork.
@functools.lru_cache(maxsize=4)
def _workers(process_id: int, num_workers: int, num_threads: int) -> ThreadPoolExecutor:
    """Threads in which torch uses `num_threads` cores."""
    own_num_threads = torch.get_num_threads()
    executor = ThreadPoolExecutor(
        num_workers,
        thread_name_prefix="bilm_directions",
        initializer=_use_threads,
        initargs=(num_threads,),
    )
    try:
        # Start them all: each waits for the others.
        barrier = threading.Barrier(num_workers)
        list(executor.map(lambda _: barrier.wait(), range(num_workers)))
    finally:
        # For threads that other code starts later.
        torch.set_num_threads(own_num_threads)
    return executor
