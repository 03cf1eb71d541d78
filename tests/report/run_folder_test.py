from pathlib import Path
from typing import Any, Dict

import pytest
from allennlp.common.checks import ConfigurationError

from elmo_plugin.report.run_folder import RunFolder
from tests.report.fake_runs import write_run

CONFIG: Dict[str, Any] = {"model": {"type": "elmo_ner", "dropout": 0.5}, "trainer": {"lr": 1}}


class TestRunFolder:
    @pytest.fixture
    def folder(self, tmp_path: Path) -> RunFolder:
        return RunFolder(tmp_path / "runs" / "ner-none-seed1")

    def test_an_empty_place_is_of_any_config(self, folder: RunFolder) -> None:
        folder.check(CONFIG, "--overwrite")
        folder.path.mkdir(parents=True)
        folder.check(CONFIG, "--overwrite")
        assert not folder.is_finished() and not folder.has_checkpoint()

    def test_a_run_of_another_config_is_refused_with_the_differences(
        self, folder: RunFolder
    ) -> None:
        write_run(folder.path, CONFIG, [0.3])
        model = {"type": "elmo_ner", "dropout": 0.25, "words": "日本語"}
        with pytest.raises(
            ConfigurationError,
            match=r"ner-none-seed1: is a run of another config: model\.dropout is 0\.5, expected 0\.25; "
            r'model\.words is nothing, expected "日本語"; a is nothing, expected 1; and 1 more\..*or --do',
        ):
            folder.check({"model": model, "trainer": {}, "a": 1}, "--do so")

    @pytest.mark.parametrize("content", [None, "{"])
    def test_something_else_is_refused(self, content: Any, folder: RunFolder) -> None:
        folder.path.mkdir(parents=True)
        (folder.path / "thesis.tex").touch()
        if content is not None:
            (folder.path / "config.json").write_text(content)
        with pytest.raises(ConfigurationError, match=r"has no config\.json of a training run"):
            folder.check(CONFIG, "--overwrite")

    def test_a_file_in_its_place_is_refused(self, folder: RunFolder) -> None:
        folder.path.parent.mkdir()
        folder.path.touch()
        with pytest.raises(ConfigurationError, match=r"has no config\.json of a training run"):
            folder.check(CONFIG, "--overwrite")

    def test_scores_are_those_of_the_best_epoch(self, folder: RunFolder) -> None:
        write_run(folder.path, CONFIG, [0.3, 0.5, 0.4], test=0.45, duration="1 day, 2:03:30.5")
        scores = folder.scores("f1")
        assert scores[:4] == (0.5, 0.45, [0.3, 0.5, 0.4], 2)
        assert scores.minutes == pytest.approx(26 * 60 + 3.5, abs=0.01)
        assert scores.peak_gigabytes == 1.25

    @pytest.mark.parametrize("name", ["metrics.json", "metrics_epoch_0.json"])
    def test_a_damaged_file_is_named(self, name: str, folder: RunFolder) -> None:
        write_run(folder.path, CONFIG, [0.3])
        (folder.path / name).write_text("{")
        with pytest.raises(ConfigurationError, match=rf"{name}: cannot be read as JSON"):
            folder.scores("f1")

    @pytest.mark.parametrize(
        "log, return_code, failure",
        [
            ("Traceback\nallennlp.common.checks.ConfigurationError: no data\nbye\n", 1,
             "allennlp.common.checks.ConfigurationError: no data"),
            ("ValueError: first\nRuntimeError: then\n", 1, "RuntimeError: then"),
            ("the last line\n\n", 3, "the last line"),
            ("", 3, "ended with code 3 and said nothing"),
            ("RuntimeError: earlier\n", -9, "stopped by signal 9, as a lack of memory does"),
            ("", -15, "stopped by signal 15"),
        ],
    )  # fmt: skip
    def test_a_failure_is_one_line(
        self, log: str, return_code: int, failure: str, folder: RunFolder
    ) -> None:
        folder.path.parent.mkdir()
        folder.log_file.write_text(log)
        assert folder.failure(return_code) == failure
