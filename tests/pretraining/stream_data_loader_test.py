"""The order of sentences, the windows that are cut from them, and the batches that are made of those."""

import threading
from collections import deque
from itertools import chain, islice, pairwise
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, Iterator, List

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from elmo_plugin import batch_to_ids
from elmo_plugin.embedding.sentences import SentenceSource, read_sentences
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.pretraining import BiLMReader, StreamDataLoader, stream_data_loader
from elmo_plugin.pretraining.corpus import DIRECTIONS, Direction, find_corpus
from elmo_plugin.pretraining.stream_data_loader import CorpusShare, cut_windows
from elmo_plugin.tasks.ner import NerReader
from tests.pretraining.conftest import VOCABULARY_FILE

WORDS = ["It", "rains", "cats", "and", "dogs", "naïve", "日本語", "x" * 80, "."]
ROWS, STEPS = 4, 5
# Of words that occur once each.
SENTENCES = st.lists(st.integers(1, 12), max_size=20).map(
    lambda lengths: [
        [f"{index}.{place}" for place in range(length)] for index, length in enumerate(lengths)
    ]
)


def slow_windows(
    sentences: Iterable[List[str]],
    rows: int,
    unroll_steps: int,
    direction: Direction,
    to_the_end: bool,
) -> List[Any]:
    """One prediction at a time: `(input, target)` pairs of each row of each window."""
    unread = deque(sentences)
    pairs_of_row: List[deque] = [deque() for _ in range(rows)]
    windows = []
    while True:
        window: List[List[Any]] = [[] for _ in range(rows)]
        for row in range(rows):
            for _ in range(unroll_steps):
                if unread and not pairs_of_row[row]:
                    words = ["<S>", *unread.popleft(), "</S>"]
                    pairs_of_row[row].extend(
                        pairwise(words[::-1] if direction == "backward" else words)
                    )
                if pairs_of_row[row]:
                    window[row].append(pairs_of_row[row].popleft())
        is_full = all(len(pairs) == unroll_steps for pairs in window)
        if not is_full and not (to_the_end and any(window)):
            return windows
        windows.append(window)


class TestWindows:
    @given(SENTENCES, st.integers(1, 30), st.integers(1, 6), st.booleans())
    def test_they_equal_a_slow_construction_and_directions_have_equal_rows(
        self, sentences: Any, rows: int, unroll_steps: int, to_the_end: bool
    ) -> None:
        lengths = []
        for direction in DIRECTIONS:
            arguments = sentences, rows, unroll_steps, direction, to_the_end
            windows = [
                [list(zip(*row, strict=True)) for row in zip(*window, strict=True)]
                for window in cut_windows(*arguments)
            ]
            assert windows == slow_windows(*arguments)
            lengths.append([list(map(len, window)) for window in windows])
        assert lengths[0] == lengths[1]

    def test_sentences_are_read_as_they_are_needed(self) -> None:
        def endless() -> Iterator[List[str]]:
            while True:
                yield ["It", "rains"]

        windows = cut_windows(endless(), rows=2, unroll_steps=5, direction="forward")
        assert len(list(islice(windows, 10))) == 10


@pytest.fixture
def corpus(tmp_path: Path) -> Callable[[int], List[SentenceSource]]:
    """Files of 20 sentences each, whose words name their file, sentence and place."""

    def write(num_files: int) -> List[SentenceSource]:
        for file in range(num_files):
            lines = (
                " ".join(f"{file}.{line}.{place}" for place in range(1 + line % 4)) + "\n"
                for line in range(20)
            )
            (tmp_path / f"{file}.txt").write_text("".join(lines))
        return find_corpus(f"{tmp_path}/*.txt")

    return write


