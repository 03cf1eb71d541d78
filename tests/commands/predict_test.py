"""`elmo predict`: an answer for each line."""

import gzip
import io
import json
import sys
from pathlib import Path
from typing import Any, Dict, List, Optional

import pytest
from allennlp.data import Instance
from allennlp.data.tokenizers import Token
from allennlp.predictors import Predictor

from elmo_plugin.commands.main import main
from elmo_plugin.commands.predict import answers_to_lines
from elmo_plugin.compat.archives import opened_archive
from elmo_plugin.files.text import MAX_LINE_BYTES
from tests.commands.conftest import error_of_command
from tests.conftest import FIXTURES
from tests.tasks.task_testing import overfitted_archive, run_predict

TINY = FIXTURES / "ner" / "tiny"
INPUTS = str(TINY / "inputs.jsonl")


@pytest.fixture(scope="module")
def archive_file(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("archive")
    return str(overfitted_archive(TINY / "experiment_elmo.jsonnet", folder, 2))


@pytest.fixture(scope="module")
def without_elmo(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A tagger whose mask comes from the ids of words."""
    folder = tmp_path_factory.mktemp("without_elmo")
    return str(overfitted_archive(TINY / "experiment.jsonnet", folder, 2))


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def read(name: str) -> List[Any]:
    return [json.loads(line) for line in Path(name).read_text(encoding="utf-8").splitlines()]


def outputs_of(words: List[str], capsys: Any) -> List[Any]:
    """What the command prints: one JSON object on each line."""
    main(["predict", *words])
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_predictions_are_those_of_allennlp(
    archive_file: str, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    ours = outputs_of([archive_file, INPUTS, "--batch-size", "2"], capsys)
    main(["predict", archive_file, INPUTS, "--output-file", "ours.jsonl"])
    assert capsys.readouterr().out == ""
    run_predict(archive_file, INPUTS, "--output-file", "theirs.jsonl", "--silent")
    assert len(ours) == len(read(INPUTS))
    assert ours == read("ours.jsonl") == read("theirs.jsonl")


DAMAGED_LINES = [
    (b'{"tokens": ["Mary", "slept"]}', None),
    (b'{"tokens": ["Ma\rry", "slept"]}', "Found a line that is not JSON"),
    (b"\r", "Found a blank line. Expected one JSON object per line"),
    (b"", "Found a blank line. Expected one JSON object per line"),
    (b'{"tokens": ["na\xefve"]}', "Found a line that is not JSON in UTF-8 ('utf-8' codec can't"),
    (b'{"tokens": ["\xe2\x80\xa8", "\xc2\x85"]}', "expected a word that is not empty"),
    (b'{"tokens": ["@@PADDING@@"]}', "found the token @@PADDING@@ in a sentence"),
    (b'{"sentence": "Mary @@PADDING@@ slept"}', "found the token @@PADDING@@ in a sentence"),
    (b'{"tokens": []}', "expected a list of words that is not empty"),
    (
        b'{"tokens": ["' + b"a" * MAX_LINE_BYTES + b'"]}',
        "Found a line of more than 1,000,000 bytes",
    ),
    (b"[" * 10_000, "Found a line that is not JSON (more than 100 levels)"),
    (b'{"tokens": ["Mary", "slept"]}', None),
]


@pytest.mark.parametrize(
    "is_packed, batch_size", [(False, "1"), (False, "5"), (False, "64"), (True, "5")]
)
def test_each_line_has_one_answer(
    is_packed: bool, batch_size: str, without_elmo: str, capsys: Any
) -> None:
    content = b"\n".join(line for line, _ in DAMAGED_LINES)
    name = "in.jsonl.gz" if is_packed else "in.jsonl"
    Path(name).write_bytes(gzip.compress(content) if is_packed else content)
    outputs = outputs_of([without_elmo, name, "--batch-size", batch_size], capsys)
    assert len(outputs) == len(DAMAGED_LINES)
    for output, (_, message) in zip(outputs, DAMAGED_LINES):
        if message is None:
            assert list(output)[:2] == ["words", "tags"]
        else:
            assert list(output) == ["error"]
            assert message in output["error"]


class PlainPredictor(Predictor):
    """As other packages have them: lines are parsed first, and an error is raised."""

    def _json_to_instance(self, inputs: Dict[str, Any]) -> Instance:
        return self._dataset_reader.text_to_instance([Token(word) for word in inputs["tokens"]])


def test_a_predictor_of_another_package_answers_each_line(archive_file: str) -> None:
    archive = opened_archive(archive_file)
    predictor = PlainPredictor(archive.model, archive.dataset_reader)
    lines = [b'{"tokens": ["Mary", "slept"]}', b"{", b"{}", b'{"tokens": ["Hi"]}']
    tagged, invalid, without_key, last = answers_to_lines(predictor, iter(lines), 4)
    assert (len(tagged["tags"]), len(last["tags"])) == (2, 1)
    assert without_key == {"error": "KeyError: 'tokens'"}
    assert invalid["error"].startswith(
        "Found a line that is not JSON in UTF-8 (Expecting property name"
    )


def test_standard_input_is_answered_line_by_line(
    archive_file: str, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    lines = io.BytesIO(b'{"tokens": ["Mary", "slept"]}\n{}\n')
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(lines))
    tagged, invalid = outputs_of([archive_file, "-"], capsys)
    assert tagged["words"] == ["Mary", "slept"]
    assert list(invalid) == ["error"]


def test_an_existing_file_is_replaced_only_on_request(archive_file: str, capsys: Any) -> None:
    Path("out.jsonl").write_text("old")
    words = ["predict", archive_file, INPUTS, "--output-file", "out.jsonl"]
    assert "out.jsonl exists, expected a new path" in error_of_command(words, capsys)
    assert Path("out.jsonl").read_text() == "old"
    main([*words, "--overwrite"])
    assert len(read("out.jsonl")) == len(read(INPUTS))


@pytest.mark.parametrize("file", [None, "out.jsonl"])
def test_a_file_without_a_valid_line_is_an_error(
    file: Optional[str], without_elmo: str, capsys: Any
) -> None:
    Path("in.jsonl").write_text('{"tokens": []}\n\n{"text": "Mary slept."}\n')
    with pytest.raises(SystemExit, match="2"):
        main(["predict", without_elmo, "in.jsonl", *(["--output-file", file] if file else [])])
    printed = capsys.readouterr()
    assert printed.err.splitlines()[-1].startswith(
        "elmo predict: error: in.jsonl: no prediction for any of the 3 lines, expected input of this "
        "model. Correct them as their errors say; the last one is: Found the keys 'text' in the input"
    )
    answers = Path(file).read_text() if file else printed.out
    assert [list(json.loads(answer)) for answer in answers.splitlines()] == [["error"]] * 3


@pytest.mark.parametrize("batch_size", ["1", "2", "64"])
def test_lines_without_a_prediction_are_numbered_and_counted(
    batch_size: str, without_elmo: str, capsys: Any, caplog: pytest.LogCaptureFixture
) -> None:
    Path("in.jsonl").write_text('{"tokens": []}\n{"tokens": ["Mary"]}\n\n')
    assert len(outputs_of([without_elmo, "in.jsonl", "--batch-size", batch_size], capsys)) == 3
    first, second, count = caplog.messages[-3:]
    assert first.startswith("Line 1: no prediction. 'tokens' is [], expected a list of words")
    assert second.startswith("Line 3: no prediction. Found a blank line.")
    assert count == "No prediction for 2 of 3 lines."
    Path("in.jsonl").write_text("")
    assert outputs_of([without_elmo, "in.jsonl"], capsys) == []


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["no.tar.gz", INPUTS], "no.tar.gz"),
        ([INPUTS, INPUTS], "cannot be loaded as an archive (BadGzipFile: Not a gzip"),
        (["cut.tar.gz", INPUTS], "cut.tar.gz: cannot be loaded as an archive (EOFError: "),
        (["ARCHIVE", "no.jsonl"], "no.jsonl"),
        (["ARCHIVE", "long.jsonl"], "no prediction for any of the 1 lines"),
        (["ARCHIVE", "."], ".: cannot be read"),
        (["ARCHIVE", INPUTS, "--predictor-args", '{"no": 1}'], "predictor_args: found {'no': 1}"),
        (["ARCHIVE", INPUTS, "--overrides", '{"dataset_reader.max_words": 1}'], "max_words"),
        (
            ["ARCHIVE", INPUTS, "--overrides", '{"model.no": 1}'],
            "Correct the path, correct the config by overrides",
        ),
        (["ARCHIVE", INPUTS, "--cuda-device", "99"], "a GPU"),
    ],
)
def test_errors_are_one_line(
    arguments: List[str], message: str, archive_file: str, capsys: Any
) -> None:
    Path("long.jsonl").write_bytes(b" " * 1_000_001)
    Path("cut.tar.gz").write_bytes(Path(archive_file).read_bytes()[:1000])
    words = [archive_file if word == "ARCHIVE" else word for word in arguments]
    line = error_of_command(["predict", *words], capsys).splitlines()[-1]
    assert line.startswith("elmo predict: error: ")
    assert message in line
