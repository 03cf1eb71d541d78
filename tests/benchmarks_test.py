"""The benchmarks run, print the tables that they promise, and refuse to time what is not the same."""

import importlib
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any, Dict, List

import pytest
import torch

from elmo_plugin import BiLM
from elmo_plugin.bilm import BiLMOptions
from elmo_plugin.bilm.options import CharacterEncoderOptions
from elmo_plugin.bilm.processor import has_bfloat16_products
from tests.closeness import largest_difference
from tests.conftest import REPOSITORY, TINY_OPTIONS, randomize, roundings_of, terms_of

WORDS = ["the", "cat", "sat", "on", "a", "mat", ",", "naïve", "日本語", "."]
SENTENCES = [WORDS[number % 4 : number % 4 + 2 + number % 7] for number in range(40)]
BRIEFLY = ["--rounds", "1", "--seconds", "0.001"]


@pytest.fixture(autouse=True)
def benchmarks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let scripts find each other, and make what they measure tiny."""
    # The folder is no package: other projects install one of its name.
    monkeypatch.syspath_prepend(REPOSITORY / "benchmarks")
    monkeypatch.setattr("measurement.ORIGINAL", replace(TINY_OPTIONS, cell_size=24))
    monkeypatch.setattr("layers.PEAK_SIZES", {"cpu": 64})
    monkeypatch.setattr("layers.COPIED_BYTES", {"cpu": 1000})


@pytest.fixture
def text(tmp_path: Path) -> List[str]:
    """The option of a text with a blank line."""
    lines = [" ".join(sentence) for sentence in SENTENCES]
    (tmp_path / "text.txt").write_text("\n".join([*lines[:5], "", *lines[5:]]), encoding="utf-8")
    return ["--text", str(tmp_path / "text.txt")]


@pytest.fixture
def bilm(tmp_path: Path) -> List[str]:
    """The option of a tiny biLM in a folder."""
    (tmp_path / "tiny").mkdir()
    files = tmp_path / "tiny" / "options.json", tmp_path / "tiny" / "weights.hdf5"
    randomize(BiLM(TINY_OPTIONS)).save(*files)
    return ["--bilm", str(tmp_path / "tiny")]


def printed_rows(capsys: pytest.CaptureFixture) -> List[Dict[str, str]]:
    """The rows of the tables that were printed, by the columns of the first one."""
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| ")]
    columns, _, *rows = [line.removeprefix("| ").removesuffix(" |").split(" | ") for line in lines]
    return [dict(zip(columns, row, strict=True)) for row in rows]


def test_inference(text: List[str], bilm: List[str], capsys: pytest.CaptureFixture) -> None:
    inference = importlib.import_module("inference")
    inference.main([*text, *bilm, *BRIEFLY, "--precisions", "float32", "int8"])
    rows = printed_rows(capsys)
    lengths = [len(sentence) for sentence in SENTENCES]
    assert {row["case"]: int(row["tokens"]) for row in rows} == {
        "batches": sum(lengths),
        "single": sum(lengths[:16]),
        "fine_tuning": sum(lengths[:32]),
    }
    for row in rows:
        assert float(row["float32, times"]) > 0
        assert (row["int8, times"] == "") == (row["case"] == "fine_tuning")


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda bilm: bilm.forward_layers[0].projection.data.add_(0.01), "representations"),
        (lambda bilm: bilm.character_encoder.requires_grad_(False), "norms"),
    ],
)
def test_nothing_is_timed_when_representations_or_gradients_disagree(
    change: Any, message: str, text: List[str], bilm: List[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    inference = importlib.import_module("inference")
    new_ours = inference.Contenders.new_ours

    def changed(self: Any, *settings: Any, **options: Any) -> Any:
        elmo = new_ours(self, *settings, **options)
        change(elmo.bilm)
        return elmo

    monkeypatch.setattr(inference.Contenders, "new_ours", changed)
    arguments = [*text, *bilm, *BRIEFLY, "--precisions", "float32", "--cases", "fine_tuning"]
    with pytest.raises(inference.DisagreementError, match=message):
        inference.main(arguments)


def test_layers(bilm: List[str], capsys: pytest.CaptureFixture) -> None:
    importlib.import_module("layers").main([*bilm, *BRIEFLY])
    rows = printed_rows(capsys)
    assert [row["precision"] for row in rows] == ["float32", "bfloat16", "int8"]
    assert all(float(row["GFLOP/s"]) > 0 for row in rows)


def test_busy(
    bilm: List[str], capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("busy.usable_cpus", lambda: 1)
    importlib.import_module("busy").main([*bilm, *BRIEFLY, "--precisions", "float32", "int8"])
    rows = printed_rows(capsys)
    cases = [(row["precision"], row["sentences"]) for row in rows]
    assert cases == [(name, rows) for name in ("float32", "int8") for rows in ("1", "8", "64")]
    assert all(float(row["busy, ms"]) > 0 for row in rows)


def test_contenders_take_turns_in_both_orders() -> None:
    turns: List[str] = []
    runs = {name: (lambda name=name: turns.append(name)) for name in "abc"}
    measured = importlib.import_module("measurement").time_in_turns("title", runs, 2, 0.001)
    changes = [name for name, before in zip(turns, ["", *turns]) if name != before]
    assert changes == ["a", "b", "c", "b", "a"]
    assert list(measured) == ["a", "b", "c"]


@pytest.fixture
def training(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script, with a model, a vocabulary and batches that are tiny."""
    module = importlib.import_module("training")
    encoder = CharacterEncoderOptions(filters=((1, 4), (2, 8)), num_highway=1)
    options = BiLMOptions(encoder, cell_size=16, projection_dim=8)
    monkeypatch.setattr(module, "ROWS", 3)
    monkeypatch.setattr(module, "STEPS", 4)
    monkeypatch.setattr(module, "SHAPES", {"tiny": module.Shape(options, 20, 100)})
    return module


