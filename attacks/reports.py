"""A report that is killed, interrupted, or gets errors from the system at any operation can be repeated."""

import os
import sys
from functools import partial
from pathlib import Path
from random import Random
from typing import Dict, List, Optional

import elmo_plugin.plugin  # noqa: F401 - configs of trainings name our classes
from attacks.crashes import MAX_DISTURBANCES, enter_empty, set_up_process
from attacks.interrupts import Counts, Disturbance, Ended, check_complete, run_disturbed
from attacks.trials import Attack, Trial, check
from elmo_plugin.report.runs import RunFolder, RunOptions
from elmo_plugin.report.task_reports import PlacementOptions, compare_placements
from tests.report.conftest import write_result

# Stands for `allennlp train`: makes a folder from another, in which metrics.json comes last, notes that the
# run is finished, and ends with the process that has started it.
TRAINING = """
import ctypes, os, shutil, signal, sys
source, target, record = sys.argv[1:]
ctypes.CDLL(None).prctl(1, signal.SIGKILL)
if os.getppid() == 1:
    sys.exit(1)
shutil.rmtree(target, ignore_errors=True)
os.makedirs(target)
for name in sorted(os.listdir(source), key=lambda name: name == "metrics.json"):
    shutil.copy(os.path.join(source, name), os.path.join(target, "new"))
    os.replace(os.path.join(target, "new"), os.path.join(target, name))
with open(record, "a") as file:
    file.write(os.path.basename(target) + "\\n")
"""

PLACES = ("none", "both")


def prepare_report(folder: Path) -> Trial:
    set_up_process()
    os.environ.update(NER_DATA="data", ELMO="elmo_mini")
    place, log, record = folder / "place", folder / "trial.log", folder / "finished"

    def command(run: RunFolder, options: RunOptions) -> List[str]:
        source = folder / "trained" / run.path.name
        if not source.exists():
            write_result(source, run.config)
        return [sys.executable, "-IS", "-c", TRAINING, str(source), str(run.path), str(record)]

    setattr(RunFolder, "command", command)  # noqa: B010 - mypy refuses an assignment

    def report(num_jobs: int) -> None:
        options = PlacementOptions(
            config_file="ner_small", output="out", seeds=(1, 2), jobs=num_jobs, placements=PLACES
        )
        compare_placements(options)

    def repeat(num_jobs: int, disturbance: Optional[Disturbance] = None) -> Ended:
        return run_disturbed(partial(report, num_jobs), log, disturbance or Disturbance())

    expected: Dict[str, bytes] = {}

    def trial(random: Random) -> None:
        enter_empty(place)
        record.write_text("")
        num_jobs = random.randint(1, 3)
        if not expected:
            ended = repeat(num_jobs)
            check_complete(ended)
            expected.update(tables())
            counts.append(ended.counts)
            enter_empty(place)
            record.write_text("")
        for _ in range(random.randint(1, MAX_DISTURBANCES)):
            repeat(num_jobs, Disturbance.draw(random, counts[0]))
        check_complete(repeat(num_jobs))
        found = tables()
        different = [
            name for name in {**found, **expected} if found.get(name) != expected.get(name)
        ]
        check(f"the tables of an undisturbed report, found others: {different}", not different)
        trained = record.read_text().split()
        check(f"each run trained once, found {trained}", len(set(trained)) == len(trained))

    counts: List[Counts] = []
    return trial


def tables() -> Dict[str, bytes]:
    """Return what a report has written, but its figures."""
    files = [path for path in Path("out").iterdir() if path.suffix in (".md", ".csv", ".json")]
    return {path.name: path.read_bytes() for path in files}


ATTACKS = [
    Attack(
        "crashed_report",
        "a report that is killed, interrupted or gets errors at any operation can be repeated: it trains no "
        "finished run again, and its tables are the same to the bit",
        prepare_report,
        max_seconds=60.0,
    )
]
