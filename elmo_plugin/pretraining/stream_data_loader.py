"""Batches for training a biLM on streams of sentences: their order, windows of steps, and the loader."""

from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Any, Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Union

import numpy as np
import torch
import torch.distributed
from allennlp.common.tqdm import Tqdm
from allennlp.common.util import is_distributed
from allennlp.data import DataLoader, DatasetReader, Instance, Vocabulary
from allennlp.nn.util import move_to_device
from torch.nn.utils.rnn import pad_sequence

from elmo_plugin.bilm.characters import batch_to_ids
from elmo_plugin.embedding.sentences import SentenceSource
from elmo_plugin.errors import ConfigurationError, check_positive
from elmo_plugin.files.text import split_tokens
from elmo_plugin.pretraining.corpus import (
    DIRECTIONS,
    BiLMReader,
    Direction,
    find_corpus,
    first_difference,
    marked_sentence,
    predicted_words,
)

# Sentences of a larger file are shuffled in blocks of this size, so that a corpus in one file needs no
# more memory than one in many: about 100 MB for sentences of ordinary length.
MAX_SENTENCES_IN_MEMORY = 500_000

DEFAULT_ROWS, DEFAULT_UNROLL_STEPS = 128, 20  # of a batch


class CorpusShare:
    """
    The sentences that a worker reads: every `world_size`-th one of each file, see `rank_of`. So all workers
    have about as many, whatever the sizes of the files, and no sentence is read by two.
    """

    def __init__(self, files: Sequence[SentenceSource], rank: int = 0, world_size: int = 1) -> None:
        self._files = files
        self._rank = rank
        self._world_size = world_size

    @staticmethod
    def rank_of(file: int, sentence: int, world_size: int) -> int:
        """Return the rank of the worker that reads a sentence, by its number and that of its file."""
        # With the file: else the first workers would read most of many short files.
        return (file + sentence) % world_size

    def ordered(self) -> Iterator[List[str]]:
        """Yield the sentences in the order of the files."""
        for index in range(len(self._files)):
            yield from map(split_tokens, self._texts(index))

    def shuffled(self, seed: int, epoch: int, direction: Direction) -> Iterator[List[str]]:
        """
        Yield the sentences in random order: files are shuffled, and so are the sentences of each file, one
        file in memory at a time. The order depends on the arguments and the rank only; each epoch and each
        direction has another one, as in bilm-tf.
        """
        seeds = [seed, epoch, DIRECTIONS.index(direction), self._rank]
        generator = np.random.default_rng(seeds)
        for index in generator.permutation(len(self._files)):
            texts = self._texts(index)
            # The text of a sentence takes a tenth of the memory of the list of its words.
            while block := list(islice(texts, MAX_SENTENCES_IN_MEMORY)):
                for place in generator.permutation(len(block)):
                    yield split_tokens(block[place])
                block.clear()  # release it before the next one is read

    def _texts(self, index: int) -> Iterator[str]:
        for number, (_, text, _) in enumerate(self._files[index].texts()):
            if self.rank_of(index, number, self._world_size) == self._rank:
                yield text


class Window(NamedTuple):
    """The words to read and the words to predict from them, a list of each for each row."""

    inputs: List[List[str]]
    targets: List[List[str]]


def cut_windows(
    sentences: Iterable[List[str]],
    rows: int,
    unroll_steps: int,
    direction: Direction,
    to_the_end: bool = False,
) -> Iterator[Window]:
    """
    Cut a sequence of sentences into windows of `rows * unroll_steps` predictions, as bilm-tf does.

    A row reads its sentence to the end, over as many windows as necessary, and then the next sentence that no
    row has read. So the state of a row can be carried from one window to the next. Sentences are split, never
    shortened. A window that cannot be filled is dropped, with the rest of the sentences that rows were
    reading; with `to_the_end`, its rows are shorter, until every word has been predicted. The rows of both
    directions have the same lengths.
    """
    unread = (marked_sentence(words, direction) for words in sentences)
    # What is left of the sentence of each row. The last word alone predicts nothing.
    rests: List[List[str]] = [[] for _ in range(rows)]
    while True:
        window = Window([], [])
        for row in range(rows):
            inputs: List[str] = []
            targets: List[str] = []
            while len(inputs) < unroll_steps:
                if len(rests[row]) < 2:
                    rests[row] = next(unread, [])
                    if not rests[row]:
                        break
                num_words = min(unroll_steps - len(inputs), len(rests[row]) - 1)
                inputs += rests[row][:num_words]
                targets += rests[row][1 : num_words + 1]
                rests[row] = rests[row][num_words:]
            if len(inputs) < unroll_steps and not to_the_end:
                return
            window.inputs.append(inputs)
            window.targets.append(targets)
        if not any(window.inputs):
            return
        yield window


