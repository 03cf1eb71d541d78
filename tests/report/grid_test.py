import json
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional

import pytest
from allennlp.common.checks import ConfigurationError

from elmo_plugin.files.claimed_folder import claimed_folder
from elmo_plugin.report import grid
from elmo_plugin.report.experiment import Cell, Variant
from elmo_plugin.report.grid import CellResult, GridOptions, run_grid, shell_command, train_command
from elmo_plugin.report.run_folder import RunFolder
from tests.report.conftest import FakeTraining
from tests.report.fake_runs import FAILURE

VARIANTS = (Variant("no ELMo", placement="none"), Variant("ELMo"))
NAMES = ["ner-none-seed1", "ner-none-seed2", "ner-input-seed1", "ner-input-seed2"]
Options = Callable[..., GridOptions]


def cells_of(options: GridOptions) -> List[Cell]:
    experiment = options.experiment()
    return [experiment.cell(variant, seed) for variant in VARIANTS for seed in options.seeds]


def run(options: GridOptions) -> Optional[List[CellResult]]:
    return run_grid(cells_of(options), options, options.experiment())


def scores(results: Optional[List[CellResult]]) -> List[Optional[float]]:
    assert results is not None
    return [
        None if result.scores is None else round(result.scores.validation, 6) for result in results
    ]


def test_every_cell_is_trained_once(training: FakeTraining, options: Options) -> None:
    results = run(options())
    assert training.started == NAMES
    assert scores(results) == [0.31, 0.32, 0.51, 0.52]


def test_runs_that_are_done_are_kept_and_the_others_start_anew(
    training: FakeTraining, options: Options
) -> None:
    run(options())
    training.started.clear()
    (Path(options().output) / "runs" / NAMES[1] / "metrics.json").unlink()
    assert scores(run(options())) == [0.31, 0.32, 0.51, 0.52]
    assert training.started == [NAMES[1]]


def test_a_folder_in_which_another_report_trains_is_left_alone(
    training: FakeTraining, options: Options
) -> None:
    runs = Path(options().output) / "runs"
    with claimed_folder(runs, "taken"):
        with pytest.raises(
            ConfigurationError, match=f"another elmo-report is training runs in {runs}"
        ):
            run(options())
        assert training.started == []
        assert run(options(dry_run=True)) is None
    assert scores(run(options())) == [0.31, 0.32, 0.51, 0.52]


def test_cells_of_one_name_are_one_run(training: FakeTraining, options: Options) -> None:
    cells = cells_of(options())
    results = run_grid([*cells, cells[0]], options(), options().experiment())
    assert training.started == NAMES
    assert scores(results) == [0.31, 0.32, 0.51, 0.52, 0.31]


