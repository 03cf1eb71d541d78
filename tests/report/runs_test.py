"""Training is faked here: each run makes its folder in a moment."""

import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from itertools import product
from math import isnan
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Callable, Dict, List, Optional, Set

import pytest

from elmo_plugin.bilm import model_files
from elmo_plugin.compat import training_process
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.files.output import claimed_folder
from elmo_plugin.report import runs
from elmo_plugin.report.runs import RunFolder, TrainedRuns, train
from elmo_plugin.report.tables import versions
from elmo_plugin.report.variants import TaskExperiment, TaskOptions, Variant
from tests.closeness import assert_close
from tests.compat.training_process_test import ends_within
from tests.report.conftest import FAILURE, FakeTraining, write_run

VARIANTS = (Variant("no ELMo", placement="none"), Variant("ELMo"))
NAMES = ["ner-none-seed1", "ner-none-seed2", "ner-input-seed1", "ner-input-seed2"]
CONFIG: Dict[str, Any] = {
    "model": {"text_encoder": {"a": 1}, "dropout": 0.5},
    "trainer": {"lr": 1},
}
Options = Callable[..., TaskOptions]


def runs_of(options: TaskOptions) -> Dict[Any, RunFolder]:
    experiment = TaskExperiment(options)
    variants = product(VARIANTS, options.seeds)
    return {(of.label, seed): experiment.run_of(of, seed) for of, seed in variants}


def run(options: TaskOptions, metric: str = "f1") -> TrainedRuns:
    return train(runs_of(options), options, metric)


def scores(trained: TrainedRuns) -> List[Optional[float]]:
    return [None if isnan(score) else round(score, 6) for score in trained.scores["validation"]]


