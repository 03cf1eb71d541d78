"""Batches for training a biLM on streams of sentences."""

from collections import deque
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from typing import Any, Dict, Iterator, List, Optional, Union

import numpy as np
import torch
import torch.distributed
from allennlp.common.tqdm import Tqdm
from allennlp.common.util import is_distributed
from allennlp.data import DataLoader, DatasetReader, Instance, Vocabulary
from allennlp.data.token_indexers.elmo_indexer import ELMoCharacterMapper
from torch import Tensor

from elmo_plugin.bilm.characters import MAX_CHARACTERS_PER_TOKEN
from elmo_plugin.bilm.lm_vocabulary import LMVocabulary
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.pretraining.reader import BiLMReader
from elmo_plugin.pretraining.sentence_streams import (
    DIRECTIONS,
    PADDING,
    Direction,
    SentenceStreams,
    Window,
    count_predictions,
    ordered_sentences,
    shuffled_sentences,
)
from elmo_plugin.pretraining.word_vocabulary import (
    WORDS_NAMESPACE,
    first_difference,
    words_of,
)

WORD_TABLE_SIZE = 100_000  # words; their characters take 10 MB


@DataLoader.register("elmo_bilm_streams")
class StreamDataLoader(DataLoader):
    """
    Batches of `rows` streams of sentences, `unroll_steps` words from each. Every row continues in the next
    batch, for truncated back-propagation with a carried state, as in bilm-tf. `SentenceStreams` describes
    streams, and what is dropped at the end of an epoch.

    A batch is a dictionary of four tensors, of `rows_continue`, which is `True`, and of `lengths`.
    `forward_inputs` and `backward_inputs`, int16, `(rows, unroll_steps, 50)`, are character ids;
    `forward_targets` and `backward_targets`, int64, `(rows, unroll_steps)`, are the vocabulary's indices of
    the words to predict. The two directions read the corpus in different orders: the rows of one are not
    related to those of the other. The steps of the backward direction go from the ends of sentences to their
    beginnings.

    One iteration is an epoch: the corpus once, with a new sentence in every row. (bilm-tf's streams never
    end, and its epochs are a number of words; an epoch with a fresh start can be repeated.) Batches depend
    only on the files, the arguments, `epoch` and the rank of a distributed worker; iteration then increments
    `epoch`. So `allennlp train --recover`, which skips the batches of the interrupted training, continues
    with the right batches, and so does setting `epoch` and skipping batches. Distributed workers read
    different sentences, see `shuffled_sentences`.

    A separate thread prepares batches ahead of the model. Memory holds one file of the corpus for each
    direction, never all of the corpus.

    The constructor reads the corpus once, to count predictions and to find invalid data before training.

    Registered as a `DataLoader` with name `elmo_bilm_streams`.

    # Parameters

    reader : `BiLMReader`
        Has the vocabulary. Not set in configs: it is their `dataset_reader`.
    data_path : `str` or `List[str]`
        The files of the corpus. Not set in configs: it is their `train_data_path`.
    rows : `int`, optional (default = 128)
        Rows of a batch. In distributed training, of each worker's batch.
    unroll_steps : `int`, optional (default = 20)
        Words that a batch takes from each row.
    shuffle : `bool`, optional (default = `True`)
        Read files and sentences in a random order, different in each epoch. Without it, both directions read
        in the order of the files, in every epoch, and to the last word, whatever the number of rows and
        workers: use this for a `validation_data_loader`. Rows without words are then padded, see `lengths`,
        and workers without words return batches of padding until all have ended.
    seed : `int`, optional (default = 13370)
        Not negative. Determines the order.
    prefetch : `int`, optional (default = 8)
        Number of batches that are prepared ahead of the model, at least 1.

    # Attributes

    epoch : `int`
        The epoch of the next iteration, initially 0.

    # Raises

    `ConfigurationError` for an invalid argument, for files that are missing, empty or not UTF-8, and for a
    shuffled corpus that does not fill a batch.
    """

    def __init__(
        self,
        reader: DatasetReader,
        data_path: Union[str, List[str]],
        rows: int = 128,
        unroll_steps: int = 20,
        shuffle: bool = True,
        seed: int = 13370,
        prefetch: int = 8,
    ) -> None:
        if not isinstance(reader, BiLMReader):
            raise ConfigurationError(
                f"data_loader of type elmo_bilm_streams: the dataset_reader is a {type(reader).__name__}, "
                "expected one of type elmo_bilm. Change one of the two."
            )
        _check_at_least(1, rows=rows, unroll_steps=unroll_steps, prefetch=prefetch)
        _check_at_least(0, seed=seed)
        self.epoch = 0
        self._reader = reader
        self._data_path = data_path
        self._rows = rows
        self._unroll_steps = unroll_steps
        self._shuffle = shuffle
        self._seed = seed
        self._prefetch = prefetch
        self._device: Optional[torch.device] = None
        self._rank = torch.distributed.get_rank() if is_distributed() else 0
        self._world_size = torch.distributed.get_world_size() if is_distributed() else 1
        self._files = reader.files(data_path)
        self._num_predictions = count_predictions(
            Tqdm.tqdm(self._files, desc="counting words"), self._world_size
        )
        # The number of the worker with most batches, so that none stops the others.
        self._num_ordered_batches = 0
        if shuffle:
            self._check_corpus_fills_a_batch()
        else:
            self._num_ordered_batches = max(
                sum(1 for _ in self._ordered_windows("forward", rank))
                for rank in range(self._world_size)
            )

    def __len__(self) -> int:
        """
        Return the number of batches in an epoch or, with `shuffle`, a slightly larger one: the rest in the
        rows at the end of an epoch depends on its order. The number is the same in all distributed workers,
        because learning rate schedules are computed from it.
        """
        if not self._shuffle:
            return self._num_ordered_batches
        return min(self._num_predictions) // (self._rows * self._unroll_steps)

    def __iter__(self) -> Iterator[Dict[str, Any]]:
        epoch = self.epoch
        # Now rather than at the end, which an interrupted iteration does not reach.
        self.epoch += 1
        return self._iterate(epoch)

    def iter_instances(self) -> Iterator[Instance]:
        """Yield the instances of the reader, one for each sentence."""
        return iter(self._reader.read(self._data_path))

    def index_with(self, vocab: Vocabulary) -> None:
        """
        Check that the reader's vocabulary, whose indices are the targets, is the model's.

        # Parameters

        vocab : `Vocabulary`
            The model's, see `LMWordVocabulary`. If it has no such words, the model will refuse it.

        # Raises

        `ConfigurationError` if its words differ, or their order.
        """
        if WORDS_NAMESPACE not in vocab.get_namespaces():
            return
        words, model_words = self._reader.vocabulary.words, words_of(vocab)
        if words != model_words:
            raise ConfigurationError(
                "dataset_reader.vocabulary_file has other words than the model's vocabulary: found "
                f"{first_difference(words, model_words)}. Set vocabulary.vocabulary_file to the same file, "
                "or give a trained model the file that it was trained with."
            )

    def set_target_device(self, device: torch.device) -> None:
        self._device = device

    def _check_corpus_fills_a_batch(self) -> None:
        for direction in DIRECTIONS:
            if next(self._windows(direction, self.epoch), None) is None:
                raise self._corpus_too_small()

    def _iterate(self, epoch: int) -> Iterator[Dict[str, Any]]:
        batches = self._batches(epoch)
        # A thread rather than a process: a batch takes only about 3 ms, and a thread passes it on without a
        # copy.
        executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="elmo_bilm_streams")
        try:
            ahead = deque(executor.submit(next, batches, None) for _ in range(self._prefetch))
            # `result` raises the errors of the thread.
            while (batch := ahead.popleft().result()) is not None:
                ahead.append(executor.submit(next, batches, None))
                yield {
                    name: value.to(self._device) if isinstance(value, Tensor) else value
                    for name, value in batch.items()
                }
        finally:
            executor.shutdown(cancel_futures=True)

    def _batches(self, epoch: int) -> Iterator[Dict[str, Any]]:
        window_size = self._rows * self._unroll_steps
        table = _WordTable(self._reader.vocabulary, max(WORD_TABLE_SIZE, window_size))
        is_empty = True
        for windows in zip(*(self._windows(direction, epoch) for direction in DIRECTIONS)):
            is_empty = False
            lengths = windows[0].lengths
            batch: Dict[str, Any] = {
                "rows_continue": True,
                "lengths": lengths if min(lengths) < self._unroll_steps else None,
            }
            for direction, window in zip(DIRECTIONS, windows):
                character_ids = table.character_ids(window.inputs)
                vocabulary_indices = table.vocabulary_indices(window.targets)
                batch[f"{direction}_inputs"] = character_ids.view(
                    self._rows, self._unroll_steps, MAX_CHARACTERS_PER_TOKEN
                )
                batch[f"{direction}_targets"] = vocabulary_indices.view(
                    self._rows, self._unroll_steps
                )
            yield batch
        if is_empty:
            raise self._corpus_too_small()

    def _windows(self, direction: Direction, epoch: int) -> Iterator[Window]:
        if self._shuffle:
            sentences = shuffled_sentences(
                self._files, self._seed, epoch, direction, self._rank, self._world_size
            )
            yield from SentenceStreams(sentences, self._rows, self._unroll_steps, direction)
            return
        num_windows = 0
        for window in self._ordered_windows(direction, self._rank):
            num_windows += 1
            yield window
        padding = [PADDING] * (self._rows * self._unroll_steps)
        empty = Window(padding, padding, [0] * self._rows)
        yield from repeat(empty, self._num_ordered_batches - num_windows)

    def _ordered_windows(self, direction: Direction, rank: int) -> Iterator[Window]:
        sentences = ordered_sentences(self._files, rank, self._world_size)
        return iter(SentenceStreams(sentences, self._rows, self._unroll_steps, direction, True))

    def _corpus_too_small(self) -> ConfigurationError:
        each = f" for worker {self._rank} of {self._world_size}" if self._world_size > 1 else ""
        paths = self._data_path if isinstance(self._data_path, list) else [self._data_path]
        return ConfigurationError(
            f"{', '.join(paths)}: found {self._num_predictions[self._rank]:,} words and sentence ends{each}, "
            f"which do not fill a batch of {self._rows * self._unroll_steps:,} (rows {self._rows} x "
            f"unroll_steps {self._unroll_steps}) where each sentence stays in one row. Set fewer rows "
            "or steps in the data_loader, or give more text."
        )


