"""
Train training_configs/ner_small.jsonnet on data sets and seeds, with and without ELMo, and print the table of
RESULTS.md. Finished runs are kept: an interrupted grid goes on where it was.

    python scripts/ner_results.py --bilm runs/random_bilm --seeds 1 2 3 \\
        --data wikigold=data/ner/wikigold:IOB1 wnut17=data/ner/wnut17:BIO
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Dict, List, NamedTuple

CONFIG = "training_configs/ner_small.jsonnet"


class Run(NamedTuple):
    """One training run, in a folder of its own."""

    name: str
    data: str
    scheme: str
    placement: str
    seed: int

    def folder(self, output: Path) -> Path:
        return output / f"{self.name}-{self.placement}-{self.seed}"


def train(run: Run, bilm: str, output: Path) -> Dict[str, float]:
    """The metrics of a run, which is trained unless it is done."""
    folder = run.folder(output)
    if not (folder / "metrics.json").exists():
        overrides = {
            "model.text_encoder.elmo.placement": run.placement,
            **dict.fromkeys(("random_seed", "numpy_seed", "pytorch_seed"), run.seed),
        }
        environment = {
            **os.environ,
            "NER_DATA": run.data,
            "NER_SCHEME": run.scheme,
            "ELMO": bilm,
            # Small matrices gain nothing from more threads; runs beside each other do.
            "OMP_NUM_THREADS": "1",
        }
        folder.parent.mkdir(parents=True, exist_ok=True)
        with open(f"{folder}.log", "w") as log:
            subprocess.run(
                [
                    *(sys.executable, "-m", "allennlp", "train", CONFIG, "--force"),
                    *("-s", str(folder), "--include-package", "elmo_plugin"),
                    *("--file-friendly-logging", "--overrides", json.dumps(overrides)),
                ],
                env=environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                check=True,
            )
        print(f"done: {folder}", file=sys.stderr, flush=True)
    return json.loads((folder / "metrics.json").read_text())


def table(metrics: Dict[Run, Dict[str, float]]) -> str:
    """Test and validation F1 of each data set and placement, in Markdown."""
    lines = [
        "| data | ELMo | seeds | test F1 | mean (std) | dev F1 | mean epochs |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, placement in dict.fromkeys((run.name, run.placement) for run in metrics):
        runs = [run for run in metrics if (run.name, run.placement) == (name, placement)]
        test = [100 * metrics[run]["test_f1"] for run in runs]
        dev = [100 * metrics[run]["best_validation_f1"] for run in runs]
        epochs = statistics.mean(metrics[run]["epoch"] + 1 for run in runs)
        lines.append(
            f"| {name} | {placement} | {', '.join(str(run.seed) for run in runs)} "
            f"| {', '.join(f'{f1:.1f}' for f1 in test)} "
            f"| {statistics.mean(test):.1f} ({statistics.stdev(test) if len(test) > 1 else 0.0:.1f}) "
            f"| {statistics.mean(dev):.1f} | {epochs:.0f} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", nargs="+", required=True, metavar="NAME=FOLDER:SCHEME",
                        help="a data set, its folder and how it is tagged")  # fmt: skip
    parser.add_argument("--bilm", required=True, help="as ELMO in the config")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3], help="(default: 1 2 3)")
    parser.add_argument("--placements", nargs="+", default=["none", "input"],
                        help="where ELMo is (default: none input)")  # fmt: skip
    parser.add_argument("--output", type=Path, default=Path("runs/ner_results"),
                        help="folder of the runs (default: runs/ner_results)")  # fmt: skip
    parser.add_argument("--jobs", type=int, default=2, help="runs beside each other (default: 2)")
    arguments = parser.parse_args()
    runs: List[Run] = []
    for data in arguments.data:
        name, _, place = data.partition("=")
        folder, _, scheme = place.rpartition(":")
        for placement in arguments.placements:
            runs += [Run(name, folder, scheme, placement, seed) for seed in arguments.seeds]
    with ThreadPoolExecutor(arguments.jobs) as pool:
        results = pool.map(lambda run: train(run, arguments.bilm, arguments.output), runs)
        print(table(dict(zip(runs, results))))


if __name__ == "__main__":
    main()
