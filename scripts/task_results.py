"""
Train training_configs/TASK_small.jsonnet with several seeds, with and without ELMo, and print the table of
RESULTS.md. Finished runs are kept: an interrupted grid goes on where it was.

    python scripts/task_results.py sst --data DATA/sst --bilm elmo_mini --seeds 1 2 --placements none both
    NER_SCHEME=IOB1 python scripts/task_results.py ner --data DATA/ner/wikigold --bilm elmo_mini --seeds 1 2 3

The metric is the one by which the config chooses the best epoch. Other variables of the config, as
NER_SCHEME, are taken from the environment. Each run has one thread: small matrices gain nothing from more,
runs beside each other do.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any, Dict, List, NamedTuple

METRIC_KEY = "validation_metric"


class Run(NamedTuple):
    """One training run, in a folder of its own."""

    task: str
    data: Path
    bilm: str
    placement: str
    seed: int

    def folder(self, output: Path) -> Path:
        return output / f"{self.task}-{self.data.name}-{self.placement}-{self.seed}"

    def train(self, output: Path, overrides: Dict[str, Any]) -> Dict[str, Any]:
        """The metrics of the run, which is trained unless it is done."""
        folder = self.folder(output)
        if not (folder / "metrics.json").exists():
            settings = {
                "model.text_encoder.elmo.placement": self.placement,
                **dict.fromkeys(("random_seed", "numpy_seed", "pytorch_seed"), self.seed),
                **overrides,
            }
            environment = {
                **os.environ,
                f"{self.task.upper()}_DATA": str(self.data),
                "ELMO": self.bilm,
                "OMP_NUM_THREADS": "1",
            }
            folder.parent.mkdir(parents=True, exist_ok=True)
            with open(f"{folder}.log", "w") as log:
                subprocess.run(
                    [
                        *(sys.executable, "-m", "allennlp", "train"),
                        *(f"training_configs/{self.task}_small.jsonnet", "-s", str(folder)),
                        *("--force", "--include-package", "elmo_plugin"),
                        *("--file-friendly-logging", "--overrides", json.dumps(settings)),
                    ],
                    env=environment,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    check=True,
                )
            print(f"done: {folder}", file=sys.stderr, flush=True)
        metrics = json.loads((folder / "metrics.json").read_text())
        config = json.loads((folder / "config.json").read_text())
        return {**metrics, METRIC_KEY: config["trainer"][METRIC_KEY].lstrip("+-")}


def table(results: Dict[Run, Dict[str, Any]]) -> str:
    """Test and validation scores of each data set and placement, in Markdown, with what the runs cost."""
    metric = next(iter(results.values()))[METRIC_KEY]
    lines = [
        f"| data | ELMo | seeds | test {metric} | mean (std) | dev {metric} | mean (std) | epochs | minutes "
        "| peak GB |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for data, placement in dict.fromkeys((run.data, run.placement) for run in results):
        runs = [run for run in results if (run.data, run.placement) == (data, placement)]
        cells = [data.name, placement, ", ".join(str(run.seed) for run in runs)]
        for key in (f"test_{metric}", f"best_validation_{metric}"):
            scores = [100 * results[run][key] for run in runs if key in results[run]]
            cells += [", ".join(f"{score:.1f}" for score in scores), mean_and_deviation(scores)]
        cells.append(f"{statistics.mean(results[run]['epoch'] + 1 for run in runs):.0f}")
        cells.append(f"{statistics.mean(minutes(results[run]) for run in runs):.1f}")
        peak = max(results[run]["peak_worker_0_memory_MB"] for run in runs)
        cells.append(f"{peak / 1000:.1f}")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def mean_and_deviation(scores: List[float]) -> str:
    if not scores:
        return "no test set"
    deviation = f" ({statistics.stdev(scores):.1f})" if len(scores) > 1 else ""
    return f"{statistics.mean(scores):.1f}{deviation}"


def minutes(metrics: Dict[str, Any]) -> float:
    """How long training and validation took."""
    hours, part, seconds = metrics["training_duration"].split(":")
    return (
        timedelta(hours=int(hours), minutes=int(part), seconds=float(seconds)).total_seconds() / 60
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("task", help="such as sst: there is a training_configs/sst_small.jsonnet")
    parser.add_argument("--data", nargs="+", type=Path, required=True, metavar="FOLDER",
                        help="data sets, as TASK_DATA in the config")  # fmt: skip
    parser.add_argument("--bilm", required=True, help="as ELMO in the config")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3], help="(default: 1 2 3)")
    parser.add_argument("--placements", nargs="+", default=["none", "input"],
                        help="where ELMo is (default: none input)")  # fmt: skip
    parser.add_argument("--overrides", type=json.loads, default={}, metavar="JSON",
                        help="further overrides of the config, for all runs")  # fmt: skip
    parser.add_argument("--output", type=Path, default=Path("runs/task_results"),
                        help="folder of the runs (default: runs/task_results)")  # fmt: skip
    parser.add_argument("--jobs", type=int, default=2, help="runs beside each other (default: 2)")
    arguments = parser.parse_args()
    runs = [
        Run(arguments.task, data, arguments.bilm, placement, seed)
        for data in arguments.data
        for placement in arguments.placements
        for seed in arguments.seeds
    ]
    with ThreadPoolExecutor(arguments.jobs) as pool:
        results = pool.map(lambda run: run.train(arguments.output, arguments.overrides), runs)
        print(table(dict(zip(runs, results))))


if __name__ == "__main__":
    main()
