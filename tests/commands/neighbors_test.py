"""`elmo neighbors`: what it prints."""

import re
from pathlib import Path
from typing import Any, Callable, List

import numpy
import pytest

from elmo_plugin import ElmoEmbedder
from elmo_plugin.commands.main import main
from elmo_plugin.embedding.layers import POOLS, cosine_similarities
from elmo_plugin.errors import ConfigurationError
from tests.closeness import DOCUMENTED_ACCURACY
from tests.conftest import BiLMFiles

LINES = [
    "a play by him",
    "",
    "they play and play",
    "nothing here",
    "Play on",
    "the cost is to play",
    "a play by him",
]

Run = Callable[..., str]


@pytest.fixture
def run(folder: Path, bilm_files: BiLMFiles, capsys: Any) -> Run:
    """Runs the command with the tiny biLM, and gives what it printed."""

    def run(*arguments: str, word: str = "play", skip_blank: bool = True) -> str:
        capsys.readouterr()
        arguments = (*arguments, *["--skip-blank"] * skip_blank)
        files = ["--options-file", bilm_files.options_file, "--weight-file", bilm_files.weight_file]
        words = [] if "--pool" in arguments else ["--word", word]
        main(["neighbors", "in.txt", "--debug", *files, *words, *arguments])
        return str(capsys.readouterr().out)

    return run


def rows(output: str) -> List[List[str]]:
    """Similarity, line number and sentence of each row."""
    pattern = re.compile(r"^ +(-?\d\.\d{3})  line (\d+) +(.+)$", re.MULTILINE)
    return [list(match) for match in pattern.findall(output)]


def line_numbers(output: str) -> List[int]:
    return sorted(int(line) for _, line, _ in rows(output))


@pytest.mark.parametrize("pool", POOLS)
def test_the_nearest_sentences_are_those_of_the_embedders_vectors(
    run: Run, bilm_files: BiLMFiles, pool: str
) -> None:
    output = run("--pool", pool, "--sentence", "a play by her", "--layer", "1")
    assert output.startswith("in.txt: 6 sentences\n\nsentence 1: a play by her\n")
    texts = [line for line in LINES if line]
    batch = [line.split() for line in ("a play by her", *texts)]
    vectors = numpy.stack(
        [layers[1] for layers in ElmoEmbedder(*bilm_files).embed_batch(batch, pool)]
    )
    similarities = cosine_similarities(vectors[:1], vectors[1:])[0]
    found = rows(output)
    # Printed with three digits: half of the last one is rounded.
    assert [float(similarity) for similarity, _, _ in found] == pytest.approx(
        sorted(similarities, reverse=True), rel=0, abs=0.0005 + DOCUMENTED_ACCURACY
    )
    assert {text for _, _, text in found} == set(texts)
    assert all(text == LINES[int(line) - 1] for _, line, text in found)


def test_neighbors_of_each_sentence_are_printed_the_nearest_first(run: Run) -> None:
    output = run("--sentence", "a play by her", "--sentence", "we play , they play")
    assert output.startswith("play: 5 occurrences\n")
    first, second = output.split("\nsentence ")[1:]
    assert first.startswith("1: a **play** by her\n")
    assert second.startswith("2: we **play** , they play\n")  # the first of two
    for part in (first, second):
        similarities = [float(similarity) for similarity, _, _ in rows(part)]
        assert similarities == sorted(similarities, reverse=True)
        assert line_numbers(part) == [1, 3, 3, 6, 7]  # counted from 1, with the blank line
        # Equally near ones are in the order of the text.
        equals = [line for _, line, sentence in rows(part) if sentence == "a **play** by him"]
        assert equals == ["1", "7"]
    assert "they play and **play**" in first


def test_a_sentence_of_the_text_is_not_its_own_neighbor(run: Run) -> None:
    assert line_numbers(run("--sentence", "a play by him")) == [3, 3, 6]
    assert line_numbers(run("--pool", "mean", "--sentence", "a play by him")) == [3, 4, 5, 6]
    output = run("--sentence", "Play on", word="Play")
    assert output.startswith("Play: 1 occurrence\n")
    assert "no other occurrence" in output


def test_a_blank_line_is_an_error_as_in_other_commands(run: Run) -> None:
    with pytest.raises(ConfigurationError, match=r"in\.txt: line 2 is blank.*--skip-blank"):
        run("--sentence", "a play", skip_blank=False)


@pytest.mark.parametrize("sentence", ["bank \udcff x", " "])
def test_a_sentence_without_words_in_utf8_is_one_error(run: Run, sentence: str) -> None:
    with pytest.raises(ConfigurationError, match=r"--sentence '.*' has no words in UTF-8"):
        run("--sentence", sentence)


def test_raw_text_and_the_sentence_are_split_by_the_tokenizer(run: Run) -> None:
    Path("in.txt").write_text("We saw a play.\nThey play.\n")
    output = run("--sentence", "A play.", "--tokenizer", "spacy")
    assert "sentence 1: A **play** ." in output
    assert line_numbers(output) == [1, 2]


def test_top_and_ignore_case(run: Run) -> None:
    everything = rows(run("--sentence", "a play"))
    assert rows(run("--sentence", "a play", "--top", "2")) == everything[:2]
    output = run("--sentence", "A PLAY", "--ignore-case", word="PLAY")
    assert "**PLAY**" in output
    assert "line 5       **Play** on" in output


def test_max_occurrences_takes_a_sample(run: Run) -> None:
    Path("in.txt").write_text("".join(f"{number} play\n" for number in range(30)))
    output = run("--sentence", "a play", "--max-occurrences", "4")
    assert output.startswith("play: 30 occurrences, of which 4 are compared, a random sample")
    assert len(rows(output)) == 4


@pytest.mark.parametrize("layer", ["3", "-2", "top", "²"])
def test_a_layer_that_is_not_there_is_named(run: Run, layer: str) -> None:
    match = rf"--layer: found {layer}, .*0.* to 2 \(the last layer of this biLM\).*, or average"
    with pytest.raises(ConfigurationError, match=match):
        run("--sentence", "a play", "--layer", layer)
