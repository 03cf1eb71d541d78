"""The benchmarks run and report what they promise; how fast anything is, no test says."""

import importlib
import json
import sys
from dataclasses import replace
from itertools import chain
from pathlib import Path
from types import ModuleType
from typing import Any, Callable, Dict, List, NamedTuple

import pytest
import torch

from elmo_plugin import Elmo, batch_to_ids
from elmo_plugin.bilm.kernels import choose_precision
from tests.conftest import TINY_OPTIONS, BiLMFiles

REPOSITORY = Path(__file__).parents[1]
TINY_BILM = REPOSITORY / "fixtures" / "bilm" / "tiny"
TINY = ["--shapes", "tiny", "--rows", "3", "--steps", "4", "--repetitions", "2", "--threads", "1"]


@pytest.fixture(autouse=True)
def folder_of_benchmarks(monkeypatch: pytest.MonkeyPatch) -> None:
    # As a script finds its modules: the folder is no package, and other projects install one of its name.
    monkeypatch.syspath_prepend(REPOSITORY / "benchmarks")


@pytest.mark.parametrize(
    "name",
    [
        *("embedding_comparison", "inference_speed", "loading", "precision_error", "scaling"),
        *("task_cost", "training_speed"),
    ],
)
def test_help_gives_an_example(name: str, capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(SystemExit, match="0"):
        importlib.import_module(name).main(["--help"])
    assert f"python benchmarks/{name}.py" in capsys.readouterr().out


@pytest.fixture
def training_speed() -> ModuleType:
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
            # Milliseconds are rounded to one digit after the point, and speeds to none.
            assert median == pytest.approx(1000 * 3 * 4 / speed, abs=0.06, rel=1 / speed)
        assert rows[4][4] == "1.00"


@pytest.mark.slow
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
    assert all(float(seconds) > 0 and float(gigabytes) > 0.1 for *_, seconds, gigabytes in rows)


@pytest.fixture
def inference_speed(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = importlib.import_module("inference_speed")
    # A product of matrices that takes no time.
    monkeypatch.setattr("inference_cases.PEAK_SIZES", {"cpu": 64})
    monkeypatch.setattr("inference_cases.COPIED_BYTES", {"cpu": 1000})
    return module


@pytest.fixture
def text_file(tmp_path: Path) -> Path:
    """40 sentences of 2 to 8 words, an empty line among them."""
    words = ["the", "cat", "sat", "on", "a", "mat", ",", "naïve", "日本語", "."]
    lines = [" ".join(words[number % 4 : number % 4 + 2 + number % 7]) for number in range(40)]
    path = tmp_path / "text.txt"
    path.write_text("\n".join([*lines[:5], "", *lines[5:]]) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def tiny_arguments(text_file: Path, bilm_files: BiLMFiles) -> List[str]:
    return [
        *["--text", str(text_file), "--options", bilm_files.options_file],
        *["--weights", bilm_files.weight_file, "--batches", "1", "--sentences", "3"],
        *["--file-sentences", "0", "--repetitions", "2", "--threads", "1"],
    ]


def tables_of(output: str) -> List[List[List[str]]]:
    """The cells of each Markdown table, without the line under its head."""
    tables = [part for part in output.split("\n\n") if part.startswith("|")]
    return [
        [line.strip("| ").split(" | ") for line in table.splitlines() if "---" not in line]
        for table in tables
    ]


def test_every_case_is_timed_in_every_precision_and_reported(
    inference_speed: ModuleType,
    tiny_arguments: List[str],
    text_file: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture,
) -> None:
    folder = tmp_path / "reports" / "new"
    inference_speed.main([*tiny_arguments, "--output", str(folder)])
    output = capsys.readouterr().out
    assert "1 threads, torch " in output and "2 layers of 20 cells, projection 6" in output
    differences, timings, layers = tables_of(output)
    assert [row[:2] for row in differences[1:]] == [
        ["float32", "AllenNLP"],
        ["bfloat16", "float32"],
        ["int8", "float32"],
    ]
    assert float(differences[1][2]) < 1e-5
    for row in differences[2:]:
        # Where a precision would be slower, float32 runs in its place.
        is_lower = choose_precision("auto", row[0], torch.device("cpu")) != "float32"
        assert (float(row[2]) > 0) == is_lower
        assert all(0 <= float(error) < 0.1 for error in row[3:])
    assert timings[0][1:4] == ["tokens", "AllenNLP ms", "float32 ms"]
    lengths = [len(line.split()) for line in text_file.read_text("utf-8").splitlines() if line]
    assert {row[0]: int(row[1]) for row in timings[1:]} == {
        "batches": sum(lengths[:32]),
        "single": sum(lengths[:3]),
        "file": sum(lengths),
        "fine_tuning": sum(lengths[:32]),
    }
    assert [row[0] for row in layers[1:]] == ["float32", "bfloat16", "int8"]
    assert "Peak: the fastest torch.mm" in output

    report = json.loads((folder / "inference_speed.json").read_text())
    assert list(report["cases"]) == ["batches", "single", "file", "fine_tuning"]
    for (name, case), row in zip(report["cases"].items(), timings[1:], strict=True):
        medians = case["medians"]
        assert list(medians) == ["AllenNLP", "float32", "bfloat16", "int8"][: len(medians)]
        assert len(medians) == (2 if name == "fine_tuning" else 4)
        assert all(len(seconds) == 2 for seconds in case["seconds"].values())
        ratios = {name: medians["AllenNLP"] / median for name, median in medians.items()}
        assert case["speed_ratios"] == {name: ratios[name] for name in list(medians)[1:]}
        printed = [f"{1000 * medians['AllenNLP']:,.1f}"]
        for precision in list(medians)[1:]:
            printed += [f"{1000 * medians[precision]:,.1f}", f"{ratios[precision]:.2f}"]
        assert [cell for cell in row[2:] if cell != "–"] == printed
    assert list(report["lstm"]) == list(report["kernels"]) == ["float32", "bfloat16", "int8"]
    assert all(speed["gflops"] > 0 for speed in report["lstm"].values())
    for precision, speed in report["lstm"].items():
        assert all(len(speed[f"{name}seconds"]) == 2 for name in ("", "row_", "peak_", "memory_"))
        # Of 2 layers in 2 directions, 25 steps: weights of inputs once, and 5 matrices at each step.
        num_bytes = 4 * (4 + 25 * 5) * 20 * 6 * {"float32": 4, "bfloat16": 2, "int8": 1}[precision]
        median = sum(speed["row_seconds"]) / 2
        assert speed["row_gigabytes"] == pytest.approx(num_bytes / median / 1e9)
        assert speed["memory_gigabytes"] == 2000 / min(speed["memory_seconds"]) / 1e9
    assert set(report["versions"]) == {"python", "torch", "allennlp", "elmo_plugin"}
    assert report["threads"] == 1 and "--repetitions 2" in report["command"]
    assert report["options"]["lstm"]["dim"] == 20 and report["machine"] and report["date"]
    assert (folder / "inference_speed.png").read_bytes().startswith(b"\x89PNG")
    assert "</svg>" in (folder / "inference_speed.svg").read_text()


def test_speeds_stand_beside_what_the_machine_could_do(inference_speed: ModuleType) -> None:
    report = importlib.import_module("inference_report")
    speed = report.LayerSpeed([0.3, 0.2, 0.1], 1500, [1.0], 6000, [0.02], 30, [1.0], 40)
    ((head, row),) = tables_of(report.layers_table({"float32": speed}))
    assert dict(zip(head, row)) == {
        "LSTM layers": "float32",
        "ms": "200.0",
        "GFLOP/s": "1,500.0",
        "peak GFLOP/s": "6,000.0",
        "share of the peak": "25%",
        "one row, ms": "20.0",
        "weights, GB/s": "30.0",
        "memory, GB/s": "40.0",
        "share of the memory's": "75%",
    }


def test_contenders_take_turns(
    inference_speed: ModuleType, tiny_arguments: List[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    turns: List[str] = []

    def noted(runs: Dict[str, Callable]) -> Dict[str, Callable]:
        def new_run(name: str) -> Callable:
            return lambda: (turns.append(name), runs[name]())

        return {name: new_run(name) for name in runs}

    measure = inference_speed.measure

    def noting_measure(case: str, work: NamedTuple, *others: Any) -> Dict[str, List[float]]:
        return measure(case, work._replace(runs=noted(work.runs)), *others)

    monkeypatch.setattr(inference_speed, "measure", noting_measure)
    inference_speed.main([*tiny_arguments, "--cases", "batches"])
    assert turns == 2 * ["AllenNLP", "float32", "bfloat16", "int8"]
    turns.clear()
    # Warm: a repetition comes before those that are timed.
    inference_speed.main([*tiny_arguments, "--cases", "single", "--precisions", "int8"])
    assert turns == 3 * ["AllenNLP", "int8"]


@pytest.mark.parametrize("case, is_cold", [("batches", True), ("single", False)])
def test_word_caches_are_empty_before_each_repetition_of_the_cold_cases_alone(
    case: str,
    is_cold: bool,
    inference_speed: ModuleType,
    tiny_arguments: List[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    num_held: List[int] = []
    measure = inference_speed.measure

    def noting_measure(
        case: str, work: NamedTuple, contenders: Dict[str, Any], *others: Any
    ) -> Dict[str, List[float]]:
        def run() -> None:
            num_held.append(len(contenders["float32"].elmo.bilm.word_cache))
            work.runs["float32"]()

        return measure(case, work._replace(runs={"float32": run}), contenders, *others)

    monkeypatch.setattr(inference_speed, "measure", noting_measure)
    monkeypatch.setattr(inference_speed, "timings_table", lambda *_: "")
    inference_speed.main([*tiny_arguments, "--cases", case, "--precisions", "float32"])
    assert [number == 0 for number in num_held] == ([True] * 2 if is_cold else [False] * 3)


def test_a_file_is_embedded_in_order_however_it_is_batched(
    inference_speed: ModuleType,
    bilm_files: BiLMFiles,
    text_file: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cases = importlib.import_module("inference_cases")
    monkeypatch.setattr(cases, "TOKENS_PER_FILE_BATCH", 20)
    monkeypatch.setattr(cases, "ROWS_PER_FILE_BATCH", 7)
    sentences = inference_speed.read_sentences(text_file, 1, is_whole=True)
    lengths = [len(sentence) for sentence in sentences]
    by_tokens = cases.batches_by_tokens(lengths)
    in_order = cases.batches_in_order(lengths)
    assert sorted(chain(*by_tokens)) == list(chain(*in_order)) == [*range(40)]
    assert all(sum(lengths[number] for number in batch) <= 20 for batch in by_tokens)
    assert [len(batch) for batch in in_order] == [7, 7, 7, 7, 7, 5]
    elmo = Elmo(*bilm_files, 1, dropout=0.0)
    device = torch.device("cpu")
    results = [
        cases.embed_file(cases.Contender(elmo, batch_to_ids, is_ours), sentences, device)
        for is_ours in (True, False)
    ]
    for number, sentence in enumerate(sentences):
        with torch.no_grad():
            alone = elmo(batch_to_ids([sentence]))["elmo_representations"][0][0]
        for vectors in results:
            # Sums are made in another order in another batch.
            torch.testing.assert_close(vectors[number], alone, atol=1e-6, rtol=0)


@pytest.mark.parametrize("case", ["batches", "fine_tuning"])
def test_nothing_is_timed_when_ours_and_allennlp_disagree(
    case: str,
    inference_speed: ModuleType,
    tiny_arguments: List[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
) -> None:
    cases = importlib.import_module("inference_cases")
    original = cases.our_contender

    def damaged(setting: NamedTuple, precision: str, is_trainable: bool = False) -> NamedTuple:
        contender = original(setting, precision, is_trainable)
        if is_trainable == (case == "fine_tuning"):
            with torch.no_grad():
                contender.elmo.bilm.forward_layers[0].projection.add_(0.01)
        return contender

    monkeypatch.setattr(cases, "our_contender", damaged)
    with pytest.raises(
        SystemExit, match=r"do not agree: the representations of .* Nothing was timed"
    ):
        inference_speed.main([*tiny_arguments, "--cases", "batches", case])
    assert "|" not in capsys.readouterr().out


def test_gradients_must_agree_before_fine_tuning_is_timed(
    inference_speed: ModuleType, tiny_arguments: List[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    cases = importlib.import_module("inference_cases")
    original = cases.our_contender

    def partly_frozen(
        setting: NamedTuple, precision: str, is_trainable: bool = False
    ) -> NamedTuple:
        contender = original(setting, precision, is_trainable)
        contender.elmo.bilm.character_encoder.requires_grad_(False)
        return contender

    monkeypatch.setattr(cases, "our_contender", partly_frozen)
    with pytest.raises(SystemExit, match="the norms of the gradients, relatively, differ by"):
        inference_speed.main([*tiny_arguments, "--cases", "fine_tuning"])


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--text", "nowhere.txt"], "cannot read nowhere.txt"),
        (["--batches", "2"], "has 40 sentences, expected at least 64"),
        (["--file-sentences", "41"], "has 40 sentences, expected at least 41"),
        (["--cases", "everything"], "invalid choice: 'everything'"),
        (["--cases", "fine_tuning", "--precisions", "int8"], "fine_tuning runs in float32"),
        (["--precisions", "float8"], "invalid choice: 'float8'"),
        (["--repetitions", "0"], "found 0, expected at least 1"),
        (["--kernel", "onednn", "--precisions", "int8"], "kernel is 'onednn', but it has no int8"),
        (["--device", "abacus"], "found abacus, expected cpu"),
        (["--weights", "elmo_mini"], "stands for both files"),
        (["--weights", "nowhere.hdf5"], "cannot find nowhere.hdf5"),
        (["--weights", str(TINY_BILM / "weights.hdf5")], "weights.hdf5: dataset"),
    ],
)
def test_wrong_arguments_are_named_before_anything_is_timed(
    arguments: List[str],
    message: str,
    inference_speed: ModuleType,
    tiny_arguments: List[str],
    capsys: pytest.CaptureFixture,
) -> None:
    with pytest.raises(SystemExit, match="2"):
        inference_speed.main([*tiny_arguments, *arguments])
    assert message in " ".join(capsys.readouterr().err.split())


def test_a_biLM_that_allennlp_cannot_run_is_an_error(
    inference_speed: ModuleType, write_bilm: Callable[..., BiLMFiles], tiny_arguments: List[str]
) -> None:
    files = write_bilm(replace(TINY_OPTIONS, use_skip_connections=False), name="plain")
    with pytest.raises(SystemExit, match="only support pretrained biLMs with residual connections"):
        inference_speed.main(
            [*tiny_arguments, "--options", files.options_file, "--weights", files.weight_file]
        )


def test_weights_in_float16_are_the_same_to_both(
    inference_speed: ModuleType, text_file: Path, capsys: pytest.CaptureFixture
) -> None:
    arguments = ["--options", "elmo_mini", "--precisions", "float32", "--cases", "single"]
    inference_speed.main(["--text", str(text_file), *arguments, "--repetitions", "1"])
    differences, _ = tables_of(capsys.readouterr().out)
    assert float(differences[1][2]) < 1e-5


def test_without_a_biLM_there_are_random_weights_of_the_original_shape(
    inference_speed: ModuleType,
    text_file: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
) -> None:
    # In a shape that takes no time.
    monkeypatch.setattr(inference_speed, "ORIGINAL", TINY_OPTIONS)
    inference_speed.main(["--text", str(text_file), "--cases", "single", "--repetitions", "1"])
    captured = capsys.readouterr()
    assert "random weights: 2 layers of 20 cells" in captured.out
    assert "Writing random weights" in captured.err and "single: 100%" in captured.err


def test_without_matplotlib_the_report_has_no_chart_and_says_so(
    inference_speed: ModuleType,
    tiny_arguments: List[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    inference_speed.main([*tiny_arguments, "--cases", "single", "--output", str(tmp_path)])
    assert "matplotlib is not installed. Install it with" in capsys.readouterr().err
    assert (tmp_path / "inference_speed.json").exists()
    assert not (tmp_path / "inference_speed.png").exists()


@pytest.mark.slow
def test_loading_reports_time_and_memory(
    bilm_files: BiLMFiles,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
) -> None:
    if not Path("/proc/self/smaps_rollup").exists():
        pytest.skip("Memory is measured on Linux only.")
    loading = importlib.import_module("loading")
    output = tmp_path / "loading.json"
    files = ["--options", bilm_files.options_file, "--weights", bilm_files.weight_file]
    few = ["--precisions", "bfloat16", "--repetitions", "1", "--processes", "1"]
    loading.main([*files, *few, "--output", str(output)])
    (row,) = json.loads(output.read_text()).values()
    assert row["load"] > 0 and row["first"] > 0
    assert row["weights"] == pytest.approx(2 * row["num_parameters"] / 2**20)
    assert "| bfloat16, auto |" in capsys.readouterr().out
