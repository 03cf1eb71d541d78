"""The section memory: seconds to load a biLM, and memory, alone and in two processes that hold it at once."""

import json
import statistics
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Dict, Iterator, List, Sequence, Tuple

import pandas
from measurement import Options, Sentence, bilm_title, file_label, float32_files

from elmo_plugin.bilm import BiLMOptions
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.report.tables import Part

BYTES_OF_A_WEIGHT = {"float32": 4, "bfloat16": 2, "int8": 1}
NUM_TOGETHER = 2

# Loads and runs a biLM, prints a line of JSON when it is ready, another when all others are, and ends when it
# is told so.
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

NOTE = (
    "Load: from the call of BiLM.from_files to its return, the file in the system's cache. First: the first "
    "short sentence, which prepares the weights. Memory in MiB, and as a multiple of the weights in that "
    "precision: how much more than a process that has run another biLM. Each of {}: what each process adds "
    "when so many hold the biLM, shared memory by its share; and the same with weights shared in a "
    "`packed_folder`."
)


def memory_parts(options: Options, sentences: Sequence[Sentence]) -> Iterator[Tuple[str, Part]]:
    """
    Yield a table for each biLM.

    # Raises

    `ConfigurationError` if this is not Linux.
    """
    if not Path("/proc/self/smaps_rollup").exists():
        raise ConfigurationError(
            "memory is measured through /proc/self/smaps_rollup, which only Linux has"
        )
    for name in options.bilm:
        with float32_files(name) as (options_file, weight_file):
            title = f"Loading and memory, {bilm_title(name, BiLMOptions.from_file(options_file))}"
            rows = [
                measure(
                    {
                        "options_file": str(options_file),
                        "weight_file": str(weight_file),
                        "precision": precision,
                        "kernel": options.kernel,
                    },
                    options.effort.processes,
                )
                for precision in options.precisions
            ]
        frame = pandas.DataFrame(rows)
        yield f"memory-{file_label(name)}", Part(title, frame, [NOTE.format(NUM_TOGETHER)])


def measure(settings: Dict[str, Any], repetitions: int) -> Dict[str, Any]:
    """Return a row of the table: medians over processes alone, and means over processes that run together."""
    alone = pandas.DataFrame([run_together(1, settings)[0] for _ in range(repetitions)]).median()
    sizes = {"peak": alone["peak"], "held": alone["held"]}
    with TemporaryDirectory() as folder:
        more: List[Dict[str, str]] = [{}, {"packed_folder": folder}]
        for key, added in zip((f"each of {NUM_TOGETHER}", "with packed_folder"), more):
            together = run_together(NUM_TOGETHER, {**settings, **added})
            sizes[key] = statistics.mean(result["each"] for result in together)
    weights = alone["num_parameters"] * BYTES_OF_A_WEIGHT[settings["precision"]] / 2**20
    return {
        "precision": settings["precision"],
        "weights, MiB": round(weights, 1),
        "load, s": round(alone["load"], 2),
        "first, s": round(alone["first"], 2),
        **{key: f"{size:,.0f} ({size / weights:.2f})" for key, size in sizes.items()},
    }


def run_together(num_processes: int, settings: Dict[str, Any]) -> List[Dict[str, float]]:
    """Return what `PROCESS` prints in each of some processes that hold the biLM at the same time."""
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
    try:
        # All are ready before any is asked for its share.
        for _ in range(2):
            for process, result in zip(processes, results):
                line = process.stdout.readline()
                if not line:
                    raise RuntimeError(
                        f"A process ended early, with settings {settings}; see above."
                    )
                result.update(json.loads(line))
            for process in processes:
                process.stdin.write("\n")
                process.stdin.flush()
    finally:
        for process in processes:
            process.communicate()  # closes its input, at which it ends
    return results
