"""Work that processes do together, over gloo."""

from pathlib import Path
from typing import Any, Callable, Dict, List

import torch
import torch.distributed
import torch.multiprocessing


def reports_of_workers(
    work: Callable[[int], Dict[str, Any]],
    folder: Path,
    num_workers: int = 2,
    start_method: str = "forkserver",
) -> List[Dict[str, Any]]:
    """
    Return what `work`, a function of a module, returns for each rank. The folder must be empty.

    Workers have imported the plugin already, see `conftest.py`. A forked process (`fork`) has what this
    process has, but cannot run autograd if this process has started autograd's threads, as a test before
    this one may have done.
    """
    torch.multiprocessing.start_processes(
        _save_report,
        args=(num_workers, work, str(folder)),
        nprocs=num_workers,
        start_method=start_method,
    )
    return [torch.load(folder / f"report{rank}") for rank in range(num_workers)]


def _save_report(
    rank: int, num_workers: int, work: Callable[[int], Dict[str, Any]], folder: str
) -> None:
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=num_workers
    )
    torch.save(work(rank), f"{folder}/report{rank}")
    torch.distributed.barrier()
