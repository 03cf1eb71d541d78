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
    assert captured.out.splitlines()[-1].split() == [
        "coverage",
        "of",
        "the",
        "tokens",
        "100.00%",
    ]
    assert "counting words" in captured.err
    assert "4 sentences" in captured.err


def test_min_count_and_max_size(run, corpus):
    run(corpus, "--output", "frequent.txt", "--min-count", "2")
    assert vocabulary_words("frequent.txt") == ["the", "a", "b"]
    run(corpus, "--output", "few.txt", "--max-size", "4")
    assert vocabulary_words("few.txt") == ["the"]


def test_overwrite_replaces_the_file(run, corpus, capsys):
    Path("vocab.txt").write_text("former")
    with pytest.raises(SystemExit, match="2"):
        run(corpus, "--output", "vocab.txt")
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("allennlp elmo-vocab: error: ") and "exists" in line
    run(corpus, "--output", "vocab.txt", "--overwrite")
    assert vocabulary_words() == ["the", "a", "b", "z", "é"]


def test_the_help_has_examples(run, capsys):
    with pytest.raises(SystemExit, match="0"):
        run("--help")
    text = " ".join(capsys.readouterr().out.split())
    assert "--min-count 3 --max-size 100000" in text
    assert "fewer than N times (default: 1)" in text
    assert "(default: no limit)" in text


def test_the_output_must_be_named(run, corpus, capsys):
    with pytest.raises(SystemExit, match="2"):
        run(corpus)
    assert "--output" in capsys.readouterr().err
