"""
Measure seconds to load a biLM, the memory that it holds, and the peak of loading, as multiples of the size of
its weights. The memory of the libraries is separate: each biLM is loaded in a new process that has already
run another one.

    python benchmarks/memory.py --bilm random
"""

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional

import torch
from measurement import Table, bilm_title, float32_files, frozen_bilm, run_benchmark

from elmo_plugin.bilm import BiLMOptions
from elmo_plugin.errors import ConfigurationError

STATUS = Path("/proc/self/status")
SMALL_BILM = ("elmo_mini", None)


def main(argv: Optional[List[str]] = None) -> None:
    run_benchmark(__doc__, ("bilm", "precisions", "kernel", "rounds"), tables, argv)


def tables(settings: argparse.Namespace) -> Iterator[Table]:
    """
    Yield one table.

    # Raises

    `ConfigurationError` if this is not Linux, or a precision or the kernel does not run here.
    """
    if not STATUS.exists():
        raise ConfigurationError(f"Memory is measured through {STATUS}, which only Linux has.")
    for precision in settings.precisions:
        frozen_bilm(SMALL_BILM, precision, settings.kernel)  # an error here is shown in one line
    with float32_files(settings.bilm) as files:
        title = bilm_title(settings.bilm, BiLMOptions.from_file(files[0]))
        rows = [
            memory_row([*files, precision, settings.kernel], settings.rounds)
            for precision in settings.precisions
        ]
    yield Table(
        f"Loading and memory, {title}",
        rows,
        "Load: the file is in the system's cache. First: the first short sentence. Memory in MiB, in "
        "brackets as a multiple of the weights: peak of loading and of the first sentence, and what is held "
        f"after it. Medians of {settings.rounds} processes.",
    )


def memory_row(arguments: List[str], num_processes: int) -> Dict[str, Any]:
    """Return a row of the table, from as many processes."""
    results = []
    for _ in range(num_processes):
        process = subprocess.run(
            [sys.executable, "-W", "ignore", __file__, "--load", *arguments],
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        results.append(json.loads(process.stdout.splitlines()[-1]))
    median = {key: statistics.median(result[key] for result in results) for key in results[0]}
    precision = arguments[2]
    weights = median["num_weights"] * getattr(torch, precision).itemsize / 2**20
    return {
        "precision": precision,
        "weights, MiB": round(weights, 1),
        "load, s": round(median["load"], 2),
        "first, s": round(median["first"], 2),
        "libraries": f"{median['libraries']:,.0f}",
        **{key: f"{median[key]:,.0f} ({median[key] / weights:.2f})" for key in ("peak", "held")},
    }


def load(options_file: str, weight_file: str, precision: str, kernel: str) -> Dict[str, float]:
    """Load and run a biLM in this process, and return what that took."""
    import ctypes
    import gc
    import time

    from elmo_plugin import BiLM, batch_to_ids

    sentence = batch_to_ids([["One", "sentence"]])
    frozen_bilm(SMALL_BILM, precision, kernel)(sentence)
    gc.collect()
    # What the small biLM has freed must not serve the one that is measured.
    ctypes.CDLL(None).malloc_trim(0)
    libraries = memory_of_process("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # sets VmHWM back to VmRSS
    start = time.perf_counter()
    bilm = frozen_bilm((options_file, weight_file), precision, kernel)
    loaded = time.perf_counter()
    bilm(sentence)
    ready = time.perf_counter()
    peak = memory_of_process("VmHWM") - libraries
    gc.collect()
    held = memory_of_process("VmRSS") - libraries
    weights = BiLM.from_files(options_file, weight_file).parameters()
    return {
        "load": loaded - start,
        "first": ready - loaded,
        "libraries": libraries,
        "peak": peak,
        "held": held,
        "num_weights": sum(weight.numel() for weight in weights),
    }


def memory_of_process(key: str) -> float:
    """Return a line of the status of this process, in MiB."""
    lines = STATUS.read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(f"{key}:"))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--load"]:
        print(json.dumps(load(*sys.argv[2:])))
    else:
        main()
