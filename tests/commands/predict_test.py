"""`elmo predict`: what `allennlp predict` does, in any folder."""

import argparse
import io
import json
import sys
from pathlib import Path
from typing import Any, List

import pytest
from allennlp.commands import main as allennlp_main
from allennlp.commands.predict import Predict

from elmo_plugin.commands.main import main
from elmo_plugin.commands.parsers import LazyParser
from elmo_plugin.commands.predict import add_arguments
from tests.tasks.task_testing import overfitted_archive

TINY = Path(__file__).parents[2] / "fixtures" / "ner" / "tiny"
INPUTS = str(TINY / "inputs.jsonl")


@pytest.fixture(scope="module")
def archive_file(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("archive")
    return str(overfitted_archive(TINY / "experiment_elmo.jsonnet", folder, 2))


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def read(name: str) -> List[Any]:
    return [json.loads(line) for line in Path(name).read_text(encoding="utf-8").splitlines()]


def test_it_has_all_options_of_allennlps_predict() -> None:
    theirs = Predict().add_subparser(argparse.ArgumentParser().add_subparsers())
    ours = LazyParser(declare=add_arguments)
    ours.declare()

    def options(parser: argparse.ArgumentParser) -> set:
        return {flag for action in parser._actions for flag in action.option_strings}

    assert options(ours) == options(theirs)


def test_predictions_are_those_of_allennlp(
    archive_file: str, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    arguments = [archive_file, INPUTS, "--batch-size", "2", "--output-file"]
    main(["predict", *arguments, "ours.jsonl"])
    ours = capsys.readouterr().out
    monkeypatch.setattr(sys, "argv", ["allennlp", "predict", *arguments, "theirs.jsonl"])
    allennlp_main()
    assert ours == capsys.readouterr().out
    assert ours.count("prediction: ") == len(read("ours.jsonl")) == len(read(INPUTS))
    assert read("ours.jsonl") == read("theirs.jsonl")


def test_silent_and_standard_input(
    archive_file: str, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO('{"tokens": ["Mary", "slept"]}\n{}\n'))
    main(["predict", archive_file, "-", "--silent", "--output-file", "out.jsonl"])
    assert capsys.readouterr().out == ""
    tagged, invalid = read("out.jsonl")
    assert tagged["words"] == ["Mary", "slept"]
    assert list(invalid) == ["error"]


def test_a_dataset_and_overrides(archive_file: str) -> None:
    main(
        [
            *("predict", archive_file, str(TINY / "train.conll"), "--use-dataset-reader"),
            *("--dataset-reader-choice", "train", "--silent", "--output-file", "out.jsonl"),
            *("--overrides", '{"dataset_reader.max_instances": 1}'),
        ]
    )
    assert len(read("out.jsonl")) == 1


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["no.tar.gz", INPUTS], "no.tar.gz"),
        ([INPUTS, INPUTS], "cannot be loaded as an archive (not a gzip file)"),
        (["ARCHIVE", "no.jsonl"], "no.jsonl"),
        (["ARCHIVE", "latin.jsonl"], "latin.jsonl: found a line that cannot be read ('utf-8'"),
        (["ARCHIVE", INPUTS, "--batch-size", "0"], "--batch-size: found 0, expected a positive"),
        (["ARCHIVE", INPUTS, "--batch-size", "x"], "--batch-size: invalid int value: 'x'"),
        (["ARCHIVE", INPUTS, "--silent"], "--silent is given without --output-file"),
        (["ARCHIVE", INPUTS, "--overrides", "x"], "found x, which is not JSON"),
        (["ARCHIVE", INPUTS, "--predictor-args", "[]"], "expected a JSON object"),
        (["ARCHIVE", INPUTS, "--predictor", "no"], "no"),
        (["ARCHIVE", INPUTS, "--weights-file", "no.th"], "no.th"),
        (["ARCHIVE", INPUTS, "--multitask-head", "ner"], "dataset reader when using --multitask"),
        (["ARCHIVE", INPUTS, "--dataset-reader-choice", "x"], "invalid choice: 'x'"),
        (["ARCHIVE", INPUTS, "--cuda-device", "99"], "a GPU"),
    ],
)
def test_errors_are_one_line(
    arguments: List[str], message: str, archive_file: str, capsys: Any
) -> None:
    Path("latin.jsonl").write_bytes(b'{"sentence": "na\xefve"}\n')
    words = [archive_file if word == "ARCHIVE" else word for word in arguments]
    with pytest.raises(SystemExit, match="2"):
        main(["predict", *words])
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith("elmo predict: error: ")
    assert message in line
