"""Training is faked here: each run makes its folder in a moment."""

import json
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Callable, Dict, List, Optional

import pytest

from elmo_plugin.errors import ConfigurationError
from elmo_plugin.files.output import claimed_folder
from elmo_plugin.report import runs
from elmo_plugin.report.runs import Run, TrainedRuns, train
from elmo_plugin.report.tables import versions
from elmo_plugin.report.variants import TaskOptions, Variant
from tests.report.conftest import FakeTraining
from tests.report.fake_runs import FAILURE

VARIANTS = (Variant("no ELMo", placement="none"), Variant("ELMo"))
NAMES = ["ner-none-seed1", "ner-none-seed2", "ner-input-seed1", "ner-input-seed2"]
Options = Callable[..., TaskOptions]


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    for name in ("train", "dev", "test"):
        (folder / f"{name}.conll").write_text("a -X- O O\n")
    monkeypatch.setenv("NER_DATA", str(folder))
    return folder


@pytest.fixture
def move_data(data: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Path]:
    def move() -> Path:
        moved = data.rename(data.with_name("moved"))
        monkeypatch.setenv("NER_DATA", str(moved))
        return moved

    return move


def runs_of(options: TaskOptions) -> List[Run]:
    experiment = options.experiment()
    return [experiment.run_of(variant, seed) for variant in VARIANTS for seed in options.runs.seeds]


def run(options: TaskOptions, metric: str = "f1") -> Optional[TrainedRuns]:
    return train(dict(enumerate(runs_of(options))), options.runs, metric)


def scores(trained: Optional[TrainedRuns]) -> List[Optional[float]]:
    assert trained is not None
    return [s if s is None else round(s.validation, 6) for s in trained.scores.values()]


