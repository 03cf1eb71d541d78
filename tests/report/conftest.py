"""Grids of runs that are not trained."""

import json
import os
import sys
from pathlib import Path
from typing import Any, Callable, List

import pytest

from elmo_plugin.report import grid
from elmo_plugin.report.experiment import Cell
from elmo_plugin.report.grid import GridOptions
from elmo_plugin.report.run_folder import RunFolder
from tests.report import fake_runs

REPOSITORY = Path(__file__).parents[2]


class FakeTraining:
    """
    Stands in for `allennlp train`.

    # Parameters

    started : `List[str]`
        The names of runs that were started.
    failing : `Set[str]`
        The names of runs that are to fail.
    """

    script = [str(fake_runs.__file__)]

    def __init__(self) -> None:
        self.started: List[str] = []
        self.failing: set = set()

    def command(
        self, cell: Cell, folder: RunFolder, options: GridOptions, goes_on: bool = False
    ) -> List[str]:
        self.started.append(cell.name)
        fails = cell.name in self.failing
        return [
            sys.executable,
            "-S",
            *self.script,
            str(folder.path),
            json.dumps(cell.config),
            json.dumps(fails),
        ]

    def installed(self, monkeypatch: pytest.MonkeyPatch) -> "FakeTraining":
        monkeypatch.setattr(grid, "train_command", self.command)
        monkeypatch.setattr(grid, "_SECONDS_BETWEEN_LOOKS", 0.02)
        return self


@pytest.fixture
def training(monkeypatch: pytest.MonkeyPatch) -> FakeTraining:
    """No run is trained, each makes its folder in a moment."""
    return FakeTraining().installed(monkeypatch)


@pytest.fixture
def options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., GridOptions]:
    """`options(task="ner", **changes)`: of a grid over the small config of a task."""

    def make(task: str = "ner", **changes: Any) -> GridOptions:
        monkeypatch.setenv(f"{task.upper()}_DATA", os.environ.get(f"{task.upper()}_DATA", "data"))
        monkeypatch.setenv("ELMO", "elmo_mini")
        config = REPOSITORY / "training_configs" / f"{task}_small.jsonnet"
        return GridOptions(str(config), str(tmp_path / "results"), **{"seeds": [1, 2], **changes})

    return make