def test_training(training: ModuleType, capsys: pytest.CaptureFixture) -> None:
    training.main(BRIEFLY)
    ours = ["elmo_plugin, float32", "elmo_plugin, bfloat16"][: 1 + has_bfloat16_products()]
    others = [training.ALLENNLP, training.TORCH, training.ALLENNLP_ENCODER]
    rows = printed_rows(capsys)
    assert [row["contender"] for row in rows] == ours + others
    assert rows[len(ours)]["times AllenNLP's"] == "1"


def test_training_is_not_timed_when_losses_disagree(
    training: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "copy_weights", lambda layer, cell: None)
    with pytest.raises(AssertionError, match="not close"):
        training.main(BRIEFLY)


@pytest.mark.slow
def test_memory(bilm: List[str], capsys: pytest.CaptureFixture) -> None:
    if not Path("/proc/self/status").exists():
        pytest.skip("Memory is measured on Linux only.")
    memory = importlib.import_module("memory")
    memory.main([*bilm, "--rounds", "1", "--precisions", "bfloat16"])
    (row,) = printed_rows(capsys)
    assert row["precision"] == "bfloat16"
    assert float(row["load, s"]) >= 0 and int(row["libraries"].replace(",", "")) > 100


@pytest.mark.skipif(sys.platform != "linux", reason="Memory is measured on Linux only.")
def test_memory_of_what_does_not_run_is_an_error_in_one_line(
    bilm: List[str], capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    simd = "elmo_plugin.bilm.runners.simd_runner.unsupported_reason"
    monkeypatch.setattr(simd, lambda unit: "it was not compiled")
    for options, error in (
        (["--kernel", "simd"], "kernel is 'simd', but it was not compiled"),
        (["--precisions", "int8"], "found int8, but the biLM runs in float32"),
    ):
        with pytest.raises(SystemExit):
            importlib.import_module("memory").main([*bilm, *options])
        assert error in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize("has_cold", [True, False])
def test_waiting(
    has_cold: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
) -> None:
    waiting = importlib.import_module("waiting")
    drop_caches = tmp_path / "drop_caches"
    if has_cold:
        drop_caches.touch()
    monkeypatch.setattr(waiting, "DROP_CACHES", drop_caches)
    monkeypatch.setattr(waiting, "COMMANDS", {"--help": 0.5, "models": None})
    waiting.main(["--rounds", "1"])
    rows = printed_rows(capsys)
    assert [(row["command"], row["limit, s"]) for row in rows] == [
        ("elmo --help", "0.5"),
        ("elmo models", ""),
    ]
    assert all(float(row["warm, s"]) > 0 for row in rows)
    assert [drop_caches.exists(), *("cold, s" in row for row in rows)] == [has_cold] * 3
    assert not has_cold or drop_caches.read_text() == "3"
    monkeypatch.setattr(waiting, "COMMANDS", {"models --unknown": None})
    with pytest.raises(SystemExit):
        waiting.main(["--rounds", "1"])
    assert "elmo models --unknown failed" in capsys.readouterr().err


def test_precision(text: List[str], bilm: List[str], capsys: pytest.CaptureFixture) -> None:
    # A kernel that multiplies int8 on any processor.
    precisions = ["--precisions", "float32", "int8", "--kernel", "reference"]
    precision = importlib.import_module("precision")
    precision.main([*text, *bilm, *precisions])
    rows = printed_rows(capsys)
    assert [row["precision"] for row in rows] == ["float32"] * 3 + ["int8"] * 3
    assert [float(row["relative error"]) for row in rows[:3]] == [0.0] * 3  # the same kernel
    steps = max(map(len, SENTENCES)) + 2
    for row in rows[3:]:
        difference, largest = map(float, row["largest difference"].split(" of "))
        limit = largest_difference(torch.int8, terms_of(steps), largest, roundings_of(steps))
        assert 0 < difference <= limit
        assert float(row["relative error"]) > 0
    exact = torch.tensor([[3.0, 4.0], [3.0, 4.0]])  # norm sqrt(50)
    assert precision.error_of(torch.tensor([[3.0, 3.0], [3.0, 4.0]]), exact) == {
        "relative error": "0.14",
        "largest difference": "1 of 4.0",
        "cosine, mean": "0.994975",
        "cosine, smallest": "0.989949",  # 21 / (5 * sqrt(18))
    }


def test_alternatives(
    text: List[str],
    bilm: List[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
) -> None:
    """With contenders that are tiny and run in this process."""
    alternatives, contender = map(importlib.import_module, ("alternatives", "contender"))
    monkeypatch.setattr(alternatives, "measure", contender.main)
    monkeypatch.setattr(alternatives, "BILMS", {"ELMo, tiny": bilm[1]})
    monkeypatch.setattr(alternatives, "WORDS_PER_BATCH", 12)
    monkeypatch.setattr(alternatives, "NUM_SENTENCES", 6)
    sizes = {"vocab_size": 12_000, "num_hidden_layers": 1, "num_attention_heads": 1}
    bert = {**sizes, "hidden_size": 8, "intermediate_size": 8}
    distilbert = {"vocab_size": 12_000, "n_layers": 1, "n_heads": 1, "dim": 8, "hidden_dim": 8}
    shapes = {"BERT-base": bert, "DistilBERT": distilbert, "MiniLM": bert}
    monkeypatch.setattr(contender, "SHAPES", shapes)
    alternatives.main([*text, "--precisions", "int8", "--rounds", "1"])
    rows = printed_rows(capsys)
    has_model2vec = importlib.util.find_spec("model2vec") is not None
    assert [(row["contender"], row["library"], row["precision"]) for row in rows] == [
        ("ELMo, tiny", "allennlp", "float32"),
        ("ELMo, tiny", "elmo_plugin", "int8"),
        ("BERT-base", "transformers", "int8"),
        ("DistilBERT", "transformers", "int8"),
        ("MiniLM", "transformers", "int8"),
        *[("static embedding", "model2vec", "float32")] * has_model2vec,
    ]
    for row in rows:
        assert float(row["words/s"].replace(",", "")) > 0
        assert (row["pieces per word"] == "") == row["contender"].startswith("ELMo")


def test_a_precision_in_which_elmo_does_not_run_is_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    alternatives = importlib.import_module("alternatives")
    simd = "elmo_plugin.bilm.runners.simd_runner.unsupported_reason"
    monkeypatch.setattr(simd, lambda unit: "it was not compiled")
    contenders = alternatives.all_contenders({"ELMo": ("options", "weights")}, ["float32", "int8"])
    of_elmo = [(row.library, row.precision) for row in contenders if row.label == "ELMo"]
    assert of_elmo == [("allennlp", "float32"), ("elmo_plugin", "float32")]
