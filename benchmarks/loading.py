"""
How long a biLM takes to load, and what memory it takes, in each precision: alone, and in several processes.

    python benchmarks/loading.py
    python benchmarks/loading.py --options options.json --weights weights.hdf5 --processes 4

The first writes random weights of the original's shape (374 MB) into a temporary folder. Each row is measured
in processes of its own, with the weight file in the system's file cache.

  load          seconds from the call of BiLM.from_files to its return
  first         seconds of the first short sentence after it, which packs the weights
  peak, held    the largest and the last growth of the process's resident memory over that of a process that
                has run another biLM, in MiB and as a multiple of the weights in that precision
  each of N     how much memory each of N processes adds when all of them hold the biLM: shared memory counts
                by its share (Linux's Pss); and the same where they share packed weights too (packed_folder)
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Dict, List, Optional

from elmo_plugin import BiLM
from elmo_plugin.bilm import BiLMOptions
from elmo_plugin.bilm.kernels import KERNEL_NAMES, PRECISIONS

BYTES_OF_A_WEIGHT = {"float32": 4, "bfloat16": 2, "int8": 1}

# Loads and runs a biLM, prints a line of JSON when it is ready, another when it is told that all others are,
# and ends when it is told so.
PROCESS = """
import json, sys, time
from elmo_plugin import BiLM, batch_to_ids

def memory(path, key):
    with open(path) as lines:
        return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(key + ":"))

settings = json.loads(sys.argv[1])
sentence = batch_to_ids([["One", "sentence"]])
BiLM.from_files("elmo_mini")(sentence)
resident_before = memory("/proc/self/status", "VmRSS")
share_before = memory("/proc/self/smaps_rollup", "Pss")
start = time.perf_counter()
bilm = BiLM.from_files(**settings)
loaded = time.perf_counter()
bilm(sentence)
ready = time.perf_counter()
print(json.dumps({
    "load": loaded - start,
    "first": ready - loaded,
    "peak": memory("/proc/self/status", "VmHWM") - resident_before,
    "held": memory("/proc/self/status", "VmRSS") - resident_before,
    "num_parameters": sum(parameter.numel() for parameter in bilm.parameters()),
}), flush=True)
sys.stdin.readline()
print(json.dumps({"each": memory("/proc/self/smaps_rollup", "Pss") - share_before}), flush=True)
sys.stdin.readline()
"""


def run_together(num_processes: int, settings: Dict[str, Any]) -> List[Dict[str, float]]:
    """What `PROCESS` says in each of so many processes that hold the biLM at the same time."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", PROCESS, json.dumps(settings)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(num_processes)
    ]
    results: List[Dict[str, float]] = [{} for _ in processes]
    # All are ready before any is asked for its share.
    for _ in range(2):
        for process, result in zip(processes, results):
            assert process.stdout is not None
            line = process.stdout.readline()
            if not line:
                raise SystemExit(f"A process ended early, with settings {settings}; see above.")
            result.update(json.loads(line))
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
    for process in processes:
        process.communicate()
    return results


def measure(settings: Dict[str, Any], num_processes: int, repetitions: int) -> Dict[str, float]:
    """Medians over repetitions alone, and the mean over processes that run together."""
    runs = [run_together(1, settings)[0] for _ in range(repetitions)]
    row = {key: statistics.median(run[key] for run in runs) for key in runs[0]}
    row["weights"] = row["num_parameters"] * BYTES_OF_A_WEIGHT[settings["precision"]] / 2**20
    with tempfile.TemporaryDirectory() as folder:
        for key, more in (("each", {}), ("each_packed", {"packed_folder": folder})):
            together = run_together(num_processes, {**settings, **more})
            row[key] = statistics.mean(run["each"] for run in together)
    return row


def table(rows: Dict[str, Dict[str, float]], num_processes: int) -> str:
    """Markdown."""
    lines = [
        "| biLM | weights, MiB | load, s | first, s | peak | held "
        f"| each of {num_processes} | with packed_folder |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, row in rows.items():
        sizes = [
            f"{row[key]:.0f} ({row[key] / row['weights']:.2f})"
            for key in ("peak", "held", "each", "each_packed")
        ]
        lines.append(
            f"| {name} | {row['weights']:.0f} | {row['load']:.2f} | {row['first']:.2f} | "
            f"{' | '.join(sizes)} |"
        )
    return "\n".join(lines)


def main(arguments: Optional[List[str]] = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--options", help="options file, or a name that stands for both files")
    parser.add_argument("--weights", help="weight file")
    parser.add_argument(
        "--precisions",
        nargs="+",
        default=list(PRECISIONS),
        choices=PRECISIONS,
        help="(default: all)",
    )
    parser.add_argument(
        "--kernel", default="auto", choices=KERNEL_NAMES, help="(default: %(default)s)"
    )
    parser.add_argument(
        "--processes", type=int, default=2, help="that run together (default: %(default)s)"
    )
    parser.add_argument(
        "--repetitions", type=int, default=3, help="of a process alone (default: %(default)s)"
    )
    parser.add_argument("--output", type=Path, help="JSON file for all numbers")
    settings = parser.parse_args(arguments)
    if not Path("/proc/self/smaps_rollup").exists():
        parser.error("memory is measured through /proc/self/smaps_rollup, which only Linux has")
    with tempfile.TemporaryDirectory() as folder:
        files = {"options_file": settings.options, "weight_file": settings.weights}
        if settings.options is None and settings.weights is None:
            files = {
                "options_file": str(Path(folder, "options.json")),
                "weight_file": str(Path(folder, "weights.hdf5")),
            }
            BiLM(BiLMOptions()).save(**files)
        rows = {
            f"{precision}, {settings.kernel}": measure(
                {**files, "precision": precision, "kernel": settings.kernel},
                settings.processes,
                settings.repetitions,
            )
            for precision in settings.precisions
        }
    print(table(rows, settings.processes))
    if settings.output is not None:
        settings.output.write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
