import json
import os
import shutil
from pathlib import Path
from typing import Any, Callable, Dict

import pytest

from elmo_plugin.bilm import model_files
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.report.run_folder import RunFolder, hashed
from tests.report.fake_runs import write_run

CONFIG: Dict[str, Any] = {"model": {"type": "elmo_ner", "dropout": 0.5}, "trainer": {"lr": 1}}


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    folder = RunFolder(tmp_path / "runs" / "ner-none-seed1")
    folder.path.parent.mkdir()
    return folder


@pytest.fixture
def data(tmp_path: Path) -> Path:
    data = tmp_path / "data"
    (data / "documents").mkdir(parents=True)
    for name in ("train.txt", "dev1.txt", "dev2.txt", "documents/a", "documents/b"):
        (data / name).write_text(name)
    return data


def config_on(data: Path) -> Dict[str, Any]:
    return {
        "train_data_path": str(data / "train.txt"),
        "validation_data_path": [str(data / "dev*.txt"), str(data / "documents")],
        "test_data_path": "https://example.org/test.txt",
        "model": {"type": str(data), "elmo": {"options_file": "elmo_mini", "weight_file": None}},
    }


class TestCheck:
    def test_an_empty_folder_is_of_any_config(self, folder: RunFolder) -> None:
        folder.check(CONFIG)
        folder.path.mkdir()
        folder.check(CONFIG)

    def test_another_config_is_refused_with_the_differences(self, folder: RunFolder) -> None:
        folder.prepare(CONFIG)
        write_run(folder.path, CONFIG, [0.3])
        folder.check({**CONFIG, "callbacks": {}})  # an empty dictionary changes nothing
        model = {"type": "elmo_ner", "dropout": 0.25, "words": "日本語"}
        with pytest.raises(
            ConfigurationError,
            match=r"ner-none-seed1: is a run of another config or on other data: model\.dropout is 0\.5, "
            r'expected 0\.25; model\.words is nothing, expected "日本語"; a is nothing, expected 1; and 1 '
            r"more\..*--overwrite",
        ):
            folder.check({"model": model, "trainer": {}, "a": 1})

    @pytest.mark.parametrize("record", [None, "{", '{"versions": {}}'])
    def test_a_folder_without_a_record_is_refused(self, record: Any, folder: RunFolder) -> None:
        write_run(folder.path, CONFIG, [0.3])
        if record is not None:
            folder.record_file.write_text(record)
        with pytest.raises(ConfigurationError, match="has no record of the config and data of a r"):
            folder.check(CONFIG)

    def test_the_same_data_may_be_written_again_or_moved(
        self, folder: RunFolder, data: Path, tmp_path: Path
    ) -> None:
        folder.prepare(config_on(data))
        write_run(folder.path, config_on(data), [0.3])
        os.utime(data / "train.txt", (2e9, 2e9))
        folder.check(config_on(data))
        folder.check(
            config_on(data.rename(tmp_path / "moved")) | {"model": config_on(data)["model"]}
        )

    @pytest.mark.parametrize(
        "change, key",
        [
            (lambda data: (data / "train.txt").write_text("TRAIN.TXT"), "train_data_path"),
            (lambda data: (data / "dev2.txt").rename(data / "dev3.txt"), "validation_data_path"),
            (lambda data: (data / "documents" / "b").write_text("c"), "validation_data_path"),
            (lambda data: (data / "documents" / "b").unlink(), "validation_data_path"),
        ],
    )
    def test_other_data_under_the_same_path_is_refused(
        self, change: Callable[[Path], Any], key: str, folder: RunFolder, data: Path
    ) -> None:
        os.utime(data / "train.txt", (2e9, 2e9))
        folder.prepare(config_on(data))
        write_run(folder.path, config_on(data), [0.3])
        change(data)
        os.utime(data / "train.txt", (1e9, 1e9))  # a file that looks older
        with pytest.raises(ConfigurationError, match=rf'other data: {key} is .*"content [0-9a-f]+'):
            folder.check(config_on(data))

    def test_other_weights_behind_the_name_of_a_biLM_are_refused(
        self, folder: RunFolder, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        models = tmp_path / "pretrained"
        shutil.copytree(model_files.PRETRAINED_FOLDER / "elmo_mini", models / "elmo_mini")
        folder.prepare(config_on(data))
        write_run(folder.path, config_on(data), [0.3])
        monkeypatch.setattr(model_files, "PRETRAINED_FOLDER", models)
        folder.check(config_on(data))  # the same weights, wherever the package is
        (models / "elmo_mini" / "weights.hdf5").write_bytes(b"other")
        with pytest.raises(ConfigurationError, match=r"other data: model\.elmo\.options_file is"):
            folder.check(config_on(data))


def test_only_values_that_name_files_are_hashed(data: Path) -> None:
    values = hashed(config_on(data))
    assert values["test_data_path"] == "https://example.org/test.txt"
    assert (values["model.type"], values["model.elmo.weight_file"]) == (str(data), None)
    contents = [values["train_data_path"], *values["validation_data_path"]]
    contents.append(values["model.elmo.options_file"])
    assert all(content.startswith("content ") for content in contents)
    assert len(set(contents)) == 4


def test_scores_are_those_of_the_best_epoch(folder: RunFolder) -> None:
    write_run(folder.path, CONFIG, [0.3, 0.5, 0.4], test=0.45, duration="1 day, 2:03:30.5")
    scores = folder.scores("f1")
    assert scores[:4] == (0.5, 0.45, [0.3, 0.5, 0.4], 2)
    assert scores.minutes == pytest.approx(26 * 60 + 3 + 30.5 / 60)
    assert (scores.peak_gigabytes, scores.epochs) == (1.25, 3)


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
def test_a_failure_is_one_line(log: str, return_code: int, failure: str, folder: RunFolder) -> None:
    folder.log_file.write_text(log)
    assert folder.failure(return_code) == failure


def test_a_record_is_readable_json(folder: RunFolder, data: Path) -> None:
    folder.prepare(config_on(data))
    assert json.loads(folder.config_file.read_text()) == config_on(data)
    record = json.loads(folder.record_file.read_text())
    assert record["config"] == hashed(config_on(data))
    assert folder.versions() == record["versions"]