class TestTrain:
    def test_every_run_is_trained_once_and_restarted_only_if_it_is_not_finished(
        self, training: FakeTraining, options: Options
    ) -> None:
        given = options()
        runs = runs_of(given)
        trained = train({**runs, ("again", 1): runs["no ELMo", 1]}, given, "f1")
        assert training.started == NAMES
        assert scores(trained) == [0.31, 0.32, 0.51, 0.52, 0.31]
        training.started.clear()
        (given.runs_folder / NAMES[1] / "metrics.json").unlink()
        assert scores(run(given)) == [0.31, 0.32, 0.51, 0.52]
        assert training.started == [NAMES[1]]

    def test_two_configs_of_one_name_are_refused(
        self, training: FakeTraining, options: Options
    ) -> None:
        given = options()
        path = given.runs_folder / "ner-words-seed1"
        runs = {(file, 1): RunFolder(path, {**CONFIG, "file": file}) for file in "ab"}
        message = "Two runs with different configs have the name 'ner-words-seed1'"
        with pytest.raises(ConfigurationError, match=message):
            train(runs, given, "f1")
        assert training.started == []

    def test_a_folder_in_which_another_report_trains_is_refused(
        self, training: FakeTraining, options: Options
    ) -> None:
        expected = pytest.raises(ConfigurationError, match="another `elmo report` is training")
        with claimed_folder(options().runs_folder, "claimed"), expected:
            run(options())
        assert training.started == []

    def test_runs_share_the_cores(
        self, training: FakeTraining, options: Options, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(runs, "usable_cpus", lambda: 4)
        for jobs, threads in [(1, 4), (3, 1), (None, 1)]:
            given = options(jobs=jobs)
            shutil.rmtree(given.runs_folder, ignore_errors=True)
            run(given)
            logs = [path.read_text() for path in given.runs_folder.glob("*.log")]
            assert [f"threads: {threads}\n" in log for log in logs] == [True] * 4

    def test_a_run_that_fails_stops_no_other_and_is_tried_again(
        self, training: FakeTraining, options: Options
    ) -> None:
        training.failing = {NAMES[0], NAMES[2]}
        trained = run(options())
        assert scores(trained) == [None, 0.32, None, 0.52]
        log = options().runs_folder / f"{NAMES[0]}.log"
        assert trained.failures[0] == f"{NAMES[0]}: {FAILURE} (log: {log})"
        training.failing.clear()
        training.started.clear()
        assert scores(run(options())) == [0.31, 0.32, 0.51, 0.52]
        assert training.started == [NAMES[0], NAMES[2]]

    def test_an_end_without_metrics_is_a_failure(
        self, options: Options, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        command = [sys.executable, "-S", "-c", "print('hm')"]
        monkeypatch.setattr(runs.RunFolder, "command", lambda *args: command)
        assert run(options(seeds=(1,))).failures[1].startswith(f"{NAMES[2]}: hm (log")

    def test_damaged_or_other_metrics_are_a_failure(
        self, training: FakeTraining, options: Options
    ) -> None:
        run(options())
        (options().runs_folder / NAMES[1] / "metrics_epoch_0.json").unlink()
        trained = run(options())
        assert scores(trained) == [0.31, None, 0.51, 0.52]
        assert "metrics_epoch_0.json: cannot be read" in trained.failures[0]
        trained = run(options(seeds=(1,)), metric="recall")
        assert "found no best_validation_recall" in trained.failures[0]

    def test_another_config_is_refused_before_anything_is_trained(
        self, training: FakeTraining, options: Options
    ) -> None:
        run(options(seeds=(2,)))
        training.started.clear()
        changed = options(overrides={"trainer.num_epochs": 2})
        for given in (changed, replace(changed, dry_run=True)):
            with pytest.raises(ConfigurationError, match=r"num_epochs is 100, expected 2\."):
                run(given)
        assert training.started == []
        for name in (NAMES[1], NAMES[3]):
            shutil.rmtree(changed.runs_folder / name)  # as the error advises
        run(changed)
        assert training.started == NAMES

    def test_data_that_change_while_runs_are_trained_are_a_failure(
        self, training: FakeTraining, options: Options, tmp_path: Path
    ) -> None:
        data = tmp_path / "changing.conll"
        data.write_text("a\n")
        given = options(overrides={"train_data_path": str(data)}, jobs=1)
        training.at_start[NAMES[1]] = lambda: data.write_text("another\n")
        trained = run(given)
        assert scores(trained) == [None, None, 0.51, 0.52]
        assert "is a run of another config or on other data: train_data_path" in trained.failures[0]

    def test_versions_are_those_of_the_runs(self, training: FakeTraining, options: Options) -> None:
        assert run(options()).versions == versions()
        record = options().runs_folder / f"{NAMES[0]}.record.json"
        values = json.loads(record.read_text())
        values["versions"]["torch"] = "1.0"
        record.write_text(json.dumps(values))
        assert run(options()).versions["torch"] == f"1.0, {versions()['torch']}"

    @pytest.mark.parametrize(
        "changes, match",
        [
            ({"seeds": ()}, r"--seeds: found \[\], expected one or more"),
            ({"seeds": (1, 2, 1)}, r"--seeds: found \[1, 2, 1\], expected .* each once"),
            ({"seeds": (-1,)}, r"--seeds: found \[-1\], expected .* from 0 to 4294967295, each"),
            ({"seeds": (2**32,)}, r"--seeds: found \[4294967296\], expected .* numbers from 0 to"),
            ({"jobs": 0}, "jobs is 0, expected a positive whole number"),
            (
                {"output": __file__},
                "--output: found .*runs_test.py, expected a folder for the results",
            ),
            ({"output": f"{__file__}/results"}, r"runs_test\.py is not a writable folder"),
        ],
    )
    def test_invalid_options(self, changes: Dict[str, Any], match: str, options: Options) -> None:
        with pytest.raises(ConfigurationError, match=match):
            options(**changes)


class TestDryRun:
    def lines(self, options: TaskOptions, capsys: pytest.CaptureFixture) -> List[str]:
        assert train(runs_of(options), options, "f1") is None
        return capsys.readouterr().out.splitlines()

    def test_the_commands_of_unfinished_runs_are_printed(
        self, options: Options, capsys: pytest.CaptureFixture
    ) -> None:
        given = options(dry_run=True, include_package=("mine",))
        for line, expected in zip(self.lines(given, capsys), runs_of(given).values(), strict=True):
            folder = f"{given.output}/runs/{expected.name}"
            condition, words = line.split(" || ")[0], shlex.split(line.split(" || ")[1])
            assert condition == f"[ -e {folder}/metrics.json ]"
            threads = f"OMP_NUM_THREADS={runs.usable_cpus()}"
            program = [threads, sys.executable, "-m", "allennlp", "train"]
            assert words[:8] == [*program, f"{folder}.json", "-s", folder]
            assert json.loads(Path(f"{folder}.json").read_text()) == expected.config
            packages = [words[i + 1] for i, word in enumerate(words) if word == "--include-package"]
            assert packages == ["elmo_plugin", "mine"]

    def test_runs_of_a_scheduler_are_collected(
        self, training: FakeTraining, options: Options, capsys: pytest.CaptureFixture
    ) -> None:
        run(options(seeds=(1,)))
        lines = self.lines(options(dry_run=True), capsys)
        assert [name for name in NAMES if f"/{name} " in "".join(lines)] == [NAMES[1], NAMES[3]]
        subprocess.run(["sh", "-e"], input="\n".join(lines), text=True, check=True)
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

    def living() -> Set[str]:
        return set(alive.read_text().split()) if alive.exists() else set()

    deadline = time.monotonic() + 60  # with fewer processes than expected, the test fails

    def interrupted(seconds: float) -> None:
        while len(living()) < 4 and time.monotonic() < deadline:
            time.sleep(0.01)
        raise KeyboardInterrupt

    command = [sys.executable, "-S", "-c", script]
    monkeypatch.setattr(runs.RunFolder, "command", lambda *args: command)
    monkeypatch.setattr(runs, "time", SimpleNamespace(sleep=interrupted))
    monkeypatch.setattr(training_process, "SECONDS_TO_STOP", 0.5)
    with pytest.raises(KeyboardInterrupt, match="finished runs are kept, and the same command"):
        run(options(jobs=2))
    process_ids = living()
    assert len(process_ids) == 4  # the runs that had not started were not
    # A signal that has been sent may not have arrived.
    assert all(ends_within(20, int(process_id)) for process_id in process_ids)


class TestRunFolder:
    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        (tmp_path / "runs").mkdir()
        return tmp_path / "runs" / "ner-none-seed1"

    @pytest.fixture
    def data(self, tmp_path: Path) -> Path:
        data = tmp_path / "data"
        names = ["train.txt", "dev1.txt", "in/a/dev2.txt", "words.txt", "labels/tags.txt"]
        names += ["documents [1]/a", "documents [1]/b", "elsewhere/c"]
        for name in names:
            (data / name).parent.mkdir(parents=True, exist_ok=True)
            (data / name).write_text(name)
        (data / "documents [1]" / "linked").symlink_to("../elsewhere")
        return data

    def config_on(self, data: Path, model_type: str = "x") -> Dict[str, Any]:
        elmo = {"options_file": "elmo_mini", "weight_file": None}
        return {
            "train_data_path": str(data / "train.txt"),
            "validation_data_path": [f"{data}/**/dev*.txt", str(data / "documents [1]")],
            "test_data_path": "https://example.org/test.txt",
            "vocabulary": {
                "pretrained_files": {"tokens": str(data / "words.txt")},
                "directory": str(data / "labels"),
            },
            "model": {"type": model_type, "text_encoder": elmo},
        }

    def finished(self, path: Path, config: Dict[str, Any]) -> RunFolder:
        folder = RunFolder(path, config)
        folder.prepare()
        write_run(path, config, [0.3])
        return folder

    def test_another_config_is_refused_with_the_differences(self, path: Path) -> None:
        RunFolder(path, CONFIG).check()
        self.finished(path, CONFIG).check()
        RunFolder(path, {**CONFIG, "callbacks": {}}).check()  # an empty one changes nothing
        model = {"text_encoder": {"a": 1}, "dropout": 0.25, "words": "日本語"}
        with pytest.raises(
            ConfigurationError,
            match=r"ner-none-seed1: is a run of another config or on other data: model\.dropout is 0\.5, "
            r'expected 0\.25; model\.words is nothing, expected "日本語"; trainer\.lr is 1, expected '
            r"nothing\..*remove this folder",
        ):
            RunFolder(path, {"model": model, "trainer": {}}).check()

    @pytest.mark.parametrize("record", [None, "{", '{"versions": {}}'])
    def test_a_folder_without_a_record_is_refused(self, record: Any, path: Path) -> None:
        write_run(path, CONFIG, [0.3])
        if record is not None:
            path.with_name(f"{path.name}.record.json").write_text(record)
        with pytest.raises(ConfigurationError, match="has no record of the config and data of a r"):
            RunFolder(path, CONFIG).check()

    def test_the_same_data_may_be_written_again_or_moved(
        self, path: Path, data: Path, tmp_path: Path
    ) -> None:
        self.finished(path, self.config_on(data))
        os.utime(data / "train.txt", (2e9, 2e9))
        RunFolder(path, self.config_on(data)).check()
        moved = self.config_on(data.rename(tmp_path / "moved"))
        RunFolder(path.parent.rename(tmp_path / "moved_runs") / path.name, moved).check()

    @pytest.mark.parametrize(
        "change, key",
        [
            (lambda data: (data / "train.txt").write_text("TRAIN.TXT"), "train_data_path"),
            (
                lambda data: (data / "words.txt").write_text("w"),
                r"vocabulary\.pretrained_files\.tokens",
            ),
            (lambda data: (data / "labels/tags.txt").write_text("B"), r"vocabulary\.directory"),
            (lambda data: (data / "in").rename(data / "out"), "validation_data_path"),
            (lambda data: (data / "in/a/dev2.txt").write_text("dev"), "validation_data_path"),
            (lambda data: (data / "documents [1]" / "b").write_text("c"), "validation_data_path"),
            (lambda data: (data / "documents [1]" / "b").unlink(), "validation_data_path"),
            (lambda data: (data / "elsewhere" / "c").write_text("d"), "validation_data_path"),
        ],
    )
    def test_other_data_under_the_same_path_is_refused(
        self, change: Callable[[Path], Any], key: str, path: Path, data: Path
    ) -> None:
        os.utime(data / "train.txt", (2e9, 2e9))
        folder = self.finished(path, self.config_on(data))
        change(data)
        os.utime(data / "train.txt", (1e9, 1e9))  # a file that looks older
        with pytest.raises(ConfigurationError, match=rf'other data: {key} is .*"content [0-9a-f]+'):
            folder.check()

    def test_other_weights_behind_the_name_of_a_biLM_are_refused(
        self, path: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        models = tmp_path / "pretrained"
        shutil.copytree(model_files.PRETRAINED_FOLDER / "elmo_mini", models / "elmo_mini")
        folder = self.finished(path, self.config_on(data))
        monkeypatch.setattr(model_files, "PRETRAINED_FOLDER", models)
        folder.check()  # the same weights, wherever the package is
        (models / "elmo_mini" / "weights.hdf5").write_bytes(b"other")
        with pytest.raises(ConfigurationError, match=r"model\.text_encoder\.options_file is"):
            folder.check()

    @pytest.mark.parametrize("weights", ["weights.hdf5", "others.hdf5"])
    @pytest.mark.parametrize("options", ["options.json", "options262.json"])
    def test_what_remains_of_the_training_of_a_biLM_may_be_removed(
        self, path: Path, data: Path, tmp_path: Path, options: str, weights: str
    ) -> None:
        bilm = tmp_path / "my_elmo"
        shutil.copytree(model_files.PRETRAINED_FOLDER / "elmo_mini", bilm)
        (bilm / "weights.hdf5").rename(bilm / weights)
        (bilm / "options.json").rename(bilm / options)
        (bilm / "training").mkdir()
        (bilm / "training" / "config.jsonnet").write_text("{}")
        config = self.config_on(data)
        config["model"]["text_encoder"]["options_file"] = str(bilm)
        folder = self.finished(path, config)
        shutil.rmtree(bilm / "training")
        folder.check()
        (bilm / weights).write_bytes(b"other")
        with pytest.raises(ConfigurationError, match=r"model\.text_encoder\.options_file is"):
            folder.check()

    def test_scores_are_those_of_the_best_epoch(self, path: Path) -> None:
        write_run(path, CONFIG, [0.3, 0.5, 0.4], test=0.45, duration="1 day, 2:03:30.5")
        found = RunFolder(path, CONFIG).scores("f1")
        assert found[:5] == (0.5, 0.45, [0.3, 0.5, 0.4], 3, 2)
        assert_close(found.minutes, 26 * 60 + 3 + 30.5 / 60)
        # 1,250 times 2^20 bytes.
        assert found.peak_gigabytes == 1.31072
