"""`allennlp elmo-vocab`, as users call it."""

import sys
from pathlib import Path

import pytest
from allennlp.commands import main

from tests.conftest import vocabulary_words


@pytest.fixture
def run(corpus, monkeypatch):
    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["allennlp", "elmo-vocab", *arguments])
        main()

    return run


def test_corpus_and_output_are_enough(run, capsys):
    run("1.txt", "2.txt.gz", "--output", "vocab.txt")
    assert vocabulary_words() == ["the", "a", "b", "z", "é"]
    captured = capsys.readouterr()
    last_line = captured.out.splitlines()[-1]
    assert last_line.split() == ["coverage", "of", "the", "tokens", "100.00%"]
    assert "counting words" in captured.err
    assert "4 sentences" in captured.err


def test_min_count_and_max_size(run, corpus):
    run(corpus, "--output", "frequent.txt", "--min-count", "2")
    assert vocabulary_words("frequent.txt") == ["the", "a", "b"]
    run(corpus, "--output", "few.txt", "--max-size", "4")
    assert vocabulary_words("few.txt") == ["the"]


def test_overwrite_replaces_the_file(run, corpus):
    Path("vocab.txt").write_text("previous")
    run(corpus, "--output", "vocab.txt", "--overwrite")
    assert vocabulary_words() == ["the", "a", "b", "z", "é"]
