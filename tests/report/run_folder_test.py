from pathlib import Path
from typing import Any, Dict

import pytest
from allennlp.common.checks import ConfigurationError

from elmo_plugin.report.run_folder import RunFolder
from tests.report.fake_runs import write_run

CONFIG: Dict[str, Any] = {"model": {"type": "elmo_ner", "dropout": 0.5}, "trainer": {"lr": 1}}


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder(tmp_path / "runs" / "ner-none-seed1")


def test_a_folder_that_is_not_there_is_of_any_config(folder: RunFolder) -> None:
    assert not folder.is_done() and not folder.is_begun() and not folder.has_checkpoint()
    folder.check_config(CONFIG, "--overwrite")
    folder.path.mkdir(parents=True)
    assert not folder.is_begun()
    folder.check_config(CONFIG, "--overwrite")


def test_a_finished_run_is_done(folder: RunFolder) -> None:
    write_run(folder.path, CONFIG, [0.3, 0.5, 0.4], test=0.45)
    assert folder.is_done() and folder.is_begun()
    folder.check_config(CONFIG, "--overwrite")


def test_an_interrupted_run_is_begun(folder: RunFolder) -> None:
    write_run(folder.path, CONFIG, [0.3])
    (folder.path / "metrics.json").unlink()
    assert folder.is_begun() and not folder.is_done() and not folder.has_checkpoint()
    (folder.path / "training_state_e1_b0.th").touch()
    assert folder.has_checkpoint()


def test_a_run_of_another_config_is_refused_with_the_differences(folder: RunFolder) -> None:
    write_run(folder.path, CONFIG, [0.3])
    expected = {
        "model": {"type": "elmo_ner", "dropout": 0.25, "words": "日本語"},
        "trainer": {},
        "a": 1,
    }
    with pytest.raises(
        ConfigurationError,
        match=r"ner-none-seed1: is a run of another config: model\.dropout is 0\.5, expected 0\.25; "
        r'model\.words is nothing, expected "日本語"; a is nothing, expected 1; and 1 more\..*or --do so\.',
    ):
        folder.check_config(expected, "--do so")


@pytest.mark.parametrize("content", [None, "{"])
def test_something_else_is_refused(content: Any, folder: RunFolder) -> None:
    folder.path.mkdir(parents=True)
    (folder.path / "thesis.tex").touch()
    if content is not None:
        (folder.path / "config.json").write_text(content)
    with pytest.raises(ConfigurationError, match=r"has no config\.json of a training run"):
        folder.check_config(CONFIG, "--overwrite")


def test_a_file_in_the_place_is_refused(folder: RunFolder) -> None:
    folder.path.parent.mkdir()
    folder.path.touch()
    with pytest.raises(ConfigurationError, match=r"has no config\.json of a training run"):
        folder.check_config(CONFIG, "--overwrite")


def test_scores_are_those_of_the_best_epoch(folder: RunFolder) -> None:
    write_run(folder.path, CONFIG, [0.3, 0.5, 0.4], test=0.45, duration="1 day, 2:03:30.5")
    scores = folder.scores("f1")
    assert scores.validation == 0.5
    assert scores.test == 0.45
    assert scores.curve == [0.3, 0.5, 0.4]
    assert scores.best_epoch == 2
    assert scores.minutes == pytest.approx(26 * 60 + 3.5, abs=0.01)
    assert scores.peak_gigabytes == 1.25


def test_without_test_data_there_is_no_such_score(folder: RunFolder) -> None:
    write_run(folder.path, CONFIG, [0.3], duration="0:00:30.000000")
    assert folder.scores("f1").test is None
    assert folder.scores("f1").minutes == 0.5


def test_a_metric_that_was_not_measured_is_named(folder: RunFolder) -> None:
    write_run(folder.path, CONFIG, [0.3])
    with pytest.raises(
        ConfigurationError, match=r"metrics\.json: there is no best_validation_accuracy"
    ):
        folder.scores("accuracy")


@pytest.mark.parametrize("name", ["metrics.json", "metrics_epoch_0.json"])
def test_a_damaged_file_is_named(name: str, folder: RunFolder) -> None:
    write_run(folder.path, CONFIG, [0.3])
    (folder.path / name).write_text("{")
    with pytest.raises(ConfigurationError, match=rf"{name}: cannot be read as JSON"):
        folder.scores("f1")
    (folder.path / name).unlink()
    with pytest.raises(ConfigurationError, match=rf"{name}: cannot be read as JSON"):
        folder.scores("f1")


@pytest.mark.parametrize(
    "log, return_code, failure",
    [
        ("Traceback\n  File\nallennlp.common.checks.ConfigurationError: no data\nbye\n", 1,
         "allennlp.common.checks.ConfigurationError: no data"),
        ("ValueError: first\nRuntimeError: then\n", 1, "RuntimeError: then"),
        ("torch.cuda.OutOfMemoryError: CUDA\n", 1, "torch.cuda.OutOfMemoryError: CUDA"),
        ("the last line\n\n", 3, "the last line"),
        ("", 3, "ended with code 3 and said nothing"),
        ("RuntimeError: earlier\n", -9, "stopped by signal 9, as a lack of memory does"),
        ("", -15, "stopped by signal 15"),
    ],
)  # fmt: skip
def test_a_failure_is_said_in_a_line(
    log: str, return_code: int, failure: str, folder: RunFolder
) -> None:
    folder.path.parent.mkdir()
    folder.log_file.write_text(log)
    assert folder.log_file.name == "ner-none-seed1.log"
    assert folder.failure(return_code) == failure
