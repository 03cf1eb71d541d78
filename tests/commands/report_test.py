"""`elmo report` as users call it."""

import json
import re
import shlex
import sys
from pathlib import Path
from typing import Any, Callable, List

import pytest

from elmo_plugin.commands.main import main
from tests.conftest import run_program
from tests.report.conftest import REPOSITORY, FakeTraining, options, read_table, training

__all__ = ["options", "training"]  # fixtures

TINY = REPOSITORY / "fixtures" / "ner" / "tiny"
Options = Callable[..., Any]


def run(*arguments: Any) -> None:
    """Run `elmo report` in this process."""
    main(["report", *map(str, arguments)])


def test_a_missing_library_is_an_error_before_any_work(
    training: FakeTraining, options: Options, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(SystemExit, match="2"):
        run("layers", options().config_file, "-s", options().output)
    assert re.search(r"import of matplotlib .*elmo-plugin\[report\]", capsys.readouterr().err)
    assert training.started == []


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A results folder with two runs that were trained, from a folder that is not the project's."""
    folder = tmp_path_factory.mktemp("elsewhere")
    overrides = json.dumps({"trainer.num_epochs": 2, "trainer.cuda_device": -1})
    command = [
        *("python", "-m", "elmo_plugin", "report", "sample-efficiency"),
        *(str(TINY / "experiment_elmo.jsonnet"), "-s", "results", "--seeds", "5"),
        *("--shares", "0.5", "--jobs", "2", "--overrides", overrides),
    ]
    result = run_program(sys.executable, *command[1:], cwd=folder, OMP_NUM_THREADS="1")
    assert result.returncode == 0, result.stderr
    recorded = shlex.split(
        read_table(folder / "results" / "sample-efficiency-ner.json").settings["command"]
    )
    command[5] = ".../tiny/experiment_elmo.jsonnet"
    assert recorded == command
    names = [line for line in result.stdout.splitlines() if line.startswith("results/")]
    assert len(names) == 11 and all((folder / name).is_file() for name in names)
    assert re.search(r"100%.* 2/2 ", result.stderr)
    [log] = (folder / "results" / "runs").glob("ner-both-*.log")
    assert "The frozen biLM runs in float32" in log.read_text()
    return folder / "results"


@pytest.mark.slow
def test_the_runs_were_of_half_of_the_sentences(results: Path) -> None:
    by_share = read_table(results / "sample-efficiency-ner.json")
    assert [row[:3] for row in by_share.rows] == [[0.5, 4, "no ELMo"], [0.5, 4, "ELMo"]]
    for name, row in zip(("none", "both"), by_share.rows):
        folder = results / "runs" / f"ner-{name}-share_0.5-batches_2-seed5"
        metrics = json.loads((folder / "metrics.json").read_text())
        score = row[by_share.columns.index("dev f1 (%), seed 5")]
        assert score == round(100 * metrics["best_validation_f1"], 2)
        assert row[by_share.columns.index("epochs")] == 2
    by_epoch = read_table(results / "sample-efficiency-epochs-ner.json")
    assert by_epoch.rows[0][:2] == [0.5, 5]


@pytest.mark.slow
def test_a_run_that_is_done_is_known_by_its_config(
    results: Path, capsys: pytest.CaptureFixture
) -> None:
    """The record of the process that trained is compared with the config, evaluated in this process."""
    overrides = json.dumps({"trainer.num_epochs": 2, "trainer.cuda_device": -1})
    arguments = [TINY / "experiment_elmo.jsonnet", "-s", results, "--seeds", 5]
    previous = {path: path.stat().st_mtime_ns for path in results.glob("runs/*/metrics.json")}
    assert len(previous) == 2
    run("sample-efficiency", *arguments, "--shares", 0.5, "--overrides", overrides)
    assert {path: path.stat().st_mtime_ns for path in previous} == previous
    with pytest.raises(SystemExit, match="2"):
        run("sample-efficiency", *arguments, "--shares", 0.5)
    assert "trainer.num_epochs is 2, expected" in capsys.readouterr().err


class TestArguments:
    """Each does what it says; training is faked."""

    def arguments(self, options: Options) -> List[Any]:
        return [options().config_file, "-s", options().output, "--seeds", 1]

    def test_a_failed_run_makes_the_command_fail_at_the_end(
        self, training: FakeTraining, options: Options, capsys: pytest.CaptureFixture
    ) -> None:
        training.failing = {"ner-none-seed1"}
        with pytest.raises(SystemExit, match=r"(?s)1 runs failed:\nner-none-seed1: .*seed1\.log"):
            run("placement", *self.arguments(options), "--placements", "none", "input")
        assert "placement-ner.md" in capsys.readouterr().out

    def test_name_packages_and_overrides(
        self, training: FakeTraining, options: Options, capsys: pytest.CaptureFixture
    ) -> None:
        run("layers", *self.arguments(options), "--name", "wikigold", "--jobs", 1, "--dry-run",
            "--include-package", "json", "-o", '{"trainer.num_epochs": 3}')  # fmt: skip
        assert len(capsys.readouterr().out.splitlines()) == 4
        assert training.started[0] == "wikigold-none-seed1"
        config = json.loads((options().runs_folder / "wikigold-none-seed1.json").read_text())
        assert config["trainer"]["num_epochs"] == 3
