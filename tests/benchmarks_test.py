"""The benchmarks run and write the tables that they promise; how fast anything is, no test says."""

import importlib
import json
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any, Callable, Dict, List

import numpy
import pytest
import torch
from allennlp.modules.elmo import _ElmoBiLm, batch_to_ids

from elmo_plugin import BiLM
from elmo_plugin.bilm import BiLMOptions
from elmo_plugin.bilm.processor import has_bfloat16_products
from tests.conftest import TINY_OPTIONS, BiLMFiles, randomize

REPOSITORY = Path(__file__).parents[1]
WORDS = ["the", "cat", "sat", "on", "a", "mat", ",", "naïve", "日本語", "."]
SENTENCES = [WORDS[number % 4 : number % 4 + 2 + number % 7] for number in range(40)]


@pytest.fixture(autouse=True)
def folder_of_benchmarks(monkeypatch: pytest.MonkeyPatch) -> None:
    # As a script finds its modules: the folder is no package, and other projects install one of its name.
    monkeypatch.syspath_prepend(REPOSITORY / "benchmarks")


@pytest.fixture
def performance(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The command, where everything that takes time is tiny."""
    module = importlib.import_module("performance")
    effort = module.Options.effort.fget.__globals__["Effort"]
    tiny = effort(2, 0.001, batches=1, single=3, file=40, alternatives=6, precision=40, processes=1)
    monkeypatch.setattr("measurement.QUICK", tiny)
    monkeypatch.setattr("measurement.ORIGINAL", replace(TINY_OPTIONS, cell_size=24))
    monkeypatch.setattr("inference.PEAK_SIZES", {"cpu": 64})
    monkeypatch.setattr("inference.COPIED_BYTES", {"cpu": 1000})
    monkeypatch.setattr("training.ROWS", 3)
    monkeypatch.setattr("training.STEPS", 4)
    options = BiLMOptions(filters=((1, 4), (2, 8)), num_highway=1, cell_size=16, projection_dim=8)
    shape = importlib.import_module("training").Shape(options, 20, 100)
    monkeypatch.setattr("training.SHAPES", {"tiny": shape})
    return module


@pytest.fixture
def arguments(tmp_path: Path) -> List[str]:
    """A text, a blank line in it, a tiny biLM in a folder, and a folder for tables."""
    lines = [" ".join(sentence) for sentence in SENTENCES]
    text = tmp_path / "text.txt"
    text.write_text("\n".join([*lines[:5], "", *lines[5:]]) + "\n", encoding="utf-8")
    folder = tmp_path / "tiny"
    folder.mkdir()
    randomize(BiLM(TINY_OPTIONS)).save(folder / "options.json", folder / "weights.hdf5")
    return [
        *("--text", str(text), "--quick", "--bilm", str(folder)),
        *("--output", str(tmp_path / "output")),
    ]


def table(arguments: List[str], name: str) -> List[Dict[str, Any]]:
    """The rows of a table that was written."""
    written = json.loads(Path(arguments[-1], f"{name}.json").read_text("utf-8"))
    return [dict(zip(written["columns"], row)) for row in written["rows"]]


@pytest.mark.parametrize(
    "name", ["performance", "precision_error", "scaling", "serve_load", "task_cost"]
)
def test_help_gives_an_example(name: str, capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(SystemExit, match="0"):
        importlib.import_module(name).main(["--help"])
    assert f"python benchmarks/{name}.py" in capsys.readouterr().out


def test_tables_of_several_sections_and_biLMs_are_on_one_page(
    performance: ModuleType, arguments: List[str], capsys: pytest.CaptureFixture
) -> None:
    arguments.insert(-2, "random")
    sections = ["training", "inference", "layers", "precision"]
    performance.main(["--sections", *sections, *arguments])
    page = capsys.readouterr().out
    assert page == Path(arguments[-1], "performance.md").read_text("utf-8") + "\n"
    titles = [line for line in page.splitlines() if line.startswith("## ")]
    expected = [
        *("Beside AllenNLP's ELMo, random", "Beside AllenNLP's ELMo, tiny"),
        *("LSTM layers alone, random", "LSTM layers alone, tiny", "Training, tiny"),
        *("What a lower precision changes, random", "What a lower precision changes, tiny"),
    ]
    assert len(titles) == len(expected)
    assert all(title.startswith(f"## {start}") for title, start in zip(titles, expected))
    assert "2 layers of 20 cells, projection 6" in page and "of 24 cells" in page
    for fact in ("processor", "instructions", "threads: 1", "versions: elmo_plugin ", "date: 20"):
        assert f"\n- {fact}" in page
    for section in sections:
        assert f"--sections {section} --bilm" in page

    rows = table(arguments, "inference-tiny")
    lengths = [len(sentence) for sentence in SENTENCES]
    assert {row["case"]: row["tokens"] for row in rows} == {
        "batches": sum(lengths[:32]),
        "single": sum(lengths[:3]),
        "file": sum(lengths),
        "fine_tuning": sum(lengths[:32]),
    }
    for row in rows:
        is_fine_tuning = row["case"] == "fine_tuning"
        for precision in ("float32", "bfloat16", "int8"):
            measured = [row[f"{precision}, ms"], row[f"{precision}, times"]]
            is_measured = precision == "float32" or not is_fine_tuning
            assert [value is not None for value in measured] == [is_measured] * 2
    assert Path(arguments[-1], "inference-tiny.png").read_bytes().startswith(b"\x89PNG")
    assert "![Beside AllenNLP's ELMo, tiny" in page

    layers = table(arguments, "layers-random")
    assert [row["precision"] for row in layers] == ["float32", "bfloat16", "int8"]
    training = table(arguments, "training-tiny")
    ours = ["elmo_plugin, float32"] + ["elmo_plugin, bfloat16"] * has_bfloat16_products()
    assert [row["contender"] for row in training[: len(ours)]] == ours
    others = training[len(ours) :]
    assert [row["contender"].split()[0] for row in others] == [
        "AllenNLP's",
        "torch's",
        "AllenNLP's",
    ]
    for scope in ("LSTMs alone", "whole step"):
        assert others[0][f"{scope}, times AllenNLP's"] == 1
        assert (others[2][f"{scope}, ms"] is None) == (scope == "LSTMs alone")
    errors = table(arguments, "precision-tiny")
    assert [row["layer"] for row in errors] == [0, 1, 2] * 3
    assert all(float(row["relative error"]) < 1e-5 for row in errors[:3])
    assert all(0 < float(row["relative error"]) < 0.1 for row in errors[6:])


def test_a_section_that_fails_or_is_interrupted_leaves_the_tables_of_others(
    performance: ModuleType,
    arguments: List[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
) -> None:
    def failing(error: BaseException) -> Callable:
        def parts(*_: Any) -> Any:
            raise error
            yield

        return parts

    monkeypatch.setitem(performance.PARTS, "inference", failing(RuntimeError("no luck")))
    with pytest.raises(SystemExit, match="Not measured: inference; see above"):
        performance.main(["--sections", "inference", "layers", *arguments])
    page = capsys.readouterr().out
    assert "## inference: not measured\n\nRuntimeError: no luck" in page
    assert "## LSTM layers alone, tiny" in page

    monkeypatch.setitem(performance.PARTS, "training", failing(KeyboardInterrupt()))
    with pytest.raises(SystemExit, match=r"Interrupted. What was measured is in .*output"):
        performance.main(["--sections", "precision", "training", "inference", *arguments])
    # Later sections join what is in the folder.
    performance.main(["--sections", "precision", *arguments])
    page = capsys.readouterr().out
    assert page.index("## LSTM layers alone") < page.index("## What a lower precision changes")


def test_tables_of_another_machine_are_not_mixed(
    performance: ModuleType,
    arguments: List[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
) -> None:
    performance.main(["--sections", "layers", *arguments])
    monkeypatch.setattr(performance, "machine_facts", lambda options: {"processor": "abacus"})
    with pytest.raises(SystemExit, match="2"):
        performance.main(["--sections", "layers", *arguments])
    assert "expected those of this machine, {'processor': 'abacus'}" in capsys.readouterr().err


@pytest.mark.parametrize(
    "more, message",
    [
        (["--text", "nowhere.txt"], "nowhere.txt"),
        (["--sections", "everything"], "invalid choice: 'everything'"),
        (["--precisions", "float8"], "invalid choice: 'float8'"),
        (["--threads", "0"], "--threads: found 0, expected at least 1"),
        (["--device", "abacus"], "--device: found abacus"),
        (["--bilm", "nowhere"], "cannot find nowhere/options.json"),
        (["--kernel", "onednn", "--precisions", "int8"], "kernel is 'onednn', but it has no int8"),
        (["--output", __file__], "expected a folder"),
    ],
)
def test_wrong_arguments_are_named_before_anything_is_timed(
    more: List[str],
    message: str,
    performance: ModuleType,
    arguments: List[str],
    capsys: pytest.CaptureFixture,
) -> None:
    with pytest.raises(SystemExit, match="2"):
        performance.main([*arguments, *more])
    assert message in " ".join(capsys.readouterr().err.split())


def test_a_text_without_enough_sentences_is_an_error(
    performance: ModuleType, arguments: List[str], tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    short = tmp_path / "short.txt"
    short.write_text("One .\n")
    with pytest.raises(SystemExit, match="2"):
        performance.main([*arguments, "--text", str(short)])
    assert "--text: found 1 sentences, expected at least 32" in capsys.readouterr().err


def test_contenders_take_turns_that_turn_round(performance: ModuleType) -> None:
    measurement = importlib.import_module("measurement")
    turns: List[str] = []

    def noting(name: str) -> Callable[[], None]:
        return lambda: turns.append(name)

    names = ["a", "b", "c"]
    measured = measurement.time_in_turns(
        "title", {name: noting(name) for name in names}, measurement.QUICK
    )
    changes = [name for name, before in zip(turns, ["", *turns]) if name != before]
    assert changes == ["a", "b", "c", "b", "a"]
    assert list(measured) == names
    assert all(times.median > 0 for times in measured.values())


@pytest.mark.parametrize("section, damaged", [("inference", "inference"), ("training", "training")])
def test_nothing_is_timed_when_contenders_disagree(
    section: str,
    damaged: str,
    performance: ModuleType,
    arguments: List[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
) -> None:
    if damaged == "training":
        monkeypatch.setattr("training.copy_weights", lambda layer, cell: None)
    else:
        cases = importlib.import_module("inference").Cases
        ours = cases._ours

        def perturbed(self: Any, *settings: Any) -> Any:
            elmo = ours(self, *settings)
            with torch.no_grad():
                elmo.bilm.forward_layers[0].projection.add_(0.01)
            return elmo

        monkeypatch.setattr(cases, "_ours", perturbed)
    with pytest.raises(SystemExit, match=f"Not measured: {section}"):
        performance.main(["--sections", section, *arguments])
    page = capsys.readouterr().out
    assert "do not agree" in page or "not close" in page
    assert "|" not in page


def test_gradients_must_agree_before_fine_tuning_is_timed(
    performance: ModuleType, arguments: List[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    inference = importlib.import_module("inference")
    ours = inference.Cases._ours

    def partly_frozen(self: Any, precision: str, requires_grad: bool = False) -> Any:
        elmo = ours(self, precision, requires_grad)
        elmo.bilm.character_encoder.requires_grad_(False)
        return elmo

    monkeypatch.setattr(inference.Cases, "_ours", partly_frozen)
    folder = Path(arguments[4])
    files = str(folder / "options.json"), str(folder / "weights.hdf5")
    options = importlib.import_module("measurement").Options(arguments[1], quick=True)
    cases = inference.Cases(files, options, SENTENCES)
    with pytest.raises(
        inference.DisagreementError, match="the norms of the gradients, relatively,"
    ):
        cases.fine_tuning()


def test_allennlps_loop_takes_batches_in_order_from_zero_states(
    performance: ModuleType, bilm_files: BiLMFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    inference = importlib.import_module("inference")
    monkeypatch.setattr(inference, "ROWS_PER_FILE_BATCH", 2)
    found = inference.allennlp_file(_ElmoBiLm(*bilm_files), SENTENCES, torch.device("cpu"))
    assert len(found) == len(SENTENCES)
    for start in range(0, len(SENTENCES), 20):
        batch = SENTENCES[start : start + 2]
        bilm = _ElmoBiLm(*bilm_files)  # which has no states yet
        with torch.no_grad():
            activations = bilm(batch_to_ids(batch))["activations"]
        for row, sentence in enumerate(batch):
            expected = [layer[row, 1 : len(sentence) + 1].numpy() for layer in activations]
            # The same operations on the same batch.
            numpy.testing.assert_array_equal(found[start + row], numpy.stack(expected))


def test_speeds_are_shares_of_what_the_machine_could_do(performance: ModuleType) -> None:
    inference = importlib.import_module("inference")
    benchmark = torch.utils.benchmark

    def times(*seconds: float) -> Any:
        return benchmark.Measurement(1, list(seconds), benchmark.TaskSpec("run()", ""))

    measured = {
        "float32": times(0.3, 0.2, 0.1),
        "row float32": times(0.002),
        "peak float32": times(0.01, 0.001),
        "memory": times(0.001, 0.01),
    }
    (row,) = inference.layer_frame(BiLMOptions(), measured, torch.device("cpu")).to_dict("records")
    # 2 layers in 2 directions, 64 rows of 25 steps; gates read inputs and states, then comes the projection.
    weights = 4096 * 512 * (4 + 4 + 1)
    assert row["GFLOP/s"] == pytest.approx(4 * 2 * weights * 64 * 25 / 0.2 / 1e9, abs=0.1)
    assert row["peak GFLOP/s"] == pytest.approx(2 * 64**3 / 0.001 / 1e9, abs=0.1)
    assert row["copy, GB/s"] == pytest.approx(2 * 1000 / 0.001 / 1e9, abs=0.1)
    # Weights of inputs once, those of states at each step.
    num_bytes = 4 * 4 * 4096 * 512 * (4 + 25 * 5)
    assert row["its weights, GB/s"] == pytest.approx(num_bytes / 0.002 / 1e9, abs=0.1)


@pytest.fixture
def alternatives(
    performance: ModuleType, arguments: List[str], monkeypatch: pytest.MonkeyPatch
) -> ModuleType:
    """The section, where contenders are tiny and run in this process."""
    module, contender = map(importlib.import_module, ("alternatives", "contender"))
    monkeypatch.setattr(module, "measure", contender.main)
    monkeypatch.setattr(module, "BILMS", {"ELMo, tiny": arguments[4]})
    monkeypatch.setattr(module, "WORDS_PER_BATCH", 12)
    sizes = {"vocab_size": 12_000, "num_hidden_layers": 1, "num_attention_heads": 1}
    tiny_bert = {**sizes, "hidden_size": 8, "intermediate_size": 8}
    tiny_distilbert = {"vocab_size": 12_000, "n_layers": 1, "n_heads": 1, "dim": 8, "hidden_dim": 8}
    shapes = {"BERT-base": tiny_bert, "DistilBERT": tiny_distilbert, "MiniLM": tiny_bert}
    monkeypatch.setattr(contender, "SHAPES", shapes)
    return module


def test_alternatives_have_a_row_each_and_a_picture(
    alternatives: ModuleType,
    performance: ModuleType,
    arguments: List[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(alternatives, "has_bfloat16_products", lambda: False)
    precisions = ["--precisions", "float32", "bfloat16"]
    performance.main(["--sections", "alternatives", *precisions, *arguments])
    rows = table(arguments, "alternatives")
    has_model2vec = importlib.util.find_spec("model2vec") is not None
    assert [(row["contender"], row["library"], row["precision"]) for row in rows] == [
        ("ELMo, tiny", "allennlp", "float32"),
        ("ELMo, tiny", "elmo_plugin", "float32"),
        ("ELMo, tiny", "elmo_plugin", "bfloat16"),
        ("BERT-base", "transformers", "float32"),
        ("DistilBERT", "transformers", "float32"),
        ("MiniLM, 6 layers of 384", "transformers", "float32"),
        *[("static embedding", "model2vec", "float32")] * has_model2vec,
    ]
    for row in rows:
        assert row["words/s"] > 0
        assert row["peak memory, MiB"] >= row["of which libraries, MiB"] > 0
        assert (row["pieces per word"] is None) == row["contender"].startswith("ELMo")
    page = Path(arguments[-1], "performance.md").read_text("utf-8")
    assert "This processor has no products in bfloat16" in page
    assert ("model2vec is not installed" in page) != has_model2vec
    assert Path(arguments[-1], "alternatives.png").read_bytes().startswith(b"\x89PNG")


def test_all_contenders_get_the_same_batches_short_sentences_first(
    alternatives: ModuleType,
) -> None:
    batches = alternatives.batches_by_words(SENTENCES)
    sentences = [sentence for batch in batches for sentence in batch]
    assert sentences == sorted(SENTENCES, key=len)
    assert all(sum(map(len, batch)) <= 12 for batch in batches) and len(batches) < len(SENTENCES)


@pytest.mark.slow
def test_an_alternative_in_its_own_process_has_memory_of_its_own(
    performance: ModuleType, arguments: List[str], tmp_path: Path
) -> None:
    module = importlib.import_module("alternatives")
    (tmp_path / "batches.json").write_text(json.dumps([SENTENCES]))
    folder = Path(arguments[4])
    settings = {
        "files": [str(folder / "options.json"), str(folder / "weights.hdf5")],
        "batches": str(tmp_path / "batches.json"),
        "library": "elmo_plugin",
        "precision": "float32",
        "repetitions": 2,
        "threads": 1,
    }
    result = module.measure(settings)
    assert 0 < result["libraries"] <= result["peak"] < 4000
    assert result["seconds"] > 0 and result["parameters"] > 1000


@pytest.mark.slow
def test_memory_has_a_row_for_each_precision(performance: ModuleType, arguments: List[str]) -> None:
    if not Path("/proc/self/smaps_rollup").exists():
        pytest.skip("Memory is measured on Linux only.")
    performance.main(["--sections", "memory", "--precisions", "bfloat16", *arguments])
    (row,) = table(arguments, "memory-tiny")
    assert row["precision"] == "bfloat16" and row["load, s"] >= 0 and row["first, s"] >= 0


@pytest.mark.slow
def test_the_cost_of_a_task_is_measured_with_and_without_elmo(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.chdir(REPOSITORY)
    monkeypatch.setenv("ELMO", "fixtures/bilm/tiny")
    task_cost = importlib.import_module("task_cost")
    task_cost.main(["ner=fixtures/ner/wikigold", "--instances", "20", "--threads", "1"])
    lines = capsys.readouterr().out.splitlines()
    rows = [line.strip("| ").split(" | ") for line in lines if line.startswith("| ner")]
    assert [row[:3] for row in rows] == [["ner", "20", "none"], ["ner", "20", "as in the config"]]
    for *_, first_epoch, second_epoch, gigabytes in rows:
        assert float(first_epoch) > 0 and float(second_epoch) > 0 and float(gigabytes) > 0.1


@pytest.mark.slow
def test_a_server_under_load_makes_no_error(
    tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    text = tmp_path / "text.txt"
    text.write_text("Ada Lovelace lived in London .\n\nIt rained in Paris .\n", encoding="utf-8")
    load = importlib.import_module("serve_load")
    load.main(["--text", str(text), "--clients", "20", "--seconds", "2"])
    titles, _, *rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in capsys.readouterr().out.splitlines()
    ]
    found = {row[0]: dict(zip(titles, row)) for row in rows}
    assert list(found) == ["one by one", "together", "without batches"]
    for row in found.values():
        assert row["errors"] == "0"
        assert float(row["requests/s"].replace(",", "")) > 0
    assert float(found["together"]["per batch"]) > 1
    assert found["one by one"]["per batch"] == found["without batches"]["per batch"] == "1"
