import json
import os
import re
from pathlib import Path
from typing import Any, Callable, Dict, List, Tuple

import pytest

from elmo_plugin import SentenceScorer
from elmo_plugin.commands.main import main
from elmo_plugin.embedding.scoring import ScoreTotals
from elmo_plugin.errors import ConfigurationError
from tests.closeness import DOCUMENTED_ACCURACY
from tests.embedding.scoring_test import model_folder, scorer

__all__ = ["model_folder", "scorer"]  # fixtures

LINES = ["It was qwertyish .", "He said : it was ___", "It"]

Run = Callable[..., Tuple[str, str]]


@pytest.fixture
def run(folder: Path, model_folder: Path, capsys: Any) -> Run:
    """Runs the command with a tiny biLM on `in.txt`, and gives what it printed on stdout and stderr."""

    def run(*arguments: str, source: str = "in.txt") -> Tuple[str, str]:
        capsys.readouterr()
        main(["score", source, "--model", str(model_folder), "--debug", *arguments])
        captured = capsys.readouterr()
        return captured.out, captured.err

    return run


def parsed(text: str) -> List[Dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def printed(number: float) -> Any:
    """
    Return what equals the number as it is printed, with two digits: half of the last one is rounded. The
    accuracy of sums of logarithms is that of a perplexity in relation to its size.
    """
    accuracy = DOCUMENTED_ACCURACY * max(1.0, abs(number))
    return pytest.approx(number, rel=0, abs=0.005 + accuracy)


def test_the_table_has_a_row_for_each_sentence_and_a_summary(
    run: Run, scorer: SentenceScorer
) -> None:
    output, _ = run()
    header, *rows, summary = output.splitlines()
    assert header.split() == ["perplexity", "forward", "backward", "unknown", "sentence"]
    totals = ScoreTotals()
    for row, line in zip(rows, LINES):
        score = scorer.score_sentence(line.split())
        totals.add(score)
        perplexity, forward, backward, num_unknown, *tokens = row.split()
        assert float(perplexity) == printed(score.perplexities()["perplexity"])
        assert float(forward) == printed(score.forward.sum())
        assert float(backward) == printed(score.backward.sum())
        assert int(num_unknown) == score.num_unknown
        assert " ".join(tokens) == line
    expected = totals.perplexities()
    assert summary.startswith(f"3 sentences, 11 words, {totals.num_unknown} of them unknown: perp")
    numbers = [float(number.replace(",", "")) for number in re.findall(r"[\d,]+\.\d\d", summary)]
    names = ("perplexity", "forward_perplexity", "backward_perplexity", "bilm_tf_perplexity")
    assert numbers == [printed(expected[name]) for name in names]


def test_words_follow_their_sentence(run: Run, scorer: SentenceScorer) -> None:
    rows = run("--words")[0].splitlines()[1:]
    score = scorer.score_sentence(LINES[0].split())
    for row, token, forward, backward in zip(rows[1:], score.tokens, score.forward, score.backward):
        unknown = " 1" if token == "qwertyish" else ""
        assert row.split() == f"{forward:.2f} {backward:.2f}{unknown} {token}".split()
    assert rows[5].split() == [f"{score.forward[-1]:.2f}", "</S>"]
    assert rows[6].split() == [f"{score.backward[-1]:.2f}", "<S>"]
    # In the columns of the sentences.
    assert rows[1].index(f"{score.backward[0]:.2f}") + 4 < rows[0].index("It")
    assert rows[1].index("It") == rows[0].index("It") + 2


def test_a_file_has_the_same_as_json_lines(run: Run, scorer: SentenceScorer) -> None:
    output, _ = run("--words", "--output", "scores.jsonl")
    (summary,) = output.splitlines()
    assert summary.startswith("3 sentences, 11 words, ")
    found = parsed(Path("scores.jsonl").read_text(encoding="utf-8"))
    assert [content["line"] for content in found] == [1, 2, 3]
    for content, line in zip(found, LINES, strict=True):
        expected = scorer.score_sentence(line.split()).as_json(with_words=True)
        assert content.keys() == {"line", *expected}
        assert content["tokens"] == [word["word"] for word in content["words"]] == line.split()
        for word, other in zip(content["words"], expected["words"], strict=True):
            assert word == pytest.approx(other, rel=0, abs=DOCUMENTED_ACCURACY)
    run("--output", "short.jsonl")
    assert all("words" not in content for content in parsed(Path("short.jsonl").read_text()))


def test_json_lines_on_standard_output_are_nothing_else(run: Run) -> None:
    Path("gaps.txt").write_text("It\n\nwas\n")
    output, errors = run("--output", "-", "--skip-blank", source="gaps.txt")
    assert [content["line"] for content in parsed(output)] == [1, 3]
    assert "2 sentences, 2 words, " in errors


def test_the_best_words_for_each_blank_come_with_their_probabilities(
    run: Run, scorer: SentenceScorer
) -> None:
    Path("blanks.txt").write_text("It was ___ .\n___ said it\n")
    output, _ = run("--best", "3", source="blanks.txt")
    header, *lines = output.splitlines()
    assert header.split() == ["probability", "forward", "backward", "word"]
    assert [lines[0], lines[4]] == ["It was ___ .", "___ said it"]
    for line, word in zip(lines[1:4], scorer.best_words(["It", "was", "___", "."], 3)):
        expected = f"{word.probability:.4f} {word.forward:.2f} {word.backward:.2f} {word.word}"
        assert line.split() == expected.split()
    assert len(lines) == 8


def test_a_line_without_a_blank_is_named_and_nothing_is_written(run: Run) -> None:
    with pytest.raises(ConfigurationError, match=r"in\.txt, line 1: found 0 blanks, expected one"):
        run("--best", "2", "--output", "best.jsonl")
    assert os.listdir() == ["in.txt"]


def test_an_invalid_sentence_leaves_the_previous_output(run: Run) -> None:
    run("--output", "scores.jsonl")
    before = Path("scores.jsonl").read_text()
    Path("broken.txt").write_text("It was\n\nIt\n")
    with pytest.raises(ValueError, match=r"broken\.txt: line 2 is blank"):
        run("--output", "scores.jsonl", "--overwrite", source="broken.txt")
    assert Path("scores.jsonl").read_text() == before
    run("--output", "scores.jsonl", "--overwrite", "--batch-size", "1")
    assert len(parsed(Path("scores.jsonl").read_text())) == 3