class _WordTable:
    """
    Character ids and vocabulary indices of words, computed once for each distinct word; zeros for padding. A
    full table is emptied: frequent words soon return to it.

    # Parameters

    vocabulary : `LMVocabulary`
        Has the indices.
    capacity : `int`
        Maximal number of words, also of distinct words in one call.
    """

    def __init__(self, vocabulary: LMVocabulary, capacity: int) -> None:
        self._vocabulary = vocabulary
        self._mapper = ELMoCharacterMapper()
        self._capacity = capacity
        self._places: Dict[str, int] = {}
        # Ids are at most 261. With eight bytes each they would be most of the data that goes to a GPU.
        self._character_ids = np.empty((capacity, MAX_CHARACTERS_PER_TOKEN), dtype=np.int16)
        self._vocabulary_indices = np.empty(capacity, dtype=np.int64)

    def character_ids(self, words: List[str]) -> Tensor:
        """Return character ids, `(len(words), 50)`."""
        return torch.from_numpy(self._character_ids[self._places_of(words)])

    def vocabulary_indices(self, words: List[str]) -> Tensor:
        """Return vocabulary indices, `(len(words),)`."""
        return torch.from_numpy(self._vocabulary_indices[self._places_of(words)])

    def _places_of(self, words: List[str]) -> np.ndarray:
        new_words = set(words).difference(self._places)
        if len(self._places) + len(new_words) > self._capacity:
            self._places.clear()
            new_words = set(words)
        for place, word in enumerate(new_words, start=len(self._places)):
            is_padding = word == PADDING
            self._character_ids[place] = (
                0 if is_padding else self._mapper.convert_word_to_char_ids(word)
            )
            self._vocabulary_indices[place] = 0 if is_padding else self._vocabulary.index_of(word)
            self._places[word] = place
        return np.fromiter(map(self._places.__getitem__, words), dtype=np.int64, count=len(words))


def _check_at_least(smallest: int, **arguments: int) -> None:
    for name, value in arguments.items():
        if value < smallest:
            raise ConfigurationError(
                f"data_loader: {name} is {value}, expected at least {smallest}. Correct it."
            )
