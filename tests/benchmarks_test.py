"""The benchmarks run and report what they promise; how fast anything is, no test says."""

import importlib
from pathlib import Path
from types import ModuleType

import pytest

TINY = ["--shapes", "tiny", "--rows", "3", "--steps", "4", "--repetitions", "2", "--threads", "1"]


@pytest.fixture
def training_speed(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    # As a script finds it: the folder is no package, and other projects install one of its name.
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "benchmarks")
    return importlib.import_module("training_speed")


def test_both_scopes_report_every_contender(
    training_speed: ModuleType, capsys: pytest.CaptureFixture
) -> None:
    training_speed.main(TINY)
    machine, *tables = capsys.readouterr().out.split("\ntiny, ")
    assert "1 threads, torch " in machine and "device cpu; 3 rows of 4 words" in machine
    assert [table.partition(":")[0] for table in tables] == ["lstm", "model"]
    for table in tables:
        is_model = table.startswith("model")
        rows = [line.strip("| ").split(" | ") for line in table.splitlines() if "|" in line]
        assert [row[0] for row in rows[2:]] == [
            "elmo_plugin, float32",
            "elmo_plugin, bfloat16",
            "AllenNLP ElmoLstm, float32",
            "torch nn.LSTM, float32",
            *["AllenNLP ElmoLstm and character encoder, float32"] * is_model,
        ]
        for row in rows[2:]:
            median, best, speed = (float(number.replace(",", "")) for number in row[1:4])
            assert 0 < best <= median
            # Milliseconds are rounded to one digit after the point.
            assert speed == pytest.approx(1000 * 3 * 4 / median, rel=0.1)
        assert rows[4][4] == "1.00"


def test_only_the_scopes_that_are_asked_for_run(
    training_speed: ModuleType, capsys: pytest.CaptureFixture
) -> None:
    training_speed.main([*TINY, "--scopes", "lstm"])
    output = capsys.readouterr().out
    assert "tiny, lstm:" in output and "tiny, model:" not in output


def test_each_contender_can_have_a_process_of_its_own(
    training_speed: ModuleType, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    # One contender's process is as good as four, and starts faster.
    monkeypatch.setitem(training_speed.CONTENDERS, "lstm", [training_speed.ALLENNLP])
    training_speed.main([*TINY, "--scopes", "lstm", "--separate"])
    output = capsys.readouterr().out
    assert "a process each" in output
    assert "| AllenNLP ElmoLstm, float32 |" in output and "| 1.00 |" in output


@pytest.mark.parametrize("scope", ["lstm", "model"])
def test_nothing_is_timed_when_contenders_disagree(
    scope: str,
    training_speed: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
) -> None:
    monkeypatch.setattr("compared_layers.copy_weights", lambda layer, cell: None)
    with pytest.raises(AssertionError, match="not close"):
        training_speed.main([*TINY, "--scopes", scope])
    assert "|" not in capsys.readouterr().out


def test_help_teaches(training_speed: ModuleType, capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(SystemExit, match="0"):
        training_speed.main(["--help"])
    output = capsys.readouterr().out
    assert "python benchmarks/training_speed.py --shapes small" in output
    assert "A step is, by scope:" in output


def test_the_cost_of_a_task_is_measured_with_and_without_elmo(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    repository = Path(__file__).parents[1]
    monkeypatch.syspath_prepend(repository / "benchmarks")
    monkeypatch.chdir(repository)
    monkeypatch.setenv("ELMO", "fixtures/bilm/tiny")
    monkeypatch.setenv("NER_SCHEME", "IOB1")
    task_cost = importlib.import_module("task_cost")
    task_cost.main(["ner=fixtures/ner/wikigold", "--instances", "20", "--threads", "1"])
    lines = capsys.readouterr().out.splitlines()
    rows = [line.strip("| ").split(" | ") for line in lines if line.startswith("| ner")]
    assert [row[:3] for row in rows] == [["ner", "20", "none"], ["ner", "20", "as in the config"]]
    assert all(float(seconds) > 0 and float(gigabytes) > 0.1 for *_, seconds, gigabytes in rows)