@DataLoader.register("elmo_bilm_streams")
class StreamDataLoader(DataLoader):
    """
    Batches of `rows` streams of sentences, `unroll_steps` words from each. Every row continues in the next
    batch, for truncated back-propagation with a carried state, as in bilm-tf. `cut_windows` describes
    streams, and what is dropped at the end of an epoch.

    A batch is a dictionary of four tensors, and of `lengths`, the number of words in each row.
    `forward_inputs` and `backward_inputs`, `(rows, unroll_steps, 50)`, are character ids;
    `forward_targets` and `backward_targets`, `(rows, unroll_steps)`, are the vocabulary's indices of
    the words to predict. The two directions read the corpus in different orders: the rows of one are not
    related to those of the other. The steps of the backward direction go from the ends of sentences to their
    beginnings.

    One iteration is an epoch: the corpus once, with a new sentence in every row. (bilm-tf's streams never
    end, and its epochs are a number of words.) Batches depend only on the files, the arguments, `epoch`,
    which each iteration increments, and the rank of a distributed worker. So `allennlp train --recover`,
    which skips the batches of the interrupted training, continues with the right batches. Distributed workers
    read different sentences, and end an epoch with the same batch: iteration is a collective operation.

    Memory holds one file of the corpus for each direction. The constructor reads the corpus once, to count
    predictions and to find invalid data before training.

    # Parameters

    reader, data_path
        Not set in configs: their `dataset_reader`, which has the vocabulary, and `train_data_path`.
    rows : `int`, optional (default = 128)
        Rows of a batch. In distributed training, of each worker's batch.
    unroll_steps : `int`, optional (default = 20)
        Words that a batch takes from each row.
    shuffle : `bool`, optional (default = `True`)
        Read files and sentences in a random order, different in each epoch. Without it, both directions read
        in the order of the files, in every epoch, and to the last word, whatever the number of rows and
        workers: use this for a `validation_data_loader`. Rows without words are then padded, and workers
        without words return batches without words until all have ended.
    seed : `int`, optional (default = 13370)
        Not negative. Determines the order.
    batches_per_epoch : `int`, optional
        End an epoch after this number of batches. The next one begins anew, in another order.
    """

    def __init__(
        self,
        reader: DatasetReader,
        data_path: Union[str, List[str]],
        rows: int = DEFAULT_ROWS,
        unroll_steps: int = DEFAULT_UNROLL_STEPS,
        shuffle: bool = True,
        seed: int = 13370,
        batches_per_epoch: Optional[int] = None,
    ) -> None:
        if not isinstance(reader, BiLMReader):
            raise ConfigurationError(
                f"data_loader of type elmo_bilm_streams: the dataset_reader is a {type(reader).__name__}, "
                "expected one of type elmo_bilm. Change one of the two."
            )
        if reader.max_instances is not None:
            raise ConfigurationError(
                "dataset_reader.max_instances is given, and elmo_bilm_streams reads every sentence. Leave it "
                "out, and set data_loader.batches_per_epoch for shorter epochs."
            )
        check_positive("data_loader.rows", rows)
        check_positive("data_loader.unroll_steps", unroll_steps)
        check_positive("data_loader.batches_per_epoch", batches_per_epoch)
        self.epoch = 0  # of the next iteration
        # Epoch and number. Batches before it, which the trainer skips after an interruption, are empty.
        self.first_batch = (0, 0)
        self._batches_per_epoch = batches_per_epoch
        self._reader = reader
        self._data_path = data_path
        self._rows = rows
        self._unroll_steps = unroll_steps
        self._shuffle = shuffle
        self._seed = seed
        self._device: Optional[torch.device] = None
        self._rank = torch.distributed.get_rank() if is_distributed() else 0
        self._world_size = torch.distributed.get_world_size() if is_distributed() else 1
        files = find_corpus(data_path)
        self._share = CorpusShare(files, self._rank, self._world_size)
        # For each worker, in one direction: words and sentence ends.
        self._num_predictions = [0] * self._world_size
        for index, file in enumerate(files):
            texts = Tqdm.tqdm(file.texts(), desc=f"counting words of {file.name}")
            for number, (_, text, _) in enumerate(texts):
                rank = CorpusShare.rank_of(index, number, self._world_size)
                self._num_predictions[rank] += len(split_tokens(text)) + 1
        if next(self._batches(self.epoch), None) is None and shuffle:
            raise self._corpus_too_small()

    def __len__(self) -> int:
        """
        Return the number of batches in an epoch, or one that is close to it: rows end at different steps. It
        is the same in all distributed workers, because learning rate schedules are computed from it.
        """
        window_size = self._rows * self._unroll_steps
        if self._shuffle:
            num_batches = min(self._num_predictions) // window_size
        else:
            num_batches = -(-max(self._num_predictions) // window_size)
        return min(num_batches, self._batches_per_epoch or num_batches)

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
        Check that the reader's vocabulary, whose indices are the targets, is the model's. Raise
        `ConfigurationError` if words or their order differ.
        """
        words, model_words = self._reader.vocabulary.words, predicted_words(vocab)
        if words != model_words:
            raise ConfigurationError(
                "dataset_reader.vocabulary_file has other words than the model's vocabulary: found "
                f"{first_difference(words, model_words)}. Set vocabulary.vocabulary_file to the same file, "
                "or give a trained model the file that it was trained with."
            )

    def set_target_device(self, device: torch.device) -> None:
        self._device = device

    def _iterate(self, epoch: int) -> Iterator[Dict[str, Any]]:
        batches = self._batches(epoch)
        # A thread rather than a process: it passes a batch on without a copy.
        with ThreadPoolExecutor(1, thread_name_prefix="elmo_bilm_streams") as executor:
            next_batch = executor.submit(next, batches, None)
            # `result` raises the errors of the thread.
            while (batch := self._agreed(next_batch.result())) is not None:
                next_batch = executor.submit(next, batches, None)
                yield batch if self._device is None else move_to_device(batch, self._device)

    def _agreed(self, batch: Optional[Dict[str, Any]]) -> Optional[Dict[str, Any]]:
        """
        End an epoch in all distributed workers at the same batch: shuffled, when the first worker has no
        batch left; ordered, when the last one has none. AllenNLP's trainer stops all at the first too, but
        not while it skips the batches of an interrupted training: workers would count different numbers of
        batches, and compute different learning rates from them.
        """
        if self._world_size == 1:
            return batch
        num_left = torch.tensor(0 if batch is None else 1, device=self._device)
        torch.distributed.all_reduce(num_left)
        if num_left < (self._world_size if self._shuffle else 1):
            return None
        nothing: List[List[str]] = [[]] * self._rows
        return self._batch([Window(nothing, nothing)] * 2) if batch is None else batch

    def _batches(self, epoch: int) -> Iterator[Dict[str, Any]]:
        windows = zip(*(self._windows(direction, epoch) for direction in DIRECTIONS))
        for number, pair in enumerate(islice(windows, self._batches_per_epoch)):
            # To make tensors takes ten times as long as to cut windows.
            yield {} if (epoch, number) < self.first_batch else self._batch(pair)

    def _batch(self, windows: Sequence[Window]) -> Dict[str, Any]:
        batch: Dict[str, Any] = {"lengths": [len(words) for words in windows[0].inputs]}
        for direction, window in zip(DIRECTIONS, windows):
            batch[f"{direction}_inputs"] = batch_to_ids(window.inputs)
            batch[f"{direction}_targets"] = pad_sequence(
                [self._reader.targets(words) for words in window.targets], batch_first=True
            )
        return batch

    def _windows(self, direction: Direction, epoch: int) -> Iterator[Window]:
        if self._shuffle:
            sentences = self._share.shuffled(self._seed, epoch, direction)
        else:
            sentences = self._share.ordered()
        return cut_windows(
            sentences, self._rows, self._unroll_steps, direction, to_the_end=not self._shuffle
        )

    def _corpus_too_small(self) -> ConfigurationError:
        each = f" for worker {self._rank} of {self._world_size}" if self._world_size > 1 else ""
        paths = self._data_path if isinstance(self._data_path, list) else [self._data_path]
        return ConfigurationError(
            f"{', '.join(paths)}: found {self._num_predictions[self._rank]:,} words and sentence ends{each}, "
            f"which do not fill a batch of {self._rows * self._unroll_steps:,} (rows {self._rows} x "
            f"unroll_steps {self._unroll_steps}) where each sentence stays in one row. Set fewer rows "
            "or steps in the data_loader, or give more text."
        )
