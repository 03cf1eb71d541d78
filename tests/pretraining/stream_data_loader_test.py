import threading
from itertools import islice

import pytest
import torch
from allennlp.common import Params
from allennlp.data import DataLoader, Vocabulary

from elmo_plugin import batch_to_ids
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.pretraining import BiLMReader, StreamDataLoader
from elmo_plugin.pretraining.sentence_streams import (
    DIRECTIONS,
    cut_windows,
    find_corpus,
    ordered_sentences,
    shuffled_sentences,
)
from elmo_plugin.tasks.ner import NerReader

WORDS = ["It", "rains", "cats", "and", "dogs", "naïve", "日本語", "x" * 80, "."]
ROWS, STEPS = 4, 5


@pytest.fixture
def reader(tmp_path):
    path = tmp_path / "vocabulary.txt"
    # Not all the words: others are targets as <UNK>.
    path.write_text("\n".join(["<S>", "</S>", "<UNK>", *WORDS[:6]]) + "\n")
    return BiLMReader(str(path))


@pytest.fixture
def files(tmp_path):
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
def new_loader(reader, files):
    def new(**arguments):
        arguments = {"rows": ROWS, "unroll_steps": STEPS, "seed": 1, **arguments}
        return StreamDataLoader(reader, files, **arguments)

    return new


def as_lists(batches):
    return [
        {name: torch.as_tensor(value).tolist() for name, value in batch.items()}
        for batch in batches
    ]


def slow_batches(reader, sentences_of_direction, to_the_end):
    """Each batch, spelled and looked up word by word."""
    windows = [
        cut_windows(sentences, ROWS, STEPS, direction, to_the_end)
        for direction, sentences in sentences_of_direction.items()
    ]
    batches = []
    for window_of_direction in zip(*windows):
        lengths = [len(words) for words in window_of_direction[0].inputs]
        batch = {"lengths": lengths}
        for direction, window in zip(DIRECTIONS, window_of_direction):
            character_ids = torch.zeros(ROWS, max(lengths), 50, dtype=torch.long)
            targets = torch.zeros(ROWS, max(lengths), dtype=torch.long)
            for row, length in enumerate(lengths):
                for step in range(length):
                    word, target = window.inputs[row][step], window.targets[row][step]
                    character_ids[row, step] = batch_to_ids([[word]])
                    targets[row, step] = reader.vocabulary.index_of(target)
            batch[f"{direction}_inputs"] = character_ids.tolist()
            batch[f"{direction}_targets"] = targets.tolist()
        batches.append(batch)
    return batches


def threads():
    return [thread.name for thread in threading.enumerate() if "elmo_bilm" in thread.name]


def test_shuffled_batches_equal_a_slow_construction(reader, files, new_loader):
    loader = new_loader()
    for epoch in range(2):
        sentences = {
            direction: shuffled_sentences(find_corpus(files), 1, epoch, direction)
            for direction in DIRECTIONS
        }
        expected = slow_batches(reader, sentences, to_the_end=False)
        assert len(expected) > 10
        assert as_lists(loader) == expected


def test_without_shuffling_every_epoch_is_in_the_order_of_the_files(reader, files, new_loader):
    in_order = {direction: ordered_sentences(find_corpus(files)) for direction in DIRECTIONS}
    expected = slow_batches(reader, in_order, to_the_end=True)
    loader = new_loader(shuffle=False)
    assert as_lists(loader) == expected
    assert as_lists(loader) == expected


def test_epochs_differ_and_can_be_set(new_loader):
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


@pytest.mark.parametrize("rows", [1, 4, 20])
@pytest.mark.parametrize("shuffle", [True, False])
def test_the_length_is_close_to_that_of_an_epoch(new_loader, rows, shuffle):
    loader = new_loader(rows=rows, shuffle=shuffle)
    for _ in range(3):
        # A row may hold most of a sentence of 7 words when nothing is left to read.
        assert abs(len(list(loader)) - len(loader)) <= 3


def test_the_thread_ends_with_the_iteration(new_loader):
    loader = new_loader()
    assert len(list(loader)) > 10
    assert threads() == []
    batches = iter(loader)
    next(batches)
    assert len(threads()) == 1
    batches.close()
    assert threads() == []


def test_an_error_while_batches_are_made_is_raised(new_loader, files):
    loader = new_loader(shuffle=False)
    with open(files[2], "wb") as file:
        file.write(b"It\nrains \xff\n")
    with pytest.raises(ConfigurationError, match=r"train-2\.txt, line 2.*UTF-8"):
        list(loader)
    assert threads() == []


def test_it_is_built_from_a_configuration(reader, files):
    params = Params({"type": "elmo_bilm_streams", "rows": 2, "unroll_steps": 3})
    loader = DataLoader.from_params(
        params, reader=reader, data_path=files[0].replace("train-0", "train-*")
    )
    loader.index_with(Vocabulary())
    loader.set_target_device(torch.device("meta"))
    batch = next(iter(loader))
    assert {value.device.type for name, value in batch.items() if name != "lengths"} == {"meta"}


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"rows": 0}, "rows is 0, expected at least 1"),
        ({"unroll_steps": 0}, "unroll_steps is 0, expected at least 1"),
        ({"seed": -1}, "seed is -1, expected at least 0"),
    ],
)
def test_impossible_arguments_are_errors(new_loader, arguments, message):
    with pytest.raises(ConfigurationError, match=message):
        new_loader(**arguments)


def test_another_reader_is_an_error(files):
    with pytest.raises(ConfigurationError, match="expected one of type elmo_bilm"):
        StreamDataLoader(NerReader(), files[0])


@pytest.mark.parametrize(
    "text, rows, unroll_steps",
    [("It rains\n" * 10, 5, 6), ("It " * 1000 + "\n", 1, 5)],
    ids=["few words", "one long sentence"],
)
def test_a_shuffled_corpus_must_fill_a_batch(reader, tmp_path, text, rows, unroll_steps):
    path = tmp_path / "train.txt"
    path.write_text(text)
    assert list(StreamDataLoader(reader, str(path), rows, unroll_steps))
    with pytest.raises(
        ConfigurationError, match=r"found .* words .* each sentence stays in one row"
    ):
        StreamDataLoader(reader, str(path), rows + 1, unroll_steps)
    # Without shuffling, windows are padded.
    assert list(StreamDataLoader(reader, str(path), rows + 1, unroll_steps, shuffle=False))
