"""
Measure batches of sentences on an idle machine, and beside processes that use all of its cores all the time.
The fair share of ELMo is then half of the machine: twice the time.

    python benchmarks/busy.py --bilm elmo_small
"""

import argparse
import itertools
import os
import random
import subprocess
import sys
from contextlib import contextmanager
from functools import partial
from typing import Any, Dict, Iterator, List, Optional

from measurement import (
    Run,
    Table,
    bilm_title,
    frozen_bilms,
    run_benchmark,
    spread_note,
    time_in_turns,
)

from elmo_plugin import batch_to_ids
from elmo_plugin.cpus import usable_cpus

# Sentences in a batch, words in a sentence, and different words.
ROWS, LENGTH, NUM_WORDS = (1, 8, 64), 25, 2000


def main(argv: Optional[List[str]] = None) -> None:
    names = ("bilm", "precisions", "kernel", "threads", "rounds", "seconds")
    run_benchmark(__doc__, names, tables, argv)


def tables(settings: argparse.Namespace) -> Iterator[Table]:
    """Yield one table."""
    generator = random.Random(0)
    words = [f"word{number}" for number in range(NUM_WORDS)]
    batches = {
        rows: batch_to_ids([generator.choices(words, k=LENGTH) for _ in range(rows)])
        for rows in ROWS
    }
    options, bilms = frozen_bilms(settings)
    cases = {f"{name}, {rows}": (name, rows) for name, rows in itertools.product(bilms, ROWS)}
    runs: Dict[str, Run] = {
        case: partial(bilms[name], batches[rows]) for case, (name, rows) in cases.items()
    }
    idle = time_in_turns("idle", runs, settings.rounds, settings.seconds)
    with busy_cores():
        busy = time_in_turns("busy", runs, settings.rounds, settings.seconds)
    table: List[Dict[str, Any]] = [
        {
            "precision": name,
            "sentences": rows,
            "idle, ms": round(1000 * idle[case].median, 1),
            "busy, ms": round(1000 * busy[case].median, 1),
            "times": round(busy[case].median / idle[case].median, 1),
        }
        for case, (name, rows) in cases.items()
    ]
    yield Table(
        f"Batches beside {usable_cpus()} busy processes, {bilm_title(settings.bilm, options)}",
        table,
        f"Sentences of {LENGTH} words, whose vectors are kept from the untimed run. "
        f"{spread_note([*idle.values(), *busy.values()])}",
    )


@contextmanager
def busy_cores() -> Iterator[None]:
    """Run a process for each usable core that never waits, until this one has ended."""
    program = f"import os\nwhile os.getppid() == {os.getpid()}: pass"
    command = [sys.executable, "-c", program]
    processes = [subprocess.Popen(command) for _ in range(usable_cpus())]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


if __name__ == "__main__":
    main()
