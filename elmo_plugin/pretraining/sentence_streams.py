"""The order in which a biLM reads a corpus: shuffled sentences, cut into windows of steps."""

from itertools import islice
from os import PathLike
from typing import Collection, Iterable, Iterator, List, Literal, NamedTuple, Sequence, Union

import numpy as np
from allennlp.data.token_indexers.elmo_indexer import ELMoCharacterMapper

from elmo_plugin.embedding.sentences import InputOptions, SentenceSource, find_sources
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.files.text import split_tokens

Direction = Literal["forward", "backward"]
DIRECTIONS: Sequence[Direction] = ("forward", "backward")

# Sentences of a larger file are shuffled in blocks of this size, so that a corpus in one file needs no
# more memory than one in many: about 100 MB for sentences of ordinary length.
MAX_SENTENCES_IN_MEMORY = 500_000

_CORPUS_OPTIONS = InputOptions(skip_blank=True, accept_control_characters=True)


def find_corpus(data_path: Union[str, PathLike, Sequence[str]]) -> List[SentenceSource]:
    """
    Return the files of a corpus: of paths, folders and globs, see `find_sources`.

    # Raises

    `ConfigurationError` if a path or glob matches no file, or a file cannot be read or is a pipe.
    """
    sources = find_sources(data_path, _CORPUS_OPTIONS)
    for source in sources:
        if not source.is_file:
            raise ConfigurationError(
                f"corpus: {source.name} can be read only once, expected files. Write the text to a file."
            )
    return sources


def read_sentences(files: Iterable[SentenceSource]) -> Iterator[List[str]]:
    """
    Yield the words of each sentence, in the order of the files.

    # Raises

    `ConfigurationError` naming the file if it is damaged or has no sentence, and the line if it is too long
    or not UTF-8.
    """
    return (split_tokens(text) for file in files for _, text in file.texts())


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
    files: Sequence[SentenceSource],
    seed: int,
    epoch: int,
    direction: Direction,
    rank: int = 0,
    world_size: int = 1,
) -> Iterator[List[str]]:
    """
    Yield the sentences of a worker in random order: files are shuffled, and so are the sentences of each
    file, one file in memory at a time. The order depends on the arguments only; each epoch and each direction
    has another one, as in bilm-tf.

    No two of the `world_size` workers read the same sentence: they divide the files or, if there are fewer
    files than workers, the sentences of each file. `files` are those of all workers, in the same order.
    """
    generator = np.random.default_rng([seed, epoch, DIRECTIONS.index(direction)])
    files_of_rank = _files_of_rank(files, rank, world_size)
    for index in generator.permutation(len(files_of_rank)):
        texts = _texts_of_rank(files_of_rank[index], len(files), rank, world_size)
        # The text of a sentence takes a tenth of the memory of the list of its words.
        while block := list(islice(texts, MAX_SENTENCES_IN_MEMORY)):
            for place in generator.permutation(len(block)):
                yield split_tokens(block[place])
            block.clear()  # release it before the next one is read


def ordered_sentences(
    files: Sequence[SentenceSource], rank: int = 0, world_size: int = 1
) -> Iterator[List[str]]:
    """Yield the sentences of a worker in the order of the files. Arguments as for `shuffled_sentences`."""
    for file in _files_of_rank(files, rank, world_size):
        yield from map(split_tokens, _texts_of_rank(file, len(files), rank, world_size))


def count_predictions(files: Collection[SentenceSource], world_size: int = 1) -> List[int]:
    """
    Read the corpus, and return the number of predictions of each worker in one direction: words and sentence
    ends. Raises the errors of `read_sentences`.
    """
    num_predictions = [0] * world_size
    for file_index, file in enumerate(files):
        for sentence_index, words in enumerate(read_sentences([file])):
            dealt_by = sentence_index if len(files) < world_size else file_index
            num_predictions[dealt_by % world_size] += len(words) + 1
    return num_predictions


def _files_of_rank(
    files: Sequence[SentenceSource], rank: int, world_size: int
) -> Sequence[SentenceSource]:
    return files if len(files) < world_size else files[rank::world_size]


def _texts_of_rank(
    file: SentenceSource, num_files: int, rank: int, world_size: int
) -> Iterator[str]:
    texts = (text for _, text in file.texts())
    return islice(texts, rank, None, world_size) if num_files < world_size else texts
