"""
What ELMo costs in the training of a task: seconds for 1,000 training instances and peak memory, without ELMo
and with it where the config has it. Two epochs of training_configs/TASK_small.jsonnet on the first instances,
without validation; each run in a process of its own. In the second epoch a frozen biLM is not run any more:
its activations are in memory (sentence_cache_mb).

    ELMO=elmo_mini python benchmarks/task_cost.py ner=DATA/ner/wikigold sst=DATA/sst

The time is that of AllenNLP's trainer, without reading. Peak memory is the process's, libraries included.
An instance is a sentence (ner, sst), a pair (snli), a predicate (srl), a question (squad) or a document
(coref).
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Dict, List, Optional

import pandas

PLACEMENT = "model.text_encoder.elmo.placement"
# Trains a config of AllenNLP and prints how many instances there were.
TRAIN = """
import json, sys, warnings
warnings.simplefilter("ignore")
import elmo_plugin
from allennlp.commands.train import train_model_from_file
from allennlp.training import GradientDescentTrainer

config, folder, overrides = sys.argv[1:]
batch_outputs = GradientDescentTrainer.batch_outputs
num_instances = 0

def counted(trainer, batch, for_training):
    global num_instances
    num_instances += len(batch["metadata"])
    return batch_outputs(trainer, batch, for_training)

GradientDescentTrainer.batch_outputs = counted
train_model_from_file(config, folder, overrides, file_friendly_logging=True)
print("instances:", num_instances)
"""


def measure(
    task: str, data: str, placement: Optional[str], num_instances: int, threads: int
) -> Dict[str, Any]:
    """Seconds of each of two epochs, instances of one, and megabytes."""
    overrides: Dict[str, Any] = {
        "dataset_reader.max_instances": num_instances,
        "trainer.num_epochs": 2,
        # Some look at validation, of which there is none.
        "trainer.learning_rate_scheduler": None,
        "validation_data_path": None,
        "test_data_path": None,
        "evaluate_on_test": False,
    }
    if placement is not None:
        overrides[PLACEMENT] = placement
    environment = {
        **os.environ, f"{task.upper()}_DATA": data, "OMP_NUM_THREADS": str(threads)
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        config = f"training_configs/{task}_small.jsonnet"
        output = subprocess.run(
            [sys.executable, "-c", TRAIN, config, f"{folder}/run", json.dumps(overrides)],
            env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if output.returncode:
            sys.exit(f"{output.stderr[-2000:]}\n{task}: the training failed, see above.")
        metrics = [
            json.loads(Path(folder, "run", f"metrics_epoch_{epoch}.json").read_text())
            for epoch in range(2)
        ]
    # Since the start.
    first, both = (pandas.Timedelta(each["training_duration"]).total_seconds() for each in metrics)
    return {
        "seconds": (first, both - first),
        "instances": int(output.stdout.rsplit("instances:", 1)[1]) // 2,
        "megabytes": metrics[1]["peak_worker_0_memory_MB"],
    }


def main(argv: Optional[List[str]] = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tasks", nargs="+", metavar="TASK=FOLDER", help="a task and its data")
    parser.add_argument("--instances", type=int, default=1000,
                        help="instances to train on, at most (default: 1000)")  # fmt: skip
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1,
                        help="CPU threads (default: one for each core)")  # fmt: skip
    arguments = parser.parse_args(argv)
    print(f"{arguments.threads} threads\n")
    print(
        "| task | instances | ELMo | s per 1,000 instances, first epoch | second epoch | peak GB |"
    )
    print("|---|---|---|---|---|---|")
    for task_and_data in arguments.tasks:
        task, _, data = task_and_data.partition("=")
        for placement in ("none", None):
            run = measure(task, data, placement, arguments.instances, arguments.threads)
            first, second = (1000 * seconds / run["instances"] for seconds in run["seconds"])
            print(
                f"| {task} | {run['instances']} | {'none' if placement else 'as in the config'} "
                f"| {first:,.1f} | {second:,.1f} | {run['megabytes'] / 1000:.1f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
