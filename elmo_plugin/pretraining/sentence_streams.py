"""The order in which a biLM reads a corpus: shuffled sentences, cut into windows of steps."""

from itertools import islice
from pathlib import Path
from typing import Collection, Iterable, Iterator, List, Literal, NamedTuple, Sequence

import numpy as np
from allennlp.data.token_indexers.elmo_indexer import ELMoCharacterMapper

from elmo_plugin.pretraining.corpus_files import read_sentences

Direction = Literal["forward", "backward"]
DIRECTIONS: Sequence[Direction] = ("forward", "backward")

# Sentences of a larger file are shuffled in blocks of this size, so that a corpus in one file needs no
# more memory than one in many: about 100 MB for sentences of ordinary length.
MAX_SENTENCES_IN_MEMORY = 500_000


# Fills a window where a row has no word left.
PADDING = ""


class Window(NamedTuple):
    """
    Input words and the words to predict from them, row after row: `rows * unroll_steps` of each; and the
    number of words of each row before its padding.
    """

    inputs: List[str]
    targets: List[str]
    lengths: List[int]


class SentenceStreams:
    """
    Cuts a sequence of sentences into windows of `rows * unroll_steps` predictions, as bilm-tf does.

    A row reads its sentence to the end, over as many windows as necessary, and then the next sentence that no
    row has read. So the state of a row can be carried from one window to the next. Sentences are split, never
    shortened. A window that cannot be filled is dropped, with the rest of the sentences that rows were
    reading. With `to_the_end` it is padded instead, until every word has been predicted.

    Iteration yields `Window`s, and reads sentences when they are needed.

    # Parameters

    sentences : `Iterable[List[str]]`
        The words of each sentence, without marks.
    rows : `int`
        Number of sentences that are read in parallel.
    unroll_steps : `int`
        Predictions in each row of a window.
    direction : `str`
        `forward` or `backward`, see `marked_sentence`. Both have rows of the same lengths.
    to_the_end : `bool`, optional (default = `False`)
        Pad windows that cannot be filled. bilm-tf drops them.
    """

    def __init__(
        self,
        sentences: Iterable[List[str]],
        rows: int,
        unroll_steps: int,
        direction: Direction,
        to_the_end: bool = False,
    ) -> None:
        self._sentences = sentences
        self._rows = rows
        self._unroll_steps = unroll_steps
        self._direction = direction
        self._to_the_end = to_the_end

    def __iter__(self) -> Iterator[Window]:
        unread = (marked_sentence(words, self._direction) for words in self._sentences)
        # The sentence of each row, and the index of its next input. The last word alone predicts nothing.
        sentences: List[List[str]] = [[] for _ in range(self._rows)]
        places = [0] * self._rows
        while True:
            inputs: List[str] = []
            targets: List[str] = []
            lengths: List[int] = []
            for row in range(self._rows):
                missing = self._unroll_steps
                while missing > 0:
                    if places[row] >= len(sentences[row]) - 1:
                        sentence = next(unread, None)
                        if sentence is None:
                            break
                        sentences[row], places[row] = sentence, 0
                    start = places[row]
                    end = min(start + missing, len(sentences[row]) - 1)
                    inputs += sentences[row][start:end]
                    targets += sentences[row][start + 1 : end + 1]
                    places[row] = end
                    missing -= end - start
                if missing > 0 and not self._to_the_end:
                    return
                inputs += [PADDING] * missing
                targets += [PADDING] * missing
                lengths.append(self._unroll_steps - missing)
            if not any(lengths):
                return
            yield Window(inputs, targets, lengths)


def marked_sentence(words: List[str], direction: Direction) -> List[str]:
    """
    Return a sentence in reading order, with its marks: every word except the last is an input, and the word
    after it its target, which gives `len(words) + 1` predictions.

    The backward direction reads from `</S>` to `<S>`. So the forward direction never reads `</S>`, and the
    backward direction never reads `<S>`, as in bilm-tf.
    """
    marked = [ELMoCharacterMapper.bos_token, *words, ELMoCharacterMapper.eos_token]
    return marked if direction == "forward" else marked[::-1]


def shuffled_sentences(
    files: Sequence[Path],
    seed: int,
    epoch: int,
    direction: Direction,
    rank: int = 0,
    world_size: int = 1,
) -> Iterator[List[str]]:
    """
    Yield the sentences of a worker in random order: files are shuffled, and so are the sentences of each
    file, one file in memory at a time. The order depends on the arguments only, and each direction has
    its own, as in bilm-tf.

    # Parameters

    files : `Sequence[Path]`
        The files of the corpus, all of them, in the same order in every worker.
    seed, epoch : `int`
        Not negative. Each epoch has another order.
    direction : `str`
        `forward` or `backward`. Words keep their order in both, see `marked_sentence`.
    rank, world_size : `int`, optional (default = 0 and 1)
        The index of this worker, and the number of workers. No two workers read the same sentence: they
        divide the files or, if there are fewer files than workers, the sentences of each file.
    """
    generator = np.random.default_rng([seed, epoch, DIRECTIONS.index(direction)])
    files_of_rank = _files_of_rank(files, rank, world_size)
    for index in generator.permutation(len(files_of_rank)):
        sentences = _sentences_of_rank(files_of_rank[index], len(files), rank, world_size)
        # A string takes a tenth of the memory of the list of its words. Words hold no spaces.
        while block := [" ".join(words) for words in islice(sentences, MAX_SENTENCES_IN_MEMORY)]:
            for place in generator.permutation(len(block)):
                yield block[place].split(" ")
            block.clear()  # release it before the next one is read


def ordered_sentences(
    files: Sequence[Path], rank: int = 0, world_size: int = 1
) -> Iterator[List[str]]:
    """
    Yield the sentences of a worker in the order of the files. Arguments are those of `shuffled_sentences`.
    """
    for path in _files_of_rank(files, rank, world_size):
        yield from _sentences_of_rank(path, len(files), rank, world_size)


def count_predictions(files: Collection[Path], world_size: int = 1) -> List[int]:
    """
    Read the corpus, and return the number of predictions of each of `world_size` workers in one direction:
    words and sentence ends.

    # Raises

    The errors of `read_sentences`, for the whole corpus.
    """
    num_predictions = [0] * world_size
    for file_index, path in enumerate(files):
        for sentence_index, words in enumerate(read_sentences(path)):
            dealt_by = sentence_index if len(files) < world_size else file_index
            num_predictions[dealt_by % world_size] += len(words) + 1
    return num_predictions


def _files_of_rank(files: Sequence[Path], rank: int, world_size: int) -> Sequence[Path]:
    return files if len(files) < world_size else files[rank::world_size]


def _sentences_of_rank(
    path: Path, num_files: int, rank: int, world_size: int
) -> Iterator[List[str]]:
    sentences = read_sentences(path)
    return islice(sentences, rank, None, world_size) if num_files < world_size else sentences
