import threading
from itertools import islice

import pytest
import torch
from allennlp.common import Params
from allennlp.data import DataLoader, Vocabulary

from elmo_plugin import batch_to_ids
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.pretraining import BiLMReader, StreamDataLoader, stream_data_loader
from elmo_plugin.pretraining.sentence_streams import (
    SentenceStreams,
    ordered_sentences,
    shuffled_sentences,
)
from elmo_plugin.tasks.ner import NerReader

WORDS = ["It", "rains", "cats", "and", "dogs", "naïve", "日本語", "x" * 80, "."]
DIRECTIONS = ["forward", "backward"]


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
    return paths


@pytest.fixture
def new_loader(reader, files):
    def new(**arguments):
        arguments = {"rows": 4, "unroll_steps": 5, "seed": 1, **arguments}
        return StreamDataLoader(reader, [str(path) for path in files], **arguments)

    return new


def tensors(batch):
    return {name: value for name, value in batch.items() if isinstance(value, torch.Tensor)}


def as_lists(batches):
    return [{name: tensor.tolist() for name, tensor in tensors(batch).items()} for batch in batches]


def slow_batches(reader, sentences_of_direction, rows, unroll_steps, to_the_end=False):
    """Each batch spelled and looked up word by word."""
    windows = {
        direction: list(SentenceStreams(sentences, rows, unroll_steps, direction, to_the_end))
        for direction, sentences in sentences_of_direction.items()
    }
    batches = []
    for number in range(min(map(len, windows.values()))):
        batch = {}
        for direction in DIRECTIONS:
            inputs, targets = (
                [words[row * unroll_steps : (row + 1) * unroll_steps] for row in range(rows)]
                for words in windows[direction][number][:2]
            )
            character_ids = batch_to_ids(inputs)
            for row, words in enumerate(inputs):
                character_ids[row, len(words) - words.count("") :] = 0
            batch[f"{direction}_inputs"] = character_ids.tolist()
            batch[f"{direction}_targets"] = [
                [reader.vocabulary.index_of(word) if word else 0 for word in row] for row in targets
            ]
        batches.append(batch)
    return batches


def threads():
    return [thread.name for thread in threading.enumerate() if "elmo_bilm" in thread.name]


def test_shuffled_batches_equal_a_slow_construction(reader, files, new_loader):
    loader = new_loader()
    for epoch in range(2):
        sentences = {
            direction: list(shuffled_sentences(files, 1, epoch, direction))
            for direction in DIRECTIONS
        }
        expected = slow_batches(reader, sentences, rows=4, unroll_steps=5)
        assert len(expected) > 10
        assert as_lists(loader) == expected


def test_without_shuffling_every_epoch_is_in_the_order_of_the_files(reader, files, new_loader):
    sentences = list(ordered_sentences(files))
    in_order = dict.fromkeys(DIRECTIONS, sentences)
    expected = slow_batches(reader, in_order, rows=4, unroll_steps=5, to_the_end=True)
    loader = new_loader(shuffle=False)
    assert len(loader) == len(expected)
    assert as_lists(loader) == expected
    assert as_lists(loader) == expected


def test_a_full_word_table_changes_nothing(new_loader, monkeypatch):
    expected = as_lists(new_loader(rows=1))
    # It then holds the five words of a window, and is emptied at nearly every one.
    monkeypatch.setattr(stream_data_loader, "WORD_TABLE_SIZE", 1)
    assert as_lists(new_loader(rows=1)) == expected


def test_types_and_shapes(new_loader):
    batch = next(iter(new_loader()))
    assert {
        name: (tensor.dtype, tuple(tensor.shape)) for name, tensor in tensors(batch).items()
    } == {
        "forward_inputs": (torch.int16, (4, 5, 50)),
        "forward_targets": (torch.int64, (4, 5)),
        "backward_inputs": (torch.int16, (4, 5, 50)),
        "backward_targets": (torch.int64, (4, 5)),
    }


def test_epochs_differ_and_can_be_set(new_loader):
    loader = new_loader()
    epochs = [as_lists(loader) for _ in range(3)]
    assert loader.epoch == 3
    assert epochs[0] != epochs[1] != epochs[2] != epochs[0]
    assert as_lists(new_loader(seed=2)) != epochs[0]
    loader.epoch = 1
    assert as_lists(loader) == epochs[1]
    # As `--recover` does: an interrupted epoch counts, and so do batches that are skipped.
    recovered = new_loader(prefetch=1)
    next(iter(recovered))
    assert as_lists(islice(recovered, 7, None)) == epochs[1][7:]


@pytest.mark.parametrize("rows", [1, 4, 20])
def test_the_length_is_that_of_an_epoch_or_little_more(new_loader, rows):
    loader = new_loader(rows=rows)
    for _ in range(3):
        num_batches = len(list(loader))
        # A row may hold most of a sentence of 7 words when nothing is left to read.
        assert num_batches <= len(loader) <= num_batches + 3


