"""The comparison of embedders times what it promises, and fails where vectors differ."""

import importlib
import json
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any, Dict, Iterable, Iterator, List

import numpy
import pytest
import torch
from allennlp.modules.elmo import _ElmoBiLm

from elmo_plugin import BiLM, ElmoEmbedder, batch_to_ids
from elmo_plugin.bilm.kernels import choose_precision
from tests.conftest import TINY_OPTIONS, randomize

WORDS = ["the", "naïve", "日本語", "x" * 80, "<S>", "a", "bank", ",", "river", "."]
# 23 sentences of 1 to 7 words: 6 slices of 4, the last of 3, in batches of 2.
SENTENCES = [WORDS[number % 5 : number % 5 + 1 + number % 7] for number in range(23)]
NUM_TOKENS = sum(len(sentence) for sentence in SENTENCES)


@pytest.fixture
def comparison(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    # As a script finds it: the folder is no package, and other projects install one of its name.
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "benchmarks")
    module = importlib.import_module("embedding_comparison")
    monkeypatch.setattr(module, "ROWS_PER_FILE_BATCH", 2)
    monkeypatch.setattr(module, "SENTENCES_PER_SLICE", 4)
    return module


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Of a tiny biLM."""
    path = tmp_path / "tiny"
    path.mkdir()
    randomize(BiLM(TINY_OPTIONS)).save(path / "options.json", path / "weights.hdf5")
    return path


@pytest.fixture
def text_file(tmp_path: Path) -> Path:
    """The sentences, a blank line among them."""
    lines = [" ".join(sentence) for sentence in SENTENCES]
    path = tmp_path / "text.txt"
    path.write_text("\n".join([*lines[:5], "", *lines[5:]]) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def arguments(text_file: Path, folder: Path) -> List[str]:
    return ["--text", str(text_file), "--bilm", str(folder)]


def table_rows(output: str) -> List[List[str]]:
    lines = [line for line in output.splitlines() if line.startswith("|")]
    return [line.strip("| ").split(" | ") for line in lines[2:]]


def perturb(
    monkeypatch: pytest.MonkeyPatch, comparison: ModuleType, position: int, wrong: Any
) -> None:
    """Replace the vectors that ours gives for a sentence of the file by `wrong(vectors)`."""

    class PerturbedEmbedder(ElmoEmbedder):
        num_embedded = -1  # the warm-up's sentence comes first

        def embed_sentences(self, *args: Any, **kwargs: Any) -> Iterator[numpy.ndarray]:
            for vectors in super().embed_sentences(*args, **kwargs):
                yield wrong(vectors) if self.num_embedded == position else vectors
                self.num_embedded += 1

    monkeypatch.setattr(comparison, "ElmoEmbedder", PerturbedEmbedder)


def test_a_file_is_embedded_by_both_and_the_vectors_agree(
    comparison: ModuleType, arguments: List[str], tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    json_file = tmp_path / "new" / "numbers.json"
    comparison.main([*arguments, "--json", str(json_file)])
    captured = capsys.readouterr()
    assert f"1 threads, torch {torch.__version__}" in captured.out
    assert f"; 23 sentences, {NUM_TOKENS} tokens\n" in captured.out
    rows = table_rows(captured.out)
    assert [row[1] for row in rows] == ["AllenNLP", "ours, float32"]
    assert all(row[0].endswith("tiny (20 cells, projection 6)") for row in rows)
    assert rows[0][4:6] == ["1.00", "–"]
    assert float(rows[1][5]) < 1e-5
    assert "46/46" in captured.err  # of both together

    report = json.loads(json_file.read_text())
    assert (report["num_sentences"], report["num_tokens"]) == (23, NUM_TOKENS)
    assert report["threads"] == 1 and report["machine"] and report["date"]
    assert set(report["versions"]) == {"python", "torch", "allennlp", "elmo_plugin"}
    ((name, bilm),) = report["bilms"].items()
    assert name == arguments[-1] and bilm["options"]["lstm"]["dim"] == 20
    theirs, ours = bilm["contenders"]["AllenNLP"], bilm["contenders"]["float32"]
    for result in (theirs, ours):
        assert len(result["seconds_of_slices"]) == 6
        assert result["seconds"] == pytest.approx(sum(result["seconds_of_slices"]))
        assert result["tokens_per_second"] == pytest.approx(NUM_TOKENS / result["seconds"])
        assert result["load_seconds"] > 0
    assert ours["speed_ratio"] == pytest.approx(theirs["seconds"] / ours["seconds"])
    assert 0 <= ours["largest_difference"] < 1e-5 and 1 <= ours["sentence_of_it"] <= 23
    assert "largest_difference" not in theirs


def test_contenders_take_slices_in_turns_that_turn_round(
    comparison: ModuleType, arguments: List[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    turns: List[str] = []
    read: Dict[str, List[List[str]]] = {}

    def noted(name: str, embed: Any) -> Any:
        def noting(sentences: List[List[str]]) -> Iterable[numpy.ndarray]:
            turns.append(name)
            read.setdefault(name, []).extend(sentences)
            return embed(sentences)

        return noting

    allennlp_embed, our_embed = comparison.allennlp_embed, comparison.our_embed
    monkeypatch.setattr(
        comparison, "allennlp_embed", lambda *files: noted("theirs", allennlp_embed(*files))
    )
    monkeypatch.setattr(
        comparison,
        "our_embed",
        lambda *settings: noted(settings[-1], our_embed(*settings)),
    )
    comparison.main([*arguments, "--precisions", "int8"])
    order = ["theirs", "float32", "int8"]
    assert turns == 3 * [*order, *reversed(order)]
    assert read == dict.fromkeys(order, SENTENCES)


def test_our_word_cache_is_empty_at_the_start_of_the_file_and_fills_on_the_way(
    comparison: ModuleType, arguments: List[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    num_known: List[int] = []

    class CountingEmbedder(ElmoEmbedder):
        def embed_sentences(self, *args: Any, **kwargs: Any) -> Iterator[numpy.ndarray]:
            assert kwargs == {"batch_size": 2}
            num_known.append(len(self.elmo_bilm.word_cache))
            return super().embed_sentences(*args, **kwargs)

    monkeypatch.setattr(comparison, "ElmoEmbedder", CountingEmbedder)
    comparison.main(arguments)
    warm_up, first, *others = num_known
    assert warm_up == first == 0
    assert others == sorted(others) and others[0] > 0 and len(others) == 5


def test_allennlps_loop_takes_batches_in_order_from_zero_states(
    comparison: ModuleType, folder: Path
) -> None:
    files = folder / "options.json", folder / "weights.hdf5"
    found = list(comparison.allennlp_embed(*files)(SENTENCES))
    assert len(found) == len(SENTENCES)
    for start in range(0, len(SENTENCES), 2):
        batch = SENTENCES[start : start + 2]
        bilm = _ElmoBiLm(*map(str, files))  # which has no states yet
        with torch.no_grad():
            activations = bilm(batch_to_ids(batch))["activations"]
        for row, sentence in enumerate(batch):
            expected = [layer[row, 1 : len(sentence) + 1].numpy() for layer in activations]
            # The same operations on the same batch.
            numpy.testing.assert_array_equal(found[start + row], numpy.stack(expected))


def test_lower_precisions_are_compared_but_may_differ(
    comparison: ModuleType, arguments: List[str], capsys: pytest.CaptureFixture
) -> None:
    comparison.main([*arguments, "--precisions", "int8", "bfloat16"])
    rows = table_rows(capsys.readouterr().out)
    assert [row[1] for row in rows] == [
        "AllenNLP",
        "ours, float32",
        "ours, bfloat16",
        "ours, int8",
    ]
    differences = [float(row[5]) for row in rows[1:]]
    for precision, difference in zip(("float32", "bfloat16", "int8"), differences):
        # Where a precision would be slower, float32 runs in its place.
        runs_in = choose_precision("auto", precision, torch.device("cpu"))
        assert difference < 1e-5 if runs_in == "float32" else 1e-5 < difference < 1


@pytest.mark.parametrize(
    "wrong, shown",
    [
        (lambda vectors: vectors + numpy.float32(2e-5), r"2\.\de-05"),
        (lambda vectors: numpy.where(vectors == vectors.max(), numpy.nan, vectors), "nan"),
        (lambda vectors: vectors[:, 1:], "inf"),
    ],
)
def test_a_wrong_vector_fails_and_says_where(
    wrong: Any,
    shown: str,
    comparison: ModuleType,
    arguments: List[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
) -> None:
    json_file = tmp_path / "numbers.json"
    perturb(monkeypatch, comparison, 13, wrong)
    message = (
        rf"tiny: ours in float32 and AllenNLP's do not agree: the vectors of sentence 14 differ by {shown}, "
        "expected at most 1e-05"
    )
    # A message as the exit code is printed, and the status is 1.
    with pytest.raises(SystemExit, match=message):
        comparison.main([*arguments, "--json", str(json_file)])
    assert len(table_rows(capsys.readouterr().out)) == 2
    (bilm,) = json.loads(json_file.read_text())["bilms"].values()
    assert bilm["contenders"]["float32"]["sentence_of_it"] == 14


def test_a_difference_within_the_tolerance_does_not_fail(
    comparison: ModuleType,
    arguments: List[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
) -> None:
    perturb(monkeypatch, comparison, 13, lambda vectors: vectors + numpy.float32(5e-6))
    comparison.main(arguments)
    assert 4e-6 < float(table_rows(capsys.readouterr().out)[1][5]) < 1e-5


def test_several_biLMs_are_compared_one_after_the_other(
    comparison: ModuleType,
    arguments: List[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
) -> None:
    # In a shape that takes no time.
    monkeypatch.setattr(comparison, "ORIGINAL", replace(TINY_OPTIONS, cell_size=24))
    # Weights in float16 come first.
    names = ["elmo_mini", arguments[-1], "random"]
    json_file = tmp_path / "numbers.json"
    few = ["--sentences", "5", "--json", str(json_file)]
    comparison.main([*arguments[:-1], *names, *few])
    captured = capsys.readouterr()
    assert "; 5 sentences, 15 tokens\n" in captured.out
    assert "Writing random weights of the original's shape" in captured.err
    rows = table_rows(captured.out)
    assert [row[0].split(" (")[1] for row in rows[1::2]] == [
        "512 cells, projection 128)",
        "20 cells, projection 6)",
        "24 cells, projection 6)",
    ]
    assert all(float(row[5]) < 1e-5 for row in rows[1::2])
    assert list(json.loads(json_file.read_text())["bilms"]) == names


@pytest.mark.parametrize(
    "more, message",
    [
        (["--text", "nowhere.txt"], "nowhere.txt"),
        (["--text", "."], "cannot be read"),
        (["--bilm", "elmo_mini", "nowhere"], "cannot find nowhere/options.json"),
        (["--sentences", "0"], "found 0, expected at least 1"),
        (["--precisions", "float16"], "invalid choice: 'float16'"),
        (["--json", f"{__file__}/numbers.json"], "File exists"),
    ],
)
def test_wrong_arguments_are_named_before_anything_is_timed(
    more: List[str],
    message: str,
    comparison: ModuleType,
    arguments: List[str],
    capsys: pytest.CaptureFixture,
) -> None:
    with pytest.raises(SystemExit, match="2"):
        comparison.main([*arguments, *more])
    captured = capsys.readouterr()
    assert message in " ".join(captured.err.split()) and not captured.out


def test_a_biLM_that_allennlp_cannot_run_is_an_error(
    comparison: ModuleType, arguments: List[str], folder: Path
) -> None:
    options = replace(TINY_OPTIONS, use_skip_connections=False)
    BiLM(options).save(folder / "options.json", folder / "weights.hdf5")
    with pytest.raises(SystemExit, match=r"tiny: .*pretrained biLMs with residual connections"):
        comparison.main(arguments)