class TestOrder:
    def test_files_are_read_one_after_another_in_random_order(self, corpus: Any) -> None:
        orders = set()
        # One of the 6 orders is missing with a probability of 6 * (5 / 6)**100.
        for epoch in range(100):
            sentences = CorpusShare(corpus(3)).shuffled(1, epoch, "forward")
            files = [words[0].split(".")[0] for words in sentences]
            orders.add(tuple(files[::20]))
            assert files == [file for file in files[::20] for _ in range(20)]
        assert len(orders) == 6

    def test_it_depends_on_seed_epoch_and_direction(self, corpus: Any) -> None:
        share = CorpusShare(corpus(2))
        keys = [(seed, epoch, way) for seed in (0, 1) for epoch in (0, 1) for way in DIRECTIONS]
        orders = [list(share.shuffled(*key)) for key in keys]
        assert all(orders[i] != orders[j] for i in range(8) for j in range(i))
        assert orders == [list(share.shuffled(*key)) for key in keys]

    def test_a_large_file_is_shuffled_in_blocks(
        self, corpus: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(stream_data_loader, "MAX_SENTENCES_IN_MEMORY", 8)
        files = corpus(1)
        sentences = list(CorpusShare(files).shuffled(1, 0, "forward"))
        expected = list(read_sentences(files))
        assert sentences != expected
        for block in (slice(0, 8), slice(8, 16), slice(16, 20)):
            assert sorted(sentences[block]) == sorted(expected[block])

    @pytest.mark.parametrize("num_files", [1, 3, 5])
    @pytest.mark.parametrize("world_size", [1, 2, 3, 4])
    def test_workers_read_different_sentences_and_together_all(
        self, corpus: Any, num_files: int, world_size: int
    ) -> None:
        files = corpus(num_files)
        sentences = list(read_sentences(files))
        assert list(CorpusShare(files).ordered()) == sentences
        shares = [CorpusShare(files, rank, world_size) for rank in range(world_size)]
        for share in shares:
            for epoch in range(2):
                for direction in DIRECTIONS:
                    shuffled = share.shuffled(1, epoch, direction)
                    assert sorted(shuffled) == sorted(share.ordered())
            num_shared = len(list(share.ordered()))
            # Of each file, at most one more or fewer than others read.
            assert abs(num_shared - len(sentences) / world_size) < num_files
        # Sentences are distinct, so equal lists mean that no two workers share one.
        assert sorted(chain(*(share.ordered() for share in shares))) == sorted(sentences)


def test_workers_share_many_files_of_one_sentence(tmp_path: Path) -> None:
    for number in range(8):
        (tmp_path / f"{number}.txt").write_text(f"sentence {number}\n")
    shares = [CorpusShare(find_corpus(f"{tmp_path}/*.txt"), rank, 4) for rank in range(4)]
    assert [len(list(share.ordered())) for share in shares] == [2, 2, 2, 2]


@pytest.fixture
def reader(tmp_path: Path) -> BiLMReader:
    path = tmp_path / "vocabulary.txt"
    # Not all the words: others are targets as <UNK>.
    path.write_text("\n".join(["<S>", "</S>", "<UNK>", *WORDS[:6]]) + "\n")
    return BiLMReader(str(path))


@pytest.fixture
def files(tmp_path: Path) -> List[str]:
    """Three files of 30 sentences, 1 to 7 words long."""
    paths = [tmp_path / f"train-{file}.txt" for file in range(3)]
    for file, path in enumerate(paths):
        lines = (
            " ".join(WORDS[(file + line + place) % 9] for place in range(1 + line % 7))
            for line in range(30)
        )
        path.write_text("\n".join(lines) + "\n")
    return [str(path) for path in paths]


@pytest.fixture
def new_loader(reader: BiLMReader, files: List[str]) -> Callable[..., StreamDataLoader]:
    def new(**arguments: Any) -> StreamDataLoader:
        arguments = {"rows": ROWS, "unroll_steps": STEPS, "seed": 1, **arguments}
        return StreamDataLoader(reader, files, **arguments)

    return new


def as_lists(batches: Iterable[Dict[str, Any]]) -> List[Dict[str, Any]]:
    return [
        {name: torch.as_tensor(value).tolist() for name, value in batch.items()}
        for batch in batches
    ]


def slow_batches(
    reader: BiLMReader, sentences_of_direction: Dict[Direction, Any], to_the_end: bool
) -> List[Dict[str, Any]]:
    """Each batch, looked up word by word."""
    windows = [
        cut_windows(sentences, ROWS, STEPS, direction, to_the_end)
        for direction, sentences in sentences_of_direction.items()
    ]
    batches = []
    for window_of_direction in zip(*windows):
        lengths = [len(words) for words in window_of_direction[0].inputs]
        batch: Dict[str, Any] = {"lengths": lengths}
        for direction, window in zip(DIRECTIONS, window_of_direction):
            batch[f"{direction}_inputs"] = batch_to_ids(window.inputs).tolist()
            rows = [[reader.vocabulary.index_of(word) for word in row] for row in window.targets]
            targets = [row + [0] * (max(lengths) - len(row)) for row in rows]
            batch[f"{direction}_targets"] = targets
        batches.append(batch)
    return batches


def threads() -> List[str]:
    return [thread.name for thread in threading.enumerate() if "elmo_bilm" in thread.name]


class TestBatches:
    @pytest.mark.parametrize("shuffle", [True, False])
    def test_each_epoch_equals_a_slow_construction(
        self, reader: BiLMReader, files: List[str], new_loader: Any, shuffle: bool
    ) -> None:
        loader = new_loader(shuffle=shuffle)
        share = CorpusShare(find_corpus(files))
        for epoch in range(2):
            sentences = {
                direction: share.shuffled(1, epoch, direction) if shuffle else share.ordered()
                for direction in DIRECTIONS
            }
            expected = slow_batches(reader, sentences, to_the_end=not shuffle)
            assert len(expected) > 10
            assert as_lists(loader) == expected

    def test_epochs_differ_and_can_be_set(self, new_loader: Any) -> None:
        loader = new_loader()
        epochs = [as_lists(loader) for _ in range(3)]
        assert loader.epoch == 3
        assert epochs[0] != epochs[1] != epochs[2] != epochs[0]
        assert as_lists(new_loader(seed=2)) != epochs[0]
        loader.epoch = 1
        assert as_lists(loader) == epochs[1]
        # As `--recover` does: an interrupted epoch counts, and so do batches that are skipped.
        recovered = new_loader()
        next(iter(recovered))
        assert as_lists(islice(recovered, 7, None)) == epochs[1][7:]

    def test_no_tensors_are_made_for_batches_that_are_skipped(self, new_loader: Any) -> None:
        expected = as_lists(new_loader())
        loader = new_loader()
        loader.first_batch = (1, 7)
        assert as_lists(loader) == [{}] * len(expected)
        whole = new_loader()
        whole.epoch = 1
        assert as_lists(loader) == [{}] * 7 + as_lists(whole)[7:]
        assert {} not in as_lists(loader)

    @pytest.mark.parametrize("rows", [1, 4, 20])
    @pytest.mark.parametrize("shuffle", [True, False])
    def test_the_length_is_close_to_that_of_an_epoch(
        self, new_loader: Any, rows: int, shuffle: bool
    ) -> None:
        loader = new_loader(rows=rows, shuffle=shuffle)
        for _ in range(3):
            # A row may hold most of a sentence of 7 words when nothing is left to read.
            assert abs(len(list(loader)) - len(loader)) <= 3

    def test_epochs_of_a_given_length_are_the_beginnings_of_whole_ones(
        self, new_loader: Any
    ) -> None:
        whole, shorter = new_loader(), new_loader(batches_per_epoch=3)
        assert len(shorter) == 3
        for _ in range(2):
            batches = list(shorter)
            assert len(batches) == 3
            for ours, theirs in zip(batches, whole):
                assert torch.equal(ours["backward_targets"], theirs["backward_targets"])
        assert len(new_loader(batches_per_epoch=10**6)) == len(whole)
        with pytest.raises(ConfigurationError, match="batches_per_epoch is 0, expected a positive"):
            new_loader(batches_per_epoch=0)

    def test_the_thread_ends_with_the_iteration(self, new_loader: Any, files: List[str]) -> None:
        loader = new_loader(shuffle=False)
        assert len(list(loader)) > 10
        assert threads() == []
        batches = iter(loader)
        next(batches)
        assert len(threads()) == 1
        batches.close()
        assert threads() == []
        # And with an error.
        Path(files[2]).write_bytes(b"It\nrains \xff\n")
        with pytest.raises(ConfigurationError, match=r"train-2\.txt, line 2.*UTF-8"):
            list(loader)
        assert threads() == []

    def test_they_are_moved_to_the_device_of_training(self, new_loader: Any) -> None:
        loader = new_loader()
        loader.set_target_device(torch.device("meta"))
        batch = next(iter(loader))
        devices = {value.device.type for name, value in batch.items() if name != "lengths"}
        assert devices == {"meta"}


def test_another_reader_and_impossible_sizes_are_errors(files: List[str], new_loader: Any) -> None:
    with pytest.raises(ConfigurationError, match="expected one of type elmo_bilm"):
        StreamDataLoader(NerReader(), files[0])
    limited = BiLMReader(VOCABULARY_FILE, max_instances=3)
    with pytest.raises(ConfigurationError, match=r"max_instances is given, and .* every sentence"):
        StreamDataLoader(limited, files[0])
    for name in ("rows", "unroll_steps"):
        with pytest.raises(ConfigurationError, match=f"{name} is 0.*, expected a positive"):
            new_loader(**{name: 0})


@pytest.mark.parametrize(
    "text, rows, unroll_steps",
    [("It rains\n" * 10, 5, 6), ("It " * 1000 + "\n", 1, 5)],
    ids=["few words", "one long sentence"],
)
def test_a_shuffled_corpus_must_fill_a_batch(
    reader: BiLMReader, tmp_path: Path, text: str, rows: int, unroll_steps: int
) -> None:
    path = tmp_path / "train.txt"
    path.write_text(text)
    assert list(StreamDataLoader(reader, str(path), rows, unroll_steps))
    message = r"found .* words .* each sentence stays in one row"
    with pytest.raises(ConfigurationError, match=message):
        StreamDataLoader(reader, str(path), rows + 1, unroll_steps)
    # Without shuffling, windows are padded.
    assert list(StreamDataLoader(reader, str(path), rows + 1, unroll_steps, shuffle=False))
