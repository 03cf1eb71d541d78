"""Runs that are not trained."""

import json
import os
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any, Callable, List, Optional, Set, Type

import pytest

from elmo_plugin.report import runs
from elmo_plugin.report.grid_reports import LayersOptions
from elmo_plugin.report.run_folder import RunFolder
from elmo_plugin.report.runs import RunOptions
from elmo_plugin.report.tables import ReportTable
from elmo_plugin.report.variants import TaskOptions
from tests.report import fake_runs

REPOSITORY = Path(__file__).parents[2]


def column(table: ReportTable, name: str) -> List[Any]:
    return [row[table.columns.index(name)] for row in table.rows]


class FakeTraining:
    """Stands in for `allennlp train`."""

    script = [str(fake_runs.__file__)]

    def __init__(self) -> None:
        self.started: List[str] = []  # the names of runs
        self.failing: Set[str] = set()  # the names of runs that are to fail

    def command(self, folder: RunFolder, options: RunOptions, recovers: bool) -> List[str]:
        name = folder.path.name
        self.started.append(name)
        arguments = [str(folder.path), str(folder.config_file), json.dumps(name in self.failing)]
        return [sys.executable, "-S", *self.script, *arguments]

    def installed(self, monkeypatch: pytest.MonkeyPatch) -> "FakeTraining":
        monkeypatch.setattr(runs, "train_command", self.command)
        return self


@pytest.fixture
def training(monkeypatch: pytest.MonkeyPatch) -> FakeTraining:
    """No run is trained, each makes its folder in a moment."""
    return FakeTraining().installed(monkeypatch)


@pytest.fixture
def options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """
    `options(LayersOptions, task="ner", name=..., **changes)`: of a report on the small config of a task,
    one run at a time; `changes` are of `RunOptions` or of the report.
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
        names = {field.name for field in fields(RunOptions)}
        of_runs = {name: changes.pop(name) for name in list(changes) if name in names}
        given = {"output": str(tmp_path / "results"), "seeds": (1, 2), "jobs": 1, **of_runs}
        return options_class(config_file=str(config), runs=RunOptions(**given), **changes)

    return make
