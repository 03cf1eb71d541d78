"""The benchmark of precisions reports the errors it promises, and refuses what it cannot compare."""

import importlib
from pathlib import Path
from types import ModuleType
from typing import Any, Dict, List

import pandas
import pytest
import torch

from tests.conftest import SENTENCES
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


def test_the_numbers_of_a_layer_are_over_all_tokens_of_all_batches(
    precision_error: ModuleType,
) -> None:
    error = precision_error.LayerError()
    error.add(torch.tensor([[3.0, 4.0]]), torch.tensor([[3.0, 4.0]]))
    error.add(torch.tensor([[0.0, 1.0]]), torch.tensor([[1.0, 0.0]]))
    assert error.cells() == {
        "relative error": f"{(2 / 26) ** 0.5:.2g}",
        "largest difference": "1 of 4.0",
        "cosine, mean": "0.500000",
        "cosine, smallest": "0.000000",
    }


def test_taggers_are_scored_in_each_precision_wherever_they_have_elmo(
    precision_error: ModuleType,
    archives: Dict[str, str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture,
) -> None:
    output = tmp_path / "numbers.csv"
    names = [archives["_elmo"], archives["_elmo_inside"]]
    settings = ["--precisions", "bfloat16", "int8:reference", "--output", str(output)]
    precision_error.main(["--archive", *names, "--data", DATA, *settings])
    rows = table_rows(capsys.readouterr().out)
    assert [row[0] for row in rows[::3]] == ["tagger_elmo", "tagger_elmo_inside", "mean of 2"]
    for first in (0, 3, 6):
        assert rows[first][1] == "float32, reference"
        assert float(rows[first][-2]) == 0  # tokens with another tag
        assert rows[first + 1][1].startswith("bfloat16, ")
        assert rows[first + 2][1] == "int8, reference"

    lines = Path(DATA).read_text("utf-8").splitlines()
    words = [line for line in lines if line.strip() and not line.startswith("-DOCSTART-")]
    written = pandas.read_csv(output)
    assert list(written["tokens"]) == [len(words)] * 6
    assert "_f1-PER" in written
    for first in (0, 3):
        exact, _, int8 = losses = list(written["loss"][first : first + 3])
        assert len(set(losses)) == 3
        assert int8 == pytest.approx(exact, rel=0.01)
    mean = precision_error.task_frame(written.to_dict("records")).iloc[8]
    assert mean["loss"] == pytest.approx((written["loss"][2] + written["loss"][5]) / 2)


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
        (["--precisions", "int4"], "precision is 'int4', expected one of: float32, bfloat16, int8"),
        (["--precisions", "int8:mkl"], "kernel is 'mkl', expected one of: auto"),
    ],
)
def test_wrong_values_end_with_a_message(
    arguments: List[str], message: str, precision_error: ModuleType
) -> None:
    with pytest.raises(SystemExit, match=message):
        precision_error.main(["--archive", "model.tar.gz", "--data", DATA, *arguments])


def test_a_folder_that_is_missing_is_named_first(
    precision_error: ModuleType, capsys: pytest.CaptureFixture
) -> None:
    with pytest.raises(SystemExit, match="2"):
        precision_error.main(["--archive", "a", "--data", DATA, "--output", "no/x.csv"])
    assert "there is no folder no" in capsys.readouterr().err


def test_archives_that_cannot_be_compared_are_refused(
    precision_error: ModuleType, archives: Dict[str, str], text_file: str
) -> None:
    def refused(message: str, names: List[str], data: str = DATA) -> None:
        with pytest.raises(SystemExit, match=message):
            precision_error.main(["--archive", *names, "--data", data])

    refused("its model has no ELMo, expected one in its text encoder", [archives[""]])
    refused("nowhere.tar.gz: no such file or folder", ["nowhere.tar.gz"])
    refused("cannot be loaded as an archive", [text_file])
    refused("found tagger_elmo, tagger_elmo, expected each", [archives["_elmo"]] * 2)
    refused("--data: cannot find nowhere.conll", [archives["_elmo"]], "nowhere.conll")


def test_scores_of_different_tasks_have_no_mean(precision_error: ModuleType) -> None:
    rows: List[Dict[str, Any]] = [
        {"archive": "ner", "biLM": "float32, reference", "f1": 0.5, "_f1-PER": 0.5},
        {"archive": "sst", "biLM": "float32, reference", "accuracy": 0.5},
    ]
    assert list(precision_error.task_frame(rows[:1])) == ["archive", "biLM", "f1"]
    message = "sst: its metrics are accuracy, expected those of ner: f1, _f1-PER. Evaluate one task"
    with pytest.raises(precision_error.ConfigurationError, match=message):
        precision_error.task_frame(rows)
