"""Runs that are not trained, and the tables of a report."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Callable, Dict, List, Optional, Sequence, Set, Type

import pytest

from elmo_plugin.report import runs
from elmo_plugin.report.runs import RunFolder
from elmo_plugin.report.tables import Report
from elmo_plugin.report.task_reports import LayersOptions
from elmo_plugin.report.variants import TaskOptions
from tests.conftest import REPOSITORY

# What a run prints that is to fail.
FAILURE = "allennlp.common.checks.ConfigurationError: this run was to fail"


def tables_of(report: Optional[Report]) -> List[SimpleNamespace]:
    """The content of the JSON files that a report wrote, by attribute."""
    return [read_table(path) for path in report.files if path.suffix == ".json"]


def read_table(path: Path) -> SimpleNamespace:
    return SimpleNamespace(**json.loads(path.read_text(encoding="utf-8")))


def column(table: SimpleNamespace, name: str) -> List[Any]:
    return [row[table.columns.index(name)] for row in table.rows]


class FakeTraining:
    """Stands in for `allennlp train`: the folder of a run is made at once, and copied by its command."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.started: List[str] = []  # the names of runs
        self.at_start: Dict[str, Callable[[], Any]] = {}  # called at the start of a run
        self.failing: Set[str] = set()  # the names of runs that are to fail
        # Of runs, on test data; the others have those of `scores_of`.
        self.scores: Dict[str, float] = {}

    def command(self, run: RunFolder) -> List[str]:
        name = run.path.name
        self.started.append(name)
        self.at_start.get(name, lambda: None)()
        if name in self.failing:
            script = 'mkdir -p "$1" && touch "$1/config.json" && echo "$2" && exit 1'
            return ["sh", "-c", script, "sh", str(run.path), f"Traceback\n{FAILURE}\nbye"]
        write_result(self.folder / name, run.config)
        if name in self.scores:
            score = self.scores[name]
            write_run(self.folder / name, run.config, [0.5], test=score)
        script = 'echo "threads: $OMP_NUM_THREADS" && cp -r "$1/." "$2"'
        return ["sh", "-c", script, "sh", str(self.folder / name), str(run.path)]


@pytest.fixture
def training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeTraining:
    """No run is trained, each makes its folder in a moment."""
    fake = FakeTraining(tmp_path / "fake_runs")
    monkeypatch.setattr(runs.RunFolder, "command", lambda folder, options: fake.command(folder))
    monkeypatch.setattr(runs, "_SECONDS_TO_POLL", 0.002)
    return fake


def write_run(
    folder: Path,
    config: Dict[str, Any],
    curve: Sequence[float],
    test: Optional[float] = None,
    duration: str = "0:01:30.500000",
    **more: float,
) -> None:
    """Write what reports read in the folder of `allennlp train`. Larger scores are better."""
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
    # Items of which half are easier than the others by the same in all runs; their mean is the score.
    score = best if test is None else test
    scores = [score + 0.1, score - 0.1] * 3
    counts = [[[100 * score, 100, 100 * score, 100]] for score in scores]
    (folder / "item_counts.json").write_text(json.dumps({metric: counts}))


def scores_of(config: Dict[str, Any]) -> List[float]:
    """Return the curve of a task's run: better with ELMo, all layers, more data, and a larger seed."""
    elmo = config["model"]["text_encoder"]["elmo"]
    score = {"none": 0.3, "input": 0.5, "output": 0.4, "both": 0.6}[elmo["placement"]]
    score += 0.01 * config["random_seed"] - (0.05 if elmo.get("top_layer_only") else 0.0)
    share = config["dataset_reader"].get("share", 1.0)
    return [0.5 * share * score, share * score, 0.9 * share * score]


def write_result(folder: Path, config: Dict[str, Any]) -> None:
    """Write the run of a task's config, or of a biLM with perplexity 200 before, 100 and the seed after."""
    if "text_encoder" in config["model"]:
        curve = scores_of(config)
        memory = {"peak_worker_0_memory_MB": 625.0 * config["random_seed"]}
        write_run(folder, config, curve, test=max(curve) - 0.02, **memory)
        return
    after = 100.0 + config["random_seed"]
    directions = {
        "best_validation_forward_perplexity": after - 10,
        "best_validation_backward_perplexity": after + 10,
    }
    write_run(folder, config, [after], **directions)
    before = {"perplexity": 200, "forward_perplexity": 190, "backward_perplexity": 210}
    (folder / "metrics_before.json").write_text(json.dumps(before))


@pytest.fixture
def options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """
    `options(LayersOptions, task="ner", name=..., **changes)`: of a report on the small config of a task,
    one run at a time.
    """

    def make(
        options_class: Type[TaskOptions] = LayersOptions,
        task: str = "ner",
        config_file: Optional[Path] = None,
        **changes: Any,
    ) -> Any:
        monkeypatch.setenv(f"{task.upper()}_DATA", "data")
        monkeypatch.setenv("ELMO", "elmo_mini")
        config = config_file or REPOSITORY / "training_configs" / f"{task}_small.jsonnet"
        given = {"output": str(tmp_path / "results"), "seeds": (1, 2), "jobs": 1, **changes}
        return options_class(config_file=str(config), **given)

    return make
