"""
Measure batches of sentences on an idle machine, and beside processes that use all of its cores all the time.
The fair share of ELMo is then half of the machine: twice the time.

    python benchmarks/busy.py --bilm elmo_small
"""

import argparse
import os
import random
import subprocess
import sys
from contextlib import contextmanager
from typing import Any, Dict, Iterator, List, Optional

from measurement import (
    Run,
    Table,
    bilm_title,
    float32_files,
    frozen_bilm,
    run_benchmark,
    spread_note,
    time_in_turns,
)

from elmo_plugin import batch_to_ids
from elmo_plugin.bilm import BiLMOptions
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
    runs: Dict[str, Run] = {}
    with float32_files(settings.bilm) as files:
        options = BiLMOptions.from_file(files[0])
        for precision in settings.precisions:
            bilm = frozen_bilm(files, precision, settings.kernel)
            for rows, batch in batches.items():
                runs[f"{precision}, {rows}"] = lambda bilm=bilm, batch=batch: bilm(batch)
    idle = time_in_turns("idle", runs, settings.rounds, settings.seconds)
    with busy_cores():
        busy = time_in_turns("busy", runs, settings.rounds, settings.seconds)
    table: List[Dict[str, Any]] = []
    for name in runs:
        precision, rows = name.split(", ")
        row = {"precision": precision, "sentences": int(rows)}
        medians = {"idle, ms": idle[name].median, "busy, ms": busy[name].median}
        row.update({column: round(1000 * median, 1) for column, median in medians.items()})
        table.append({**row, "times": round(busy[name].median / idle[name].median, 1)})
    yield Table(
        f"Batches beside {usable_cpus()} busy processes, {bilm_title(settings.bilm, options)}",
        table,
        f"Sentences of {LENGTH} words. {spread_note([*idle.values(), *busy.values()])}",
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
