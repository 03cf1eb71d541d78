"""
Measure the seconds until the first line of output of commands, each in a new process: cold, after the cache
of files was emptied (on Linux, as root), and warm.

    python benchmarks/waiting.py
"""

import argparse
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Dict, Iterator, List, Optional

from measurement import Table, run_benchmark

SENTENCE = "Ada Lovelace lived in London ."

# The words after `elmo`, and the most seconds that a user should wait, on two idle cores with a warm cache.
# `embed` prints its first line when the file is complete, `predict` its first answer.
COMMANDS: Dict[str, Optional[float]] = {
    "--help": 0.5,
    "embed --help": None,
    "embed sentence.txt vectors.hdf5 --average --model elmo_mini": 2,
    "predict elmo_ner_small -": 6,
}
DROP_CACHES = Path("/proc/sys/vm/drop_caches")


def main(argv: Optional[List[str]] = None) -> None:
    run_benchmark(__doc__, ("rounds",), tables, argv)


def tables(settings: argparse.Namespace) -> Iterator[Table]:
    """Yield one table."""
    rows = [waiting_row(words, settings.rounds) for words in COMMANDS]
    yield Table(
        "What users wait for",
        rows,
        f"Seconds until the first line of output. Medians of {settings.rounds} processes.",
    )


def waiting_row(words: str, rounds: int) -> Dict[str, Any]:
    """Return a row of the table; without cold times where the cache cannot be dropped."""
    row: Dict[str, Any] = {"command": f"elmo {words}", "limit, s": COMMANDS[words]}
    if os.access(DROP_CACHES, os.W_OK):
        row["cold, s"] = median_seconds(words, rounds, is_cold=True)
    seconds(words)  # fills the cache
    return {**row, "warm, s": median_seconds(words, rounds)}


def median_seconds(words: str, rounds: int, is_cold: bool = False) -> float:
    times = []
    for _ in range(rounds):
        if is_cold:
            os.sync()  # what is not on the disk yet would stay
            DROP_CACHES.write_text("3")
        times.append(seconds(words))
    return round(statistics.median(times), 2)


def seconds(words: str) -> float:
    """Run a command, and return the seconds from its start to its first line."""
    with TemporaryDirectory() as folder:
        Path(folder, "sentence.txt").write_text(f"{SENTENCE}\n")
        start = time.perf_counter()
        with subprocess.Popen(
            [sys.executable, "-m", "elmo_plugin", *words.split()],
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        ) as process:
            assert process.stdin is not None and process.stdout is not None
            process.stdin.write(f'{{"sentence": "{SENTENCE}"}}\n'.encode())
            process.stdin.flush()
            process.stdout.readline()
            found = time.perf_counter() - start
            process.communicate()
    if process.returncode != 0:
        raise OSError(f"elmo {words} failed. Run it without the benchmark.")
    return found


if __name__ == "__main__":
    main()
