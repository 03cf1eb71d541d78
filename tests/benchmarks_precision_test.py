"""The benchmark of precisions reports the errors it promises, and refuses what it cannot compare."""

import importlib
import json
from pathlib import Path
from types import ModuleType
from typing import Any, Dict, List

import pytest
import torch

from tests.conftest import SENTENCES, BiLMFiles
from tests.tasks.task_testing import overfitted_archive

TINY = Path(__file__).parents[1] / "fixtures" / "ner" / "tiny"
DATA = str(TINY / "train.conll")


@pytest.fixture
def precision_error(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    # As a script finds it: the folder is no package, and other projects install one of its name.
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "benchmarks")
    return importlib.import_module("precision_error")


@pytest.fixture
def text_file(tmp_path: Path) -> str:
    path = tmp_path / "text.txt"
    path.write_text("".join(" ".join(words) + "\n" for words in SENTENCES), encoding="utf-8")
    return str(path)


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> Dict[str, str]:
    """Half-trained taggers by the end of the experiment's name, each in a folder of that name."""
    found = {}
    for name in ("", "_elmo", "_elmo_inside"):
        folder = tmp_path_factory.mktemp(f"tagger{name}", numbered=False)
        found[name] = str(overfitted_archive(TINY / f"experiment{name}.jsonnet", folder, 10))
    return found


def table_rows(output: str) -> List[List[str]]:
    lines = [line for line in output.splitlines() if line.startswith("|")]
    return [line.strip("| ").split(" | ") for line in lines[2:]]


def test_each_layer_and_precision_has_its_error(
    precision_error: ModuleType,
    bilm_files: BiLMFiles,
    text_file: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture,
) -> None:
    output = tmp_path / "numbers.json"
    arguments = ["--bilm", *bilm_files, "--text", text_file, "--output", str(output)]
    precision_error.main(arguments)
    rows = table_rows(capsys.readouterr().out)
    assert [row[0].partition(",")[0] for row in rows] == [
        name for name in ("float32", "bfloat16", "int8") for _ in range(3)
    ]
    assert [row[1] for row in rows] == ["0", "1", "2"] * 3

    written = json.loads(output.read_text())
    assert set(written["versions"]) == {"elmo_plugin", "allennlp", "torch", "python", "cpu"}
    assert written["activations"]["num_sentences"] == 4  # one is empty
    numbers = {
        (row["precision"], row["layer"]): row["relative_error"]
        for row in written["activations"]["rows"]
    }
    assert all(numbers["float32", layer] < 1e-5 for layer in range(3))
    for layer in (1, 2):
        assert 1e-4 < numbers["bfloat16", layer] < numbers["int8", layer] < 0.1


def test_only_the_first_sentences_are_read_and_a_kernel_can_be_named(
    precision_error: ModuleType,
    bilm_files: BiLMFiles,
    text_file: str,
    capsys: pytest.CaptureFixture,
) -> None:
    settings = ["--precisions", "float32:reference", "int8:reference"]
    precision_error.main(
        ["--bilm", *bilm_files, "--text", text_file, "--sentences", "2", *settings]
    )
    printed = capsys.readouterr().out
    assert "2 sentences, 8 words, beside float32, reference:" in printed
    rows = table_rows(printed)
    assert [row[0] for row in rows] == ["float32, reference"] * 3 + ["int8, reference"] * 3
    # Beside itself.
    assert [row[2] for row in rows[:3]] == ["0"] * 3


def test_the_numbers_of_a_layer_are_over_all_tokens_of_all_batches(
    precision_error: ModuleType,
) -> None:
    error = precision_error.LayerError()
    error.add(torch.tensor([[3.0, 4.0]]), torch.tensor([[3.0, 4.0]]))
    error.add(torch.tensor([[0.0, 1.0]]), torch.tensor([[1.0, 0.0]]))
    assert error.numbers() == pytest.approx(
        {
            "relative_error": (2 / 26) ** 0.5,
            "largest_difference": 1.0,
            "largest_activation": 4.0,
            "mean_cosine": 0.5,
            "smallest_cosine": 0.0,
        }
    )


