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
from elmo_plugin.files.claimed_folder import claimed_folder
from elmo_plugin.report import runs
from elmo_plugin.report.run_folder import RunFolder, RunResult, data_hashes
from elmo_plugin.report.runs import recorded_versions, run_all
from elmo_plugin.report.tables import versions
from elmo_plugin.report.task_grid import TaskOptions
from elmo_plugin.report.variants import Run, Variant
from tests.report.conftest import FakeTraining
from tests.report.fake_runs import FAILURE, write_run

VARIANTS = (Variant("no ELMo", placement="none"), Variant("ELMo"))
NAMES = ["ner-none-seed1", "ner-none-seed2", "ner-input-seed1", "ner-input-seed2"]
CONFIG: Dict[str, Any] = {"model": {"type": "elmo_ner", "dropout": 0.5}, "trainer": {"lr": 1}}
Options = Callable[..., TaskOptions]


def runs_of(options: TaskOptions) -> List[Run]:
    experiment = options.experiment()
    return [experiment.run_of(variant, seed) for variant in VARIANTS for seed in options.runs.seeds]


def run(options: TaskOptions, metric: str = "f1") -> Optional[List[RunResult]]:
    results = run_all(dict(enumerate(runs_of(options))), options.runs, metric)
    return None if results is None else list(results.values())


def scores(results: Optional[List[RunResult]]) -> List[Optional[float]]:
    assert results is not None
    return [None if r.scores is None else round(r.scores.validation, 6) for r in results]


class TestRunAll:
    def test_every_run_is_trained_once(self, training: FakeTraining, options: Options) -> None:
        given = options()
        runs = runs_of(given)
        results = run_all(dict(enumerate([*runs, runs[0]])), given.runs, "f1")
        assert training.started == NAMES and results is not None
        assert scores(list(results.values())) == [0.31, 0.32, 0.51, 0.52, 0.31]

    def test_finished_runs_are_kept_and_the_others_are_restarted(
        self, training: FakeTraining, options: Options
    ) -> None:
        run(options())
        training.started.clear()
        (options().runs.runs_folder / NAMES[1] / "metrics.json").unlink()
        assert scores(run(options())) == [0.31, 0.32, 0.51, 0.52]
        assert training.started == [NAMES[1]]

    def test_a_folder_in_which_another_report_trains_is_refused(
        self, training: FakeTraining, options: Options
    ) -> None:
        with claimed_folder(options().runs.runs_folder, "claimed"):
            with pytest.raises(ConfigurationError, match="another elmo-report is training runs in"):
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
            results = run(options())
        assert scores(results) == [None, 0.32, None, 0.52]
        assert results is not None
        log = options().runs.runs_folder / f"{NAMES[0]}.log"
        assert results[0].failure == f"{FAILURE} (log: {log})"
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
        results = run(options(seeds=(1,)))
        assert results is not None
        assert [result.failure.split(" (")[0] for result in results] == ["hm", "hm"]

    def test_damaged_or_other_metrics_are_a_failure(
        self, training: FakeTraining, options: Options
    ) -> None:
        run(options())
        (options().runs.runs_folder / NAMES[1] / "metrics_epoch_0.json").unlink()
        results = run(options())
        assert scores(results) == [0.31, None, 0.51, 0.52]
        assert results is not None and "metrics_epoch_0.json: cannot be read" in results[1].failure
        results = run(options(seeds=(1,)), metric="recall")
        assert results is not None and "found no best_validation_recall" in results[0].failure

    def test_another_config_is_refused_before_anything_is_trained(
        self, training: FakeTraining, options: Options
    ) -> None:
        run(options(seeds=(2,)))
        training.started.clear()
        changes = {"overrides": {"trainer.num_epochs": 2}}
        for dry_run in (False, True):
            with pytest.raises(
                ConfigurationError,
                match=r"ner-none-seed2: is a run of another config: trainer\.num_epochs is 20, "
                r"expected 2\. .*--overwrite to replace it",
            ):
                run(options(**changes, dry_run=dry_run))
        assert training.started == []
        run(options(seeds=(2,), **changes, overwrite=True))
        folder = options().runs.runs_folder / NAMES[1]
        assert json.loads((folder / "config.json").read_text())["trainer"]["num_epochs"] == 2

    def test_interrupted_runs_are_resumed_only_if_asked_for(
        self, options: Options, capsys: pytest.CaptureFixture
    ) -> None:
        folder = options().runs.runs_folder / NAMES[0]
        folder.mkdir(parents=True)
        (folder / "config.json").write_text(json.dumps(runs_of(options())[0].config))
        for has_checkpoint, recover in ((False, True), (True, False), (True, True)):
            if has_checkpoint:
                (folder / "training_state_e1_b0.th").touch()
            run(options(dry_run=True, recover=recover))
            lines = capsys.readouterr().out.splitlines()
            recovers = has_checkpoint and recover
            assert [" --recover " in line for line in lines] == [recovers, False, False, False]
            assert [" --force " in line for line in lines] == [not recovers, True, True, True]

    @pytest.mark.parametrize(
        "changes, match",
        [
            ({"seeds": ()}, r"--seeds: found \[\], expected one or more"),
            ({"seeds": (1, 2, 1)}, r"--seeds: found \[1, 2, 1\], expected .* each once"),
            ({"jobs": 0}, "--jobs: found 0, expected a positive number"),
            ({"output": __file__}, "--output: found the file .*runs_test.py, expected a folder"),
        ],
    )
    def test_options_that_make_no_runs(
        self, changes: Dict[str, Any], match: str, options: Options
    ) -> None:
        with pytest.raises(ConfigurationError, match=match):
            options(**changes).experiment()


