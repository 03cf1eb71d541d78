import os
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmo_plugin.errors import ConfigurationError
from elmo_plugin.pretraining import make_vocabulary as module
from elmo_plugin.pretraining.make_vocabulary import make_vocabulary
from tests.conftest import vocabulary_words


def test_words_are_sorted_by_count_then_by_code_point(corpus):
    make_vocabulary([corpus], "vocab.txt")
    expected = b"<S>\n</S>\n<UNK>\nthe\na\nb\nz\n\xc3\xa9\n"
    assert Path("vocab.txt").read_bytes() == expected


def test_the_summary_has_the_counts(corpus):
    summary = make_vocabulary([corpus], "vocab.txt", min_count=2, max_size=5)
    assert summary == (2, 4, 10, 5, 2, 6)
    *_, entries, coverage = str(summary).splitlines()
    assert entries.split("  ")[0] == "entries, with <S>, </S>, <UNK>"
    assert coverage.split() == ["coverage", "of", "the", "tokens", "60.00%"]


@given(
    sentences=st.lists(
        st.lists(st.sampled_from(["a", "b", "日", "ß", "<unk>", "''", "<S>", "<UNK>"]), min_size=1),
        min_size=1,
    ),
    min_count=st.integers(1, 3),
    max_size=st.none() | st.integers(4, 8),
)
def test_the_file_equals_that_of_a_slow_count(tmp_path_factory, sentences, min_count, max_size):
    folder = tmp_path_factory.mktemp("corpus")
    text = "".join(" ".join(sentence) + "\n" for sentence in sentences)
    (folder / "a.txt").write_text(text, encoding="utf-8")
    counts = Counter(text.split())
    # Special words of the corpus are tokens, but not listed again.
    expected = sorted(
        word for word in counts if counts[word] >= min_count and word not in ("<S>", "<UNK>")
    )
    expected.sort(key=lambda word: -counts[word])
    if max_size is not None:
        expected = expected[: max_size - 3]
    arguments = ([str(folder / "a.txt")], folder / "vocab.txt", min_count, max_size)
    if not expected:
        with pytest.raises(ConfigurationError, match="--min-count: no word of the corpus occurs"):
            make_vocabulary(*arguments)
        return
    summary = make_vocabulary(*arguments)
    assert vocabulary_words(folder / "vocab.txt") == expected
    assert summary.num_tokens == counts.total()
    assert summary.num_kept_tokens == sum(counts[word] for word in expected)


def test_an_interrupt_during_reading_leaves_nothing(corpus, monkeypatch):
    files = set(os.listdir())

    def sentences(files):
        yield ["the"]
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "read_sentences", sentences)
    with pytest.raises(KeyboardInterrupt):
        make_vocabulary([corpus], "vocab.txt")
    assert set(os.listdir()) == files


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"min_count": 0}, "--min-count: found 0, expected at least 1"),
        ({"max_size": 3}, "--max-size: found 3, expected at least 4"),
        ({"output": "old.txt"}, r"--output: old\.txt exists.*--overwrite"),
        ({"output": "missing/vocab.txt"}, "--output: there is no folder missing to write"),
        ({"output": ".", "overwrite": True}, r"--output: \. is a folder, expected a file"),
        ({"output": "1.txt", "overwrite": True}, r"--output: 1\.txt is a file of the corpus"),
    ],
)
def test_wrong_arguments_are_refused_before_the_corpus_is_read(
    corpus, monkeypatch, arguments, message
):
    def read_sentences(files):
        raise AssertionError("the corpus was read")

    Path("old.txt").write_text("previous")
    monkeypatch.setattr(module, "read_sentences", read_sentences)
    with pytest.raises(ConfigurationError, match=message):
        make_vocabulary([corpus], **{"output": "vocab.txt", **arguments})
    assert Path("old.txt").read_text() == "previous"