def test_threads_end_with_the_iteration(new_loader):
    loader = new_loader(prefetch=2)
    assert len(list(loader)) > 10
    assert threads() == []
    batches = iter(loader)
    next(batches)
    assert len(threads()) == 1
    batches.close()
    assert threads() == []
    for _ in islice(loader, 3):
        pass
    assert threads() == []


def test_what_goes_wrong_while_batches_are_made_is_raised(new_loader, files):
    loader = new_loader(shuffle=False)
    files[2].write_bytes(b"It\nrains \xff\n")
    with pytest.raises(ConfigurationError, match=r"train-2\.txt, line 2.*UTF-8"):
        list(loader)
    assert threads() == []


def test_it_is_built_from_a_configuration(reader, files):
    params = Params({"type": "elmo_bilm_streams", "rows": 2, "unroll_steps": 3})
    loader = DataLoader.from_params(
        params, reader=reader, data_path=str(files[0].with_name("train-*.txt"))
    )
    loader.index_with(Vocabulary())
    loader.set_target_device(torch.device("meta"))
    batch = next(iter(loader))
    assert {tensor.device.type for tensor in tensors(batch).values()} == {"meta"}


@pytest.mark.parametrize("shuffle", [True, False])
def test_distributed_workers_read_different_sentences(reader, files, monkeypatch, shuffle):
    # Every word once, so that words identify sentences.
    for file, path in enumerate(files):
        path.write_text("".join(f"{file}.{line}.a {file}.{line}.b\n" for line in range(30 + file)))
    monkeypatch.setattr(stream_data_loader, "is_distributed", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    lengths, num_batches, words = [], [], []
    for rank in range(2):
        monkeypatch.setattr(torch.distributed, "get_rank", lambda rank=rank: rank)
        loader = StreamDataLoader(
            reader, [str(path) for path in files], rows=2, unroll_steps=3, shuffle=shuffle
        )
        lengths.append(len(loader))
        words.append({"forward": set(), "backward": set()})
        num_batches.append(0)
        for batch in loader:
            num_batches[rank] += 1
            for direction in DIRECTIONS:
                inputs = batch[f"{direction}_inputs"].flatten(0, 1)
                words[rank][direction] |= {tuple(word) for word in inputs.tolist()}
    # The second worker has one file of three, and both workers must agree.
    if shuffle:
        assert lengths == [31 * 3 // 6] * 2
    else:  # The first worker has 30 sentences and 32, and the second one waits for it to the end.
        assert lengths == num_batches == [62 * 3 // 6] * 2
        words[1] = {name: spelled - {(0,) * 50} for name, spelled in words[1].items()}
    for direction, mark in (("forward", "<S>"), ("backward", "</S>")):
        shared = words[0][direction] & words[1][direction]
        assert shared == {tuple(batch_to_ids([[mark]])[0, 0].tolist())}


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"rows": 0}, "rows is 0, expected at least 1"),
        ({"unroll_steps": 0}, "unroll_steps is 0, expected at least 1"),
        ({"prefetch": 0}, "prefetch is 0, expected at least 1"),
        ({"seed": -1}, "seed is -1, expected at least 0"),
    ],
)
def test_impossible_arguments_are_errors(new_loader, arguments, message):
    with pytest.raises(ConfigurationError, match=message):
        new_loader(**arguments)


def test_another_reader_is_an_error(files):
    with pytest.raises(ConfigurationError, match="expected one of type elmo_bilm"):
        StreamDataLoader(NerReader(), str(files[0]))


@pytest.mark.parametrize(
    "text, rows, unroll_steps",
    [("It rains\n" * 10, 5, 6), ("It " * 1000 + "\n", 1, 5)],
    ids=["few words", "one long sentence"],
)
def test_a_shuffled_corpus_must_fill_a_batch(reader, tmp_path, text, rows, unroll_steps):
    path = tmp_path / "train.txt"
    path.write_text(text)
    loader = StreamDataLoader(reader, str(path), rows=rows, unroll_steps=unroll_steps)
    assert next(iter(loader))
    with pytest.raises(
        ConfigurationError, match=r"found .* words .* each sentence stays in one row"
    ):
        StreamDataLoader(reader, str(path), rows=rows + 1, unroll_steps=unroll_steps)
    # Without shuffling, windows are padded.
    StreamDataLoader(reader, str(path), rows=rows + 1, unroll_steps=unroll_steps, shuffle=False)
    # It may also have become too small later.
    path.write_text("It\n")
    with pytest.raises(ConfigurationError, match="do not fill a batch"):
        list(loader)


def test_no_more_batches_are_prepared_than_prefetch(new_loader, monkeypatch):
    prepared = []
    batches_of = StreamDataLoader._batches

    def counted(self, epoch):
        for batch in batches_of(self, epoch):
            prepared.append(batch)
            yield batch

    monkeypatch.setattr(StreamDataLoader, "_batches", counted)
    batches = iter(new_loader(prefetch=3))
    for number in range(1, 6):
        next(batches)
        assert len(prepared) <= number + 3
    batches.close()
