"""The files of a corpus, their sentences in the order of streams, and the windows that are cut from them."""

import gzip
from collections import deque
from itertools import chain, islice, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmo_plugin.errors import ConfigurationError
from elmo_plugin.pretraining import sentence_streams
from elmo_plugin.pretraining.sentence_streams import (
    DIRECTIONS,
    count_predictions,
    cut_windows,
    find_corpus,
    marked_sentence,
    ordered_sentences,
    read_sentences,
    shuffled_sentences,
)


@st.composite
def corpora(draw):
    """Sentences of words that occur once each."""
    lengths = draw(st.lists(st.integers(1, 12), max_size=20))
    return [[f"{index}.{place}" for place in range(length)] for index, length in enumerate(lengths)]


def slow_windows(sentences, rows, unroll_steps, direction):
    """One prediction at a time: `(input, target)` pairs of each row of each window."""
    unread = deque(sentences)
    pairs_of_row = [deque() for _ in range(rows)]
    windows = []
    while True:
        window = [[] for _ in range(rows)]
        for row in range(rows):
            for _ in range(unroll_steps):
                if not pairs_of_row[row]:
                    if not unread:
                        return windows
                    words = ["<S>", *unread.popleft(), "</S>"]
                    if direction == "backward":
                        words.reverse()
                    pairs_of_row[row].extend(pairwise(words))
                window[row].append(pairs_of_row[row].popleft())
        windows.append(window)


@pytest.fixture
def corpus(tmp_path):
    """Files of 20 sentences each, whose words name their file, sentence and place."""

    def write(num_files):
        for file in range(num_files):
            lines = (
                " ".join(f"{file}.{line}.{place}" for place in range(1 + line % 4)) + "\n"
                for line in range(20)
            )
            (tmp_path / f"{file}.txt").write_text("".join(lines))
        return find_corpus(f"{tmp_path}/*.txt")

    return write


def test_files_are_plain_or_compressed_and_each_is_read_once(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "b.txt").write_text(
        "\ufeffIt  rains \t.\n\n \t\n  Łódź\u00a0sleeps . \r\n", "utf-8"
    )
    # Control characters are accepted: a large corpus has some.
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress("the \x96duels\nlast line".encode()))
    files = find_corpus(["*.txt", "*", "b.txt"])
    assert list(read_sentences(files)) == [
        ["It", "rains", "."],
        ["Łódź", "sleeps", "."],
        ["the", "\x96duels"],
        ["last", "line"],
    ]


def test_a_corpus_is_read_several_times_and_so_no_pipe():
    with pytest.raises(ConfigurationError, match="standard input can be read only once"):
        find_corpus("-")


@given(corpora(), st.integers(1, 4), st.integers(1, 6), st.sampled_from(DIRECTIONS))
def test_windows_equal_a_slow_construction(sentences, rows, unroll_steps, direction):
    windows = [
        [list(zip(*row, strict=True)) for row in zip(window.inputs, window.targets)]
        for window in cut_windows(sentences, rows, unroll_steps, direction)
    ]
    assert windows == slow_windows(sentences, rows, unroll_steps, direction)


@given(corpora(), st.integers(1, 30), st.integers(1, 6))
def test_to_the_end_every_prediction_is_made_once_and_rows_are_as_long_in_both_directions(
    sentences, rows, unroll_steps
):
    lengths = {}
    for direction in DIRECTIONS:
        windows = list(cut_windows(sentences, rows, unroll_steps, direction, to_the_end=True))
        lengths[direction] = [list(map(len, window.inputs)) for window in windows]
        pairs = []
        for window in windows:
            assert len(window.inputs) == len(window.targets) == rows
            for inputs, targets in zip(window.inputs, window.targets):
                assert len(inputs) <= unroll_steps
                pairs += zip(inputs, targets, strict=True)
        marked = [marked_sentence(words, direction) for words in sentences]
        assert sorted(pairs) == sorted(chain.from_iterable(map(pairwise, marked)))
        # Full windows are the same as without an end.
        without_end = list(cut_windows(sentences, rows, unroll_steps, direction))
        assert windows[: len(without_end)] == without_end
    assert lengths["forward"] == lengths["backward"]


def test_sentences_are_read_as_they_are_needed():
    def endless():
        while True:
            yield ["It", "rains"]

    windows = cut_windows(endless(), rows=2, unroll_steps=5, direction="forward")
    assert len(list(islice(windows, 10))) == 10


def test_files_are_read_one_after_another_in_random_order(corpus):
    orders = set()
    for epoch in range(
        100
    ):  # One of the 6 orders is missing with a probability of 6 * (5 / 6)**100.
        sentences = shuffled_sentences(corpus(3), seed=1, epoch=epoch, direction="forward")
        files = [words[0].split(".")[0] for words in sentences]
        orders.add(tuple(files[::20]))
        assert files == [file for file in files[::20] for _ in range(20)]
    assert len(orders) == 6


def test_the_order_depends_on_seed_epoch_and_direction_only(corpus):
    files = corpus(2)
    keys = [
        (seed, epoch, direction) for seed in (0, 1) for epoch in (0, 1) for direction in DIRECTIONS
    ]
    orders = [list(shuffled_sentences(files, *key)) for key in keys]
    assert all(orders[i] != orders[j] for i in range(8) for j in range(i))
    assert orders == [list(shuffled_sentences(files, *key)) for key in keys]


def test_a_large_file_is_shuffled_in_blocks(corpus, monkeypatch):
    monkeypatch.setattr(sentence_streams, "MAX_SENTENCES_IN_MEMORY", 8)
    files = corpus(1)
    sentences = list(shuffled_sentences(files, seed=1, epoch=0, direction="forward"))
    expected = list(read_sentences(files))
    for block in (slice(0, 8), slice(8, 16), slice(16, 20)):
        assert sentences[block] != expected[block]
        assert sorted(sentences[block]) == sorted(expected[block])


@pytest.mark.parametrize("num_files", [1, 3, 5])
@pytest.mark.parametrize("world_size", [1, 2, 3, 4])
def test_workers_read_different_sentences_and_together_all(corpus, num_files, world_size):
    files = corpus(num_files)
    sentences = list(read_sentences(files))
    assert list(ordered_sentences(files)) == sentences
    ordered = [list(ordered_sentences(files, rank, world_size)) for rank in range(world_size)]
    for epoch in range(2):
        for direction in DIRECTIONS:
            for rank in range(world_size):
                shuffled = shuffled_sentences(files, 1, epoch, direction, rank, world_size)
                assert sorted(shuffled) == sorted(ordered[rank])
    # Sentences are distinct, so equal lists mean that no two workers share one.
    assert sorted(chain(*ordered)) == sorted(sentences)
    assert count_predictions(files, world_size) == [
        sum(len(words) + 1 for words in of_worker) for of_worker in ordered
    ]
