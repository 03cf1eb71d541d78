"""Folders of training runs without training, and a command that makes them in place of `allennlp train`."""

import json
import os
import sys
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence

# What the command prints where it is to fail.
FAILURE = "allennlp.common.checks.ConfigurationError: this run was to fail"


def write_run(
    folder: Path,
    config: Dict[str, Any],
    curve: Sequence[float],
    test: Optional[float] = None,
    duration: str = "0:01:30.500000",
    **more: float,
) -> None:
    """Write what reports read in the folder of `allennlp train`: larger scores are better."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    metric = "perplexity" if "text_encoder" not in config["model"] else "f1"
    for epoch, score in enumerate(curve):
        metrics = {f"validation_{metric}": score, "epoch": epoch}
        (folder / f"metrics_epoch_{epoch}.json").write_text(json.dumps(metrics))
    best = max(curve)
    metrics = {
        "best_epoch": list(curve).index(best),
        "epoch": len(curve) - 1,
        "training_duration": duration,
        "peak_worker_0_memory_MB": 1250.0,
        f"best_validation_{metric}": best,
        **({} if test is None else {f"test_{metric}": test}),
        **more,
    }
    (folder / "metrics.json").write_text(json.dumps(metrics))


def scores_of(config: Dict[str, Any]) -> List[float]:
    """Return the curve of a task's run: better with ELMo, all layers, more data, and a larger seed."""
    elmo = config["model"]["text_encoder"]["elmo"]
    score = {"none": 0.3, "input": 0.5, "output": 0.4, "both": 0.6}[elmo["placement"]]
    score += 0.01 * config["random_seed"] - (0.05 if elmo.get("top_layer_only") else 0.0)
    share = config["dataset_reader"].get("share", 1.0)
    return [0.5 * share * score, share * score, 0.9 * share * score]


def main(arguments: List[str]) -> None:
    """`python fake_runs.py FOLDER CONFIG_FILE FAILS`, where the last is true or false."""
    folder, fails = Path(arguments[0]), json.loads(arguments[2])
    config = json.loads(Path(arguments[1]).read_text())
    print("threads:", os.environ["OMP_NUM_THREADS"])
    if fails:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.json").write_text(json.dumps(config))
        sys.exit(f"Traceback\n{FAILURE}\nbye")
    if "text_encoder" in config["model"]:
        curve = scores_of(config)
        write_run(folder, config, curve, test=max(curve) - 0.02)
    else:  # a biLM: perplexity 200 before, 100 and the seed after
        after = 100.0 + config["random_seed"]
        directions = {
            "best_validation_forward_perplexity": after - 10,
            "best_validation_backward_perplexity": after + 10,
        }
        write_run(folder, config, [after], **directions)
        before = {"perplexity": 200, "forward_perplexity": 190, "backward_perplexity": 210}
        (folder / "metrics_before.json").write_text(json.dumps(before))


if __name__ == "__main__":
    main(sys.argv[1:])