class TestTrain:
    def test_every_run_is_trained_once(self, training: FakeTraining, options: Options) -> None:
        given = options()
        runs = runs_of(given)
        trained = train(dict(enumerate([*runs, runs[0]])), given.runs, "f1")
        assert training.started == NAMES
        assert scores(trained) == [0.31, 0.32, 0.51, 0.52, 0.31]

    def test_finished_runs_are_kept_and_the_others_are_restarted(
        self, training: FakeTraining, options: Options
    ) -> None:
        run(options())
        training.started.clear()
        (options().runs.runs_folder / NAMES[1] / "metrics.json").unlink()
        assert scores(run(options())) == [0.31, 0.32, 0.51, 0.52]
        assert training.started == [NAMES[1]]

    def test_finished_runs_are_kept_where_data_and_results_have_moved(
        self, training: FakeTraining, options: Options, data: Path, move_data: Callable[[], Path]
    ) -> None:
        run(options())
        moved = move_data()
        output = Path(options().runs.output)
        given = options(output=str(output.rename(output.with_name("moved_results"))))
        assert scores(run(given)) == [0.31, 0.32, 0.51, 0.52]
        assert training.started == NAMES
        (moved / "dev.conll").write_text("b -X- O O\n")
        with pytest.raises(ConfigurationError, match="on other data: validation_data_path is"):
            run(given)

    def test_a_folder_in_which_another_report_trains_is_refused(
        self, training: FakeTraining, options: Options
    ) -> None:
        with claimed_folder(options().runs.runs_folder, "claimed"):
            with pytest.raises(ConfigurationError, match="another `elmo report` is training runs"):
                run(options())
            assert run(options(dry_run=True)) is None
        assert training.started == NAMES  # by the dry run, which asks for their commands

    @pytest.mark.parametrize("jobs, threads", [(1, 4), (3, 1), (None, 1), (100, 1)])
    def test_runs_share_the_cores(
        self,
        jobs: Optional[int],
        threads: int,
        training: FakeTraining,
        options: Options,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(runs, "num_cores", lambda: 4)
        given = options(jobs=jobs)
        run(given)
        for name in NAMES:
            log = given.runs.runs_folder / f"{name}.log"
            assert f"threads: {threads}\n" in log.read_text()

    def test_a_run_that_fails_stops_no_other_and_is_tried_again(
        self, training: FakeTraining, options: Options, caplog: pytest.LogCaptureFixture
    ) -> None:
        training.failing = {NAMES[0], NAMES[2]}
        with caplog.at_level("INFO"):
            trained = run(options())
        assert scores(trained) == [None, 0.32, None, 0.52]
        assert trained is not None
        log = options().runs.runs_folder / f"{NAMES[0]}.log"
        assert trained.failures[0] == f"{NAMES[0]}: {FAILURE} (log: {log})"
        assert f"{NAMES[0]}: failed: {FAILURE}" in caplog.text
        assert f"{NAMES[1]}: f1 0.32 after 1.5 minutes. 2 of 4 runs, about" in caplog.text
        training.failing.clear()
        training.started.clear()
        assert scores(run(options())) == [0.31, 0.32, 0.51, 0.52]
        assert training.started == [NAMES[0], NAMES[2]]

    def test_an_end_without_metrics_is_a_failure(
        self, options: Options, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        command = [sys.executable, "-S", "-c", "print('hm')"]
        monkeypatch.setattr(runs, "train_command", lambda *args: command)
        trained = run(options(seeds=(1,)))
        assert trained is not None
        expected = [f"{name}: hm" for name in NAMES[::2]]
        assert [failure.split(" (")[0] for failure in trained.failures] == expected

    def test_damaged_or_other_metrics_are_a_failure(
        self, training: FakeTraining, options: Options
    ) -> None:
        run(options())
        (options().runs.runs_folder / NAMES[1] / "metrics_epoch_0.json").unlink()
        trained = run(options())
        assert scores(trained) == [0.31, None, 0.51, 0.52]
        assert trained is not None and "metrics_epoch_0.json: cannot be read" in trained.failures[0]
        trained = run(options(seeds=(1,)), metric="recall")
        assert trained is not None and "found no best_validation_recall" in trained.failures[0]

    def test_another_config_is_refused_before_anything_is_trained(
        self, training: FakeTraining, options: Options
    ) -> None:
        run(options(seeds=(2,)))
        training.started.clear()
        changes = {"overrides": {"trainer.num_epochs": 2}}
        for dry_run in (False, True):
            with pytest.raises(ConfigurationError, match=r"num_epochs is 20, expected 2\."):
                run(options(**changes, dry_run=dry_run))
        assert training.started == []
        run(options(seeds=(2,), **changes, overwrite=True))
        folder = options().runs.runs_folder / NAMES[1]
        assert json.loads((folder / "config.json").read_text())["trainer"]["num_epochs"] == 2

    def test_interrupted_runs_are_resumed_only_if_asked_for(
        self, training: FakeTraining, options: Options, monkeypatch: pytest.MonkeyPatch, capsys: Any
    ) -> None:
        run(options(seeds=(1,)))
        monkeypatch.undo()
        folder = options().runs.runs_folder / NAMES[0]
        (folder / "metrics.json").unlink()
        for has_checkpoint, recover in ((False, True), (True, False), (True, True)):
            if has_checkpoint:
                (folder / "training_state_e1_b0.th").touch()
            run(options(seeds=(1,), dry_run=True, recover=recover))
            (line,) = capsys.readouterr().out.splitlines()
            flags = [flag for flag in ("--recover", "--force") if f" {flag} " in line]
            assert flags == ["--recover" if has_checkpoint and recover else "--force"]

    def test_versions_are_those_of_the_runs(self, training: FakeTraining, options: Options) -> None:
        trained = run(options())
        assert trained is not None and trained.versions == versions()
        record = options().runs.runs_folder / f"{NAMES[0]}.record.json"
        values = json.loads(record.read_text())
        values["versions"]["torch"] = "1.0"
        record.write_text(json.dumps(values))
        later = run(options())
        assert later is not None and later.versions["torch"] == f"1.0, {versions()['torch']}"

    @pytest.mark.parametrize(
        "changes, match",
        [
            ({"seeds": ()}, r"--seeds: found \[\], expected one or more"),
            ({"seeds": (1, 2, 1)}, r"--seeds: found \[1, 2, 1\], expected .* each once"),
            ({"jobs": 0}, "--jobs: found 0, expected a positive number"),
            ({"output": __file__}, "--output: found the file .*runs_test.py, expected a folder"),
        ],
    )
    def test_invalid_options(self, changes: Dict[str, Any], match: str, options: Options) -> None:
        with pytest.raises(ConfigurationError, match=match):
            options(**changes).experiment()


class TestDryRun:
    def test_the_commands_of_unfinished_runs_are_printed(
        self, options: Options, capsys: pytest.CaptureFixture
    ) -> None:
        assert run(options(dry_run=True, include_package=("mine",))) is None
        lines = capsys.readouterr().out.splitlines()
        for line, expected in zip(lines, runs_of(options()), strict=True):
            words = shlex.split(line)
            folder = f"{options().runs.output}/runs/{expected.name}"
            threads = f"OMP_NUM_THREADS={runs.num_cores()}"
            program = [threads, sys.executable, "-m", "allennlp", "train"]
            assert words[:8] == [*program, f"{folder}.json", "-s", folder]
            assert json.loads(Path(f"{folder}.json").read_text()) == expected.config
            packages = [words[i + 1] for i, word in enumerate(words) if word == "--include-package"]
            assert packages == ["elmo_plugin", "mine"]

    def test_runs_of_a_scheduler_are_collected_where_their_data_have_moved(
        self,
        training: FakeTraining,
        options: Options,
        data: Path,
        move_data: Callable[[], Path],
        capsys: pytest.CaptureFixture,
    ) -> None:
        run(options(seeds=(1,)))
        run(options(dry_run=True))
        lines = capsys.readouterr().out
        assert [name for name in NAMES if f"/{name} " in lines] == [NAMES[1], NAMES[3]]
        subprocess.run(["sh", "-e"], input=lines, text=True, check=True)
        training.started.clear()
        os.utime(move_data() / "train.conll", (2e9, 2e9))
        assert scores(run(options())) == [0.31, 0.32, 0.51, 0.52]
        assert training.started == []


@pytest.mark.parametrize("ignores_sigterm", [False, True])
def test_an_interrupt_stops_all_processes(
    ignores_sigterm: bool, options: Options, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also those that a run has started: each adds a line to a file while it lives."""
    alive = tmp_path / "alive"
    ignore = "signal.signal(signal.SIGTERM, signal.SIG_IGN)" if ignores_sigterm else "pass"
    script = f"""
import os, signal, time
os.fork()
{ignore}
while True:
    with open({str(alive)!r}, "a") as file:
        print(os.getpid(), file=file)
    time.sleep(0.01)
"""

    def interrupted(seconds: float) -> None:
        while not alive.exists() or len(set(alive.read_text().split())) < 4:
            time.sleep(0.01)
        raise KeyboardInterrupt

    command = [sys.executable, "-S", "-c", script]
    monkeypatch.setattr(runs, "train_command", lambda *args: command)
    clock = SimpleNamespace(sleep=interrupted, monotonic=time.monotonic)
    monkeypatch.setattr(runs, "time", clock)
    monkeypatch.setattr(runs, "_SECONDS_TO_STOP", 0.5)
    with pytest.raises(KeyboardInterrupt):
        run(options(jobs=2))
    written = alive.read_text()
    time.sleep(0.3)
    assert alive.read_text() == written
    assert len(set(written.split())) == 4  # the runs that had not started were not


def test_the_cores_are_counted_where_the_system_has_no_affinity(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    assert runs.num_cores() >= 1