@pytest.mark.parametrize("jobs, threads", [(1, 4), (2, 2), (3, 1), (None, 1), (100, 1)])
def test_cores_are_shared_out_among_runs(
    jobs: Optional[int],
    threads: int,
    training: FakeTraining,
    options: Options,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(grid, "num_cores", lambda: 4)
    started = subprocess.Popen
    beside: List[int] = []
    running: List[subprocess.Popen] = []

    def start(*args: Any, **kwargs: Any) -> subprocess.Popen:
        running.append(started(*args, **kwargs))
        beside.append(sum(process.returncode is None for process in running))
        return running[-1]

    monkeypatch.setattr(subprocess, "Popen", start)
    run(options(jobs=jobs))
    for name in NAMES:
        log = Path(options().output) / "runs" / f"{name}.log"
        assert f"threads: {threads}\n" in log.read_text()
    assert max(beside) == min(jobs or 4, 4)


def test_there_are_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    assert grid.num_cores() >= 1
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    assert grid.num_cores() >= 1


def test_a_run_that_fails_stops_no_other_and_is_tried_again(
    training: FakeTraining, options: Options, caplog: pytest.LogCaptureFixture
) -> None:
    training.failing = {NAMES[0], NAMES[2]}
    with caplog.at_level("INFO"):
        results = run(options(jobs=1))
    assert scores(results) == [None, 0.32, None, 0.52]
    assert results is not None
    assert results[0].failure == f"{FAILURE} (log: {options().output}/runs/{NAMES[0]}.log)"
    assert results[1].failure == ""
    assert f"{NAMES[0]}: failed: {FAILURE}" in caplog.text
    assert (
        f"{NAMES[1]}: f1 0.32 after 1.5 minutes. 2 of 4 runs, about 0 minutes left" in caplog.text
    )

    training.failing.clear()
    training.started.clear()
    assert scores(run(options())) == [0.31, 0.32, 0.51, 0.52]
    assert training.started == [NAMES[0], NAMES[2]]


def test_an_end_without_metrics_is_a_failure(
    options: Options, training: FakeTraining, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grid, "train_command", lambda *args: [sys.executable, "-c", "print('hm')"])
    results = run(options(seeds=[1]))
    assert results is not None
    assert [result.failure.split(" (")[0] for result in results] == ["hm", "hm"]


def test_a_run_that_is_done_and_damaged_is_a_failure(
    training: FakeTraining, options: Options
) -> None:
    run(options())
    (Path(options().output) / "runs" / NAMES[1] / "metrics_epoch_0.json").unlink()
    results = run(options())
    assert scores(results) == [0.31, None, 0.51, 0.52]
    assert results is not None and "metrics_epoch_0.json: cannot be read" in results[1].failure


def test_a_run_that_measures_something_else_is_a_failure(
    training: FakeTraining, options: Options, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO"):
        results = run(options(seeds=[1], overrides={"trainer.validation_metric": "+recall"}))
    assert scores(results) == [None, None]
    assert "ner-none-seed1: failed: " in caplog.text
    assert "there is no best_validation_recall" in caplog.text


class TestAnotherConfig:
    def test_it_is_refused_before_anything_is_trained(
        self, training: FakeTraining, options: Options
    ) -> None:
        run(options(seeds=[2]))
        training.started.clear()
        match = (
            r"ner-none-seed2: is a run of another config: trainer\.num_epochs is 20, expected 2\."
        )
        with pytest.raises(ConfigurationError, match=match + ".*--overwrite to replace it"):
            run(options(overrides={"trainer.num_epochs": 2}))
        with pytest.raises(ConfigurationError, match="another config"):
            run(options(overrides={"trainer.num_epochs": 2}, dry_run=True))
        assert not (Path(options().output) / "runs" / NAMES[0]).exists()

    def test_it_is_replaced_if_that_is_asked_for(
        self, training: FakeTraining, options: Options
    ) -> None:
        run(options(seeds=[2]))
        run(options(overrides={"trainer.num_epochs": 2}, overwrite=True))
        folder = Path(options().output) / "runs" / NAMES[1]
        assert json.loads((folder / "config.json").read_text())["trainer"]["num_epochs"] == 2
        training.started.clear()
        run(options(overrides={"trainer.num_epochs": 2}, overwrite=True))
        assert training.started == []

    def test_another_name_stands_beside_it(self, training: FakeTraining, options: Options) -> None:
        run(options())
        run(options(overrides={"trainer.num_epochs": 2}, name="ner-short"))
        assert training.started == [*NAMES, *(name.replace("ner", "ner-short") for name in NAMES)]


class TestDryRun:
    def test_the_commands_of_runs_that_are_not_done_are_printed(
        self, options: Options, capsys: pytest.CaptureFixture
    ) -> None:
        assert run(options(dry_run=True, jobs=1)) is None
        lines = capsys.readouterr().out.splitlines()
        assert len(lines) == 4
        assert not Path(options().output).exists()
        for line, cell in zip(lines, cells_of(options())):
            words = shlex.split(line)
            assert words[:4] == [
                *("ELMO=elmo_mini", "NER_DATA=data", "NER_SCHEME=IOB1"),
                f"OMP_NUM_THREADS={grid.num_cores()}",
            ]
            assert words[4:8] == [sys.executable, "-m", "allennlp", "train"]
            assert words[8] == options().config_file
            assert words[words.index("-s") + 1] == f"{options().output}/runs/{cell.name}"
            assert json.loads(words[words.index("--overrides") + 1]) == cell.overrides

    def test_runs_that_are_done_are_left_out(
        self, training: FakeTraining, options: Options, capsys: pytest.CaptureFixture
    ) -> None:
        run(options(seeds=[1]))
        run(options(dry_run=True))
        output = capsys.readouterr().out
        assert [name for name in NAMES if f"/{name} " in output] == [NAMES[1], NAMES[3]]

    def test_a_shell_runs_the_lines_and_then_they_are_only_collected(
        self, training: FakeTraining, options: Options, capsys: pytest.CaptureFixture
    ) -> None:
        run(options(dry_run=True, overrides={"model.text_encoder.dropout": 0.25}))
        subprocess.run(["sh", "-e"], input=capsys.readouterr().out, text=True, check=True)
        training.started.clear()
        results = run(options(overrides={"model.text_encoder.dropout": 0.25}))
        assert scores(results) == [0.31, 0.32, 0.51, 0.52]
        assert training.started == []


def test_values_are_quoted_for_a_shell() -> None:
    line = shell_command([sys.executable, "-c", "print('$HOME \"x\"')"], {"A": "b c'd"})
    assert line.startswith("A='b c'\"'\"'d' ")
    output = subprocess.run(["sh", "-c", line], capture_output=True, text=True, check=True).stdout
    assert output == '$HOME "x"\n'


class TestCommand:
    def cell(self, options: GridOptions) -> Cell:
        return cells_of(options)[0]

    def test_it_replaces_what_is_there(self, options: Options, tmp_path: Path) -> None:
        command = train_command(self.cell(options()), RunFolder(tmp_path / "run"), options())
        assert "--force" in command and "--recover" not in command
        assert command[command.index("--include-package") + 1] == "elmo_plugin"
        assert command.count("--include-package") == 1

    def test_packages_are_passed_on(self, options: Options, tmp_path: Path) -> None:
        given = options(include_packages=["elmo_plugin", "mine"])
        command = train_command(self.cell(given), RunFolder(tmp_path / "run"), given)
        packages = [command[i + 1] for i, word in enumerate(command) if word == "--include-package"]
        assert packages == ["elmo_plugin", "mine"]

    @pytest.mark.parametrize(
        "changes, has_checkpoint, recovers",
        [
            ({}, True, False),
            ({"recover": True}, False, False),
            ({"recover": True}, True, True),
            # A checkpoint of another config is of no use.
            (
                {"recover": True, "overwrite": True, "overrides": {"trainer.num_epochs": 2}},
                True,
                False,
            ),
        ],
    )
    def test_an_interrupted_run_goes_on_if_that_is_asked_for(
        self,
        changes: Dict[str, Any],
        has_checkpoint: bool,
        recovers: bool,
        options: Options,
        capsys: pytest.CaptureFixture,
    ) -> None:
        folder = Path(options().output) / "runs" / NAMES[0]
        folder.mkdir(parents=True)
        (folder / "config.json").write_text(json.dumps(self.cell(options()).config))
        if has_checkpoint:
            (folder / "training_state_e1_b0.th").touch()
        run(options(dry_run=True, **changes))
        lines = capsys.readouterr().out.splitlines()
        assert [" --recover " in line for line in lines] == [recovers, False, False, False]
        assert [" --force " in line for line in lines] == [not recovers, True, True, True]


@pytest.mark.parametrize("ignores_sigterm", [False, True])
def test_processes_are_stopped_if_this_one_is(
    ignores_sigterm: bool,
    options: Options,
    training: FakeTraining,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Those that a run has started, too: each adds a line to a file while it lives."""
    lives = tmp_path / "lives"
    ignore = "signal.signal(signal.SIGTERM, signal.SIG_IGN)" if ignores_sigterm else "pass"
    script = f"""
import os, signal, time
os.fork()
{ignore}
while True:
    with open({str(lives)!r}, "a") as file:
        print(os.getpid(), file=file)
    time.sleep(0.01)
"""
    sleep = time.sleep

    def interrupted(seconds: float) -> None:
        monkeypatch.setattr(time, "sleep", sleep)
        while not lives.exists() or len(set(lives.read_text().split())) < 4:
            sleep(0.01)
        raise KeyboardInterrupt

    monkeypatch.setattr(grid, "train_command", lambda *args: [sys.executable, "-c", script])
    monkeypatch.setattr(time, "sleep", interrupted)
    monkeypatch.setattr(grid, "_SECONDS_TO_STOP", 0.5)
    with pytest.raises(KeyboardInterrupt):
        run(options(jobs=2))
    sleep(0.1)
    written = lives.read_text()
    sleep(0.2)
    assert lives.read_text() == written
    assert len(set(written.split())) == 4


def test_a_process_that_is_gone_needs_no_stop() -> None:
    process = subprocess.Popen([sys.executable, "-S", "-c", ""], start_new_session=True)
    process.wait()
    grid._signal_group(process, grid.signal.SIGTERM)


@pytest.mark.parametrize(
    "changes, match",
    [
        ({"seeds": []}, r"--seeds: found \[\], expected one or more, each once"),
        ({"seeds": [1, 2, 1]}, r"--seeds: found \[1, 2, 1\], expected one or more, each once"),
        ({"jobs": 0}, "--jobs: found 0, expected a positive number"),
        ({"output": __file__}, "--output: .*grid_test.py is a file, expected a folder"),
    ],
)
def test_options_that_make_no_grid(changes: Dict[str, Any], match: str, options: Options) -> None:
    with pytest.raises(ConfigurationError, match=match):
        options()._replace(**changes).experiment()
