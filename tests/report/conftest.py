"""Runs that are not trained, and the tables of a report."""

import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Callable, List, Optional, Set, Type

import pytest

from elmo_plugin import BiLM
from elmo_plugin.report import runs
from elmo_plugin.report.runs import RunFolder
from elmo_plugin.report.tables import Report
from elmo_plugin.report.task_reports import LayersOptions
from elmo_plugin.report.variants import TaskOptions
from tests.conftest import TINY_OPTIONS, randomize
from tests.report import fake_runs

REPOSITORY = Path(__file__).parents[2]


def tables_of(report: Optional[Report]) -> List[SimpleNamespace]:
    """The content of the JSON files that a report wrote, by attribute."""
    assert report is not None
    return [read_table(path) for path in report.files if path.suffix == ".json"]


def read_table(path: Path) -> SimpleNamespace:
    return SimpleNamespace(**json.loads(path.read_text(encoding="utf-8")))


def column(table: SimpleNamespace, name: str) -> List[Any]:
    return [row[table.columns.index(name)] for row in table.rows]


class FakeTraining:
    """Stands in for `allennlp train`."""

    def __init__(self) -> None:
        self.started: List[str] = []  # the names of runs
        self.failing: Set[str] = set()  # the names of runs that are to fail

    def command(self, folder: RunFolder, *more: Any) -> List[str]:
        name = folder.path.name
        self.started.append(name)
        arguments = [str(folder.path), str(folder.config_file), json.dumps(name in self.failing)]
        return [sys.executable, "-S", fake_runs.__file__, *arguments]


@pytest.fixture
def training(monkeypatch: pytest.MonkeyPatch) -> FakeTraining:
    """No run is trained, each makes its folder in a moment."""
    fake = FakeTraining()
    monkeypatch.setattr(runs, "train_command", fake.command)
    return fake


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
        monkeypatch.setenv(f"{task.upper()}_DATA", os.environ.get(f"{task.upper()}_DATA", "data"))
        monkeypatch.setenv("ELMO", "elmo_mini")
        config = config_file or REPOSITORY / "training_configs" / f"{task}_small.jsonnet"
        given = {"output": str(tmp_path / "results"), "seeds": (1, 2), "jobs": 1, **changes}
        return options_class(config_file=str(config), **given)

    return make


@pytest.fixture
def bilm_folder(tmp_path: Path) -> Path:
    """The folder of a tiny random biLM."""
    folder = tmp_path / "my_bilm"
    folder.mkdir()
    randomize(BiLM(TINY_OPTIONS)).save(folder / "options.json", folder / "weights.hdf5")
    return folder
