"""Work that processes do together, over gloo."""

from pathlib import Path
from typing import Any, Callable, Dict, List

import torch
import torch.distributed
import torch.multiprocessing

NUM_WORKERS = 2


def reports_of_workers(work: Callable[[int], Dict[str, Any]], folder: Path) -> List[Dict[str, Any]]:
    """
    Return what `work`, a function of a module, returns for each rank. The folder must be empty.

    Workers have imported the plugin already, see `conftest.py`. They are not forked from this process: they
    could not run autograd if a test before this one has started its threads.
    """
    torch.multiprocessing.start_processes(
        _save_report,
        args=(work, str(folder)),
        nprocs=NUM_WORKERS,
        start_method="forkserver",
    )
    return [torch.load(folder / f"report{rank}") for rank in range(NUM_WORKERS)]


def _save_report(rank: int, work: Callable[[int], Dict[str, Any]], folder: str) -> None:
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=NUM_WORKERS
    )
    torch.save(work(rank), f"{folder}/report{rank}")
    torch.distributed.barrier()