def test_taggers_are_scored_in_each_precision_wherever_they_have_elmo(
    precision_error: ModuleType,
    archives: Dict[str, str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture,
) -> None:
    output = tmp_path / "numbers.json"
    names = [archives["_elmo"], archives["_elmo_inside"]]
    settings = ["--precisions", "bfloat16", "int8", "--output", str(output)]
    precision_error.main(["--archive", *names, "--data", DATA, *settings])
    rows = table_rows(capsys.readouterr().out)
    assert [row[0] for row in rows[::3]] == ["tagger_elmo", "tagger_elmo_inside", "mean of 2"]
    for first in (0, 3, 6):
        assert rows[first][1] == "float32, reference"
        assert rows[first][-1].startswith("0 of ")
        assert [row[1].partition(",")[0] for row in rows[first + 1 : first + 3]] == settings[1:3]

    lines = Path(DATA).read_text("utf-8").splitlines()
    words = [line for line in lines if line.strip() and not line.startswith("-DOCSTART-")]
    written = json.loads(output.read_text())["tasks"]["rows"]
    assert [row["num_tokens"] for row in written] == [len(words)] * 6
    for first in (0, 3):
        exact, bfloat16, int8 = (row["metrics"] for row in written[first : first + 3])
        assert len({exact["loss"], bfloat16["loss"], int8["loss"]}) == 3
        assert int8["loss"] == pytest.approx(exact["loss"], rel=0.01)
        assert "_f1-PER" in exact
    mean = (written[2]["metrics"]["loss"] + written[5]["metrics"]["loss"]) / 2
    assert rows[8][-2] == f"{mean:.4f}"


def test_tokens_that_are_tagged_otherwise_are_counted(precision_error: ModuleType) -> None:
    assert precision_error.num_differences([[0, 1], [2]], [[0, 1], [2]]) == 0
    assert precision_error.num_differences([[0, 1], [2]], [[1, 1], [0]]) == 2


def test_elmo_is_found_under_the_keys_that_overrides_take(precision_error: ModuleType) -> None:
    config = {
        "text_encoder": {
            "elmo": {"options_file": "elmo_mini"},
            "encoder": {"elmo": {"placement": "none", "options_file": "elmo_mini"}},
        },
        "others": [{"type": "embedding"}, {"type": "elmo"}],
        "elmo": {"type": "pass_through", "weight_file": "file"},
    }
    found = list(precision_error.find_elmo(config, "model"))
    assert found == ["model.text_encoder.elmo", "model.others.1"]


@pytest.mark.parametrize(
    "arguments, message",
    [
        ([], "nothing to compare: give --bilm and --text"),
        (["--bilm", "elmo_mini"], "--bilm and --text go together"),
        (["--data", DATA, "--bilm", "elmo_mini", "--text", "x"], "--archive and --data go together"),
        (["--bilm", "a", "b", "c", "--text", "x"], "--bilm has 3 values"),
        (["--bilm", "elmo_mini", "--text", "x", "--sentences", "0"], "--sentences is 0"),
        (["--bilm", "elmo_mini", "--text", "x", "--output", "no/x.json"], "there is no folder no"),
    ],
)  # fmt: skip
def test_arguments_that_do_not_fit_are_refused(
    arguments: List[str],
    message: str,
    precision_error: ModuleType,
    capsys: pytest.CaptureFixture,
) -> None:
    with pytest.raises(SystemExit, match="2"):
        precision_error.main(arguments)
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--precisions", "int4"], "precision is 'int4', expected one of: float32, bfloat16, int8"),
        (["--precisions", "int8:mkl"], "kernel is 'mkl', expected one of: auto"),
        (["--text", "nowhere.txt"], "--text: cannot find nowhere.txt"),
        (["--text", "EMPTY"], "has no words, expected a sentence on each line"),
        (["--bilm", "elmo_maxi"], "of a model that comes with this package: elmo_mini"),
    ],
)
def test_wrong_values_end_with_a_message(
    arguments: List[str],
    message: str,
    precision_error: ModuleType,
    text_file: str,
    tmp_path: Path,
) -> None:
    empty = tmp_path / "empty.txt"
    empty.write_text("\n \n")
    arguments = [str(empty) if value == "EMPTY" else value for value in arguments]
    with pytest.raises(SystemExit, match=message):
        precision_error.main(["--bilm", "elmo_mini", "--text", text_file, *arguments])


def test_archives_that_cannot_be_compared_are_refused(
    precision_error: ModuleType, archives: Dict[str, str], text_file: str
) -> None:
    def refused(message: str, names: List[str], data: str = DATA) -> None:
        with pytest.raises(SystemExit, match=message):
            precision_error.main(["--archive", *names, "--data", data])

    refused("its model has no ELMo, expected one in its text encoder", [archives[""]])
    refused("--archive: cannot find nowhere.tar.gz", ["nowhere.tar.gz"])
    refused("is no tar file, expected the archive of a trained model", [text_file])
    refused("two are called tagger_elmo", [archives["_elmo"]] * 2)
    refused("--data: cannot find nowhere.conll", [archives["_elmo"]], "nowhere.conll")


def test_scores_of_different_tasks_have_no_mean(precision_error: ModuleType) -> None:
    rows: List[Dict[str, Any]] = [
        {"archive": "ner", "metrics": {"f1": 0.5, "_f1-PER": 0.5}},
        {"archive": "sst", "metrics": {"accuracy": 0.5}},
    ]
    precision_error.check_metrics(rows[:1] * 2)
    message = "sst: its metrics are accuracy, expected those of ner: f1. Evaluate one task"
    with pytest.raises(precision_error.ConfigurationError, match=message):
        precision_error.check_metrics(rows)