class TestDataOfRuns:
    """Runs are keyed by the content of their data, too."""

    @pytest.fixture(autouse=True)
    def data(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        folder = tmp_path / "data"
        folder.mkdir()
        for name in ("train", "dev", "test"):
            (folder / f"{name}.conll").write_text("a -X- O O\n")
        monkeypatch.setenv("NER_DATA", str(folder))
        return folder

    def test_changed_data_under_the_same_path_is_not_a_finished_run(
        self, training: FakeTraining, options: Options, data: Path
    ) -> None:
        run(options())
        train = data / "train.conll"
        times = train.stat()
        train.write_text("b -X- O O\n")
        os.utime(
            train, ns=(times.st_atime_ns, times.st_mtime_ns - 10**12)
        )  # a file that looks older
        training.started.clear()
        match = r"ner-none-seed1: is a run on other data: the content of train_data_path \(.*train\.conll\)"
        with pytest.raises(ConfigurationError, match=match + r" has changed.*--overwrite"):
            run(options())
        assert training.started == []
        run(options(overwrite=True))
        assert training.started == NAMES
        assert scores(run(options())) == [0.31, 0.32, 0.51, 0.52]
        assert training.started == NAMES

    def test_the_same_content_may_be_written_again(
        self, training: FakeTraining, options: Options, data: Path
    ) -> None:
        run(options())
        (data / "train.conll").write_text("a -X- O O\n")
        os.utime(data / "train.conll", (2e9, 2e9))
        run(options())
        assert training.started == NAMES

    def test_the_same_data_may_have_moved(
        self,
        training: FakeTraining,
        options: Options,
        data: Path,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """Another spelling of a path, or a results folder from another machine."""
        run(options())
        moved = data.rename(tmp_path / "moved")
        monkeypatch.setenv("NER_DATA", str(moved))
        assert scores(run(options())) == [0.31, 0.32, 0.51, 0.52]
        assert training.started == NAMES
        (moved / "dev.conll").write_text("b -X- O O\n")
        match = r'another config: validation_data_path is ".*data/dev.conll", expected ".*moved/dev.conll"\.'
        with pytest.raises(ConfigurationError, match=match):
            run(options())

    def test_a_run_without_a_record_counts_if_its_data_is_older(
        self, training: FakeTraining, options: Options, data: Path
    ) -> None:
        """As those of earlier versions, and those that a scheduler trained after a dry run."""
        results = run(options())
        assert results is not None
        for name in NAMES:
            (options().runs.runs_folder / name / "elmo_report.json").unlink()
        training.started.clear()
        again = run(options())
        assert scores(again) == scores(results) and training.started == []
        assert again is not None
        assert set(recorded_versions(again).values()) == {"not recorded"}
        os.utime(data / "dev.conll", (2e9, 2e9))
        with pytest.raises(
            ConfigurationError,
            match=r"may be a run on other data: validation_data_path .* changed after it started.*touch",
        ):
            run(options())

    def test_versions_are_those_of_the_run(self, training: FakeTraining, options: Options) -> None:
        results = run(options())
        assert results is not None and recorded_versions(results) == versions()
        record = options().runs.runs_folder / NAMES[0] / "elmo_report.json"
        values = json.loads(record.read_text())
        values["versions"]["torch"] = "1.0"
        record.write_text(json.dumps(values))
        later = run(options())
        assert later is not None
        assert recorded_versions(later)["torch"] == f"1.0, {versions()['torch']}"

    def test_what_a_config_names(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "a").mkdir()
        for name in ("a/1", "a/2", "b1.txt", "b2.txt"):
            (tmp_path / name).write_text(name)
        config = {
            "train_data_path": [str(tmp_path / "a"), str(tmp_path / "b*.txt")],
            "model": {"weight_file": str(tmp_path / "b1.txt"), "type": str(tmp_path / "a")},
            "test_data_path": "https://example.org/b1.txt",
            "options_file": "elmo_mini",
        }
        hashes = data_hashes(config)
        # The last is a name, which another version of this package may give to other weights.
        data = ["train_data_path.0", "train_data_path.1", "model.weight_file"]
        assert list(hashes) == [*data, "options_file"]
        (tmp_path / "a" / "2").write_text("a/3")
        changed = data_hashes(config)
        assert [key for key in hashes if hashes[key] != changed[key]] == ["train_data_path.0"]
        (tmp_path / "b2.txt").rename(tmp_path / "b3.txt")
        assert data_hashes(config)["train_data_path.1"] != hashes["train_data_path.1"]
        monkeypatch.chdir(tmp_path)  # the same weights, wherever the package is
        assert data_hashes(config)["options_file"] == hashes["options_file"]


class TestDryRun:
    def test_the_commands_of_unfinished_runs_are_printed(
        self, options: Options, capsys: pytest.CaptureFixture
    ) -> None:
        assert run(options(dry_run=True, include_package=("mine",))) is None
        lines = capsys.readouterr().out.splitlines()
        for line, expected in zip(lines, runs_of(options()), strict=True):
            words = shlex.split(line)
            folder = f"{options().runs.output}/runs/{expected.name}"
            assert words[:7] == [
                f"OMP_NUM_THREADS={runs.num_cores()}",
                *(sys.executable, "-m", "allennlp", "train", f"{folder}.json", "-s"),
            ]
            assert words[7] == folder
            assert json.loads(Path(f"{folder}.json").read_text()) == expected.config
            packages = [words[i + 1] for i, word in enumerate(words) if word == "--include-package"]
            assert packages == ["elmo_plugin", "mine"]

    def test_a_shell_runs_the_lines_and_then_they_are_only_collected(
        self, training: FakeTraining, options: Options, capsys: pytest.CaptureFixture
    ) -> None:
        run(options(seeds=(1,)))
        run(options(dry_run=True))
        lines = capsys.readouterr().out
        assert [name for name in NAMES if f"/{name} " in lines] == [NAMES[1], NAMES[3]]
        subprocess.run(["sh", "-e"], input=lines, text=True, check=True)
        training.started.clear()
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


def test_there_are_cores_where_the_system_does_not_say_which(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    assert runs.num_cores() >= 1


class TestRunFolder:
    @pytest.fixture
    def folder(self, tmp_path: Path) -> RunFolder:
        return RunFolder(tmp_path / "runs" / "ner-none-seed1")

    def test_an_empty_place_is_of_any_config(self, folder: RunFolder) -> None:
        folder.check(CONFIG)
        folder.path.mkdir(parents=True)
        folder.check(CONFIG)

    def test_a_run_of_another_config_is_refused_with_the_differences(
        self, folder: RunFolder
    ) -> None:
        write_run(folder.path, CONFIG, [0.3])
        model = {"type": "elmo_ner", "dropout": 0.25, "words": "日本語"}
        with pytest.raises(
            ConfigurationError,
            match=r"ner-none-seed1: is a run of another config: model\.dropout is 0\.5, expected 0\.25; "
            r'model\.words is nothing, expected "日本語"; a is nothing, expected 1; and 1 more\..*--ove',
        ):
            folder.check({"model": model, "trainer": {}, "a": 1})

    @pytest.mark.parametrize("content", [None, "{"])
    def test_something_else_is_refused(self, content: Any, folder: RunFolder) -> None:
        folder.path.mkdir(parents=True)
        (folder.path / "thesis.tex").touch()
        if content is not None:
            (folder.path / "config.json").write_text(content)
        with pytest.raises(ConfigurationError, match=r"has no config\.json of a training run"):
            folder.check(CONFIG)

    def test_scores_are_those_of_the_best_epoch(self, folder: RunFolder) -> None:
        write_run(folder.path, CONFIG, [0.3, 0.5, 0.4], test=0.45, duration="1 day, 2:03:30.5")
        scores = folder.scores("f1")
        assert scores[:4] == (0.5, 0.45, [0.3, 0.5, 0.4], 2)
        assert scores.minutes == pytest.approx(26 * 60 + 3.5, abs=0.01)
        assert scores.peak_gigabytes == 1.25

    @pytest.mark.parametrize(
        "log, return_code, failure",
        [
            ("Traceback\nallennlp.common.checks.ConfigurationError: no data\nbye\n", 1,
             "allennlp.common.checks.ConfigurationError: no data"),
            ("ValueError: first\nRuntimeError: then\n", 1, "RuntimeError: then"),
            ("the last line\n\n", 3, "the last line"),
            ("", 3, "exited with code 3 and an empty log"),
            ("RuntimeError: earlier\n", -9, "stopped by signal 9, perhaps for lack of memory"),
            ("", -15, "stopped by signal 15"),
        ],
    )  # fmt: skip
    def test_a_failure_is_one_line(
        self, log: str, return_code: int, failure: str, folder: RunFolder
    ) -> None:
        folder.path.parent.mkdir()
        folder.log_file.write_text(log)
        assert folder.failure(return_code) == failure
