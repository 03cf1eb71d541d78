"""Work that two processes do together, over gloo."""

from pathlib import Path
from typing import Any, Callable, Dict, List

import torch
import torch.distributed
import torch.multiprocessing


def reports_of_two_workers(
    work: Callable[[int], Dict[str, Any]], folder: Path
) -> List[Dict[str, Any]]:
    """Return what `work`, a function of a module, returns for ranks 0 and 1. The folder must be empty."""
    torch.multiprocessing.start_processes(
        _save_report,
        args=(work, str(folder)),
        nprocs=2,
        # A new process would import AllenNLP first; beside a GPU, autograd does not run in a forked one.
        start_method="spawn" if torch.cuda.is_available() else "fork",
    )
    return [torch.load(folder / f"report{rank}") for rank in range(2)]


def _save_report(rank: int, work: Callable[[int], Dict[str, Any]], folder: str) -> None:
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2
    )
    torch.save(work(rank), f"{folder}/report{rank}")
    torch.distributed.barrier()
