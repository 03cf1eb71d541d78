"""Cut a stream of sentences into batches of similar length; give the results in the order of the stream."""

from dataclasses import dataclass
from typing import Callable, Dict, Iterable, Iterator, List, Optional, Sequence, Sized, TypeVar

from elmo_plugin.arguments import Options, option

DEFAULT_BATCH_SIZE = 64
# How far to read ahead for sentences of similar length. Larger windows take more memory and hardly less time.
BATCHES_AHEAD = 16

SentenceT = TypeVar("SentenceT", bound=Sized)
ResultT = TypeVar("ResultT")


@dataclass(frozen=True)
class BatchOptions(Options):
    """Maximum number of sentences in a batch."""

    batch_size: int = option(
        "at most N sentences in a batch", DEFAULT_BATCH_SIZE, metavar="N", positive=True
    )


def map_in_batches(
    function: Callable[[List[SentenceT]], Sequence[ResultT]],
    sentences: Iterable[SentenceT],
    batch_size: int,
    max_tokens: int,
) -> Iterator[ResultT]:
    """
    Apply `function` to batches of sentences of similar length, and yield the results in the order of the
    sentences.

    A window of sentences is read, sorted and cut into batches. Its results are yielded before the next window
    is read, so memory holds one window and its results.

    # Parameters

    function
        Returns one result for each sentence of a batch.
    batch_size : `int`
        Limit of a batch. A window holds 16 batches; of batches of one sentence, which need no sorting, one.
    max_tokens : `int`
        Limit of a window, and of a batch with its padding. A sentence of more tokens is one by itself.
    """
    max_sentences = 1 if batch_size == 1 else BATCHES_AHEAD * batch_size
    for window in consecutive_groups(sentences, max_sentences, max_tokens):
        results: Dict[int, ResultT] = {}  # by position in the window
        lengths = [len(sentence) for sentence in window]
        for positions in batches_by_length(lengths, max_tokens, batch_size):
            batch_results = function([window[position] for position in positions])
            results.update(zip(positions, batch_results))
        for position in range(len(window)):
            # Removed, so that a result is freed when the caller no longer needs it.
            yield results.pop(position)


def batches_by_length(
    lengths: Sequence[int], max_tokens: int, max_sentences: Optional[int] = None
) -> Iterator[List[int]]:
    """
    Group sentences of similar length, the longest first. Yield each batch as the positions of its sentences
    in `lengths`. Sentences of equal length keep their order.

    A batch has at most `max_tokens` tokens with padding: the number of sentences times the length of the
    longest one. A sentence of more tokens is a batch by itself.
    """
    batch: List[int] = []
    for position in sorted(range(len(lengths)), key=lambda position: -lengths[position]):
        padded_tokens = (len(batch) + 1) * lengths[batch[0]] if batch else 0
        if padded_tokens > max_tokens or len(batch) == max_sentences:
            yield batch
            batch = []
        batch.append(position)
    if batch:
        yield batch


def consecutive_groups(
    sentences: Iterable[SentenceT],
    max_sentences: int,
    max_tokens: Optional[int] = None,
    length: Callable[[SentenceT], int] = len,
) -> Iterator[List[SentenceT]]:
    """
    Cut a stream, which may be endless, into groups of consecutive sentences.

    # Parameters

    max_sentences : `int`
        Maximum number of sentences in a group. A full group is yielded before more sentences are read.
    max_tokens : `int`, optional
        Maximum number of tokens in a group, without padding. A sentence of more tokens is a group by itself.
        (To see that a sentence does not fit into a group, it must be read first.)
    length, optional
        Returns the number of tokens of a sentence.
    """
    group: List[SentenceT] = []
    num_tokens = 0
    for sentence in sentences:
        if group and max_tokens is not None and num_tokens + length(sentence) > max_tokens:
            yield group
            group, num_tokens = [], 0
        group.append(sentence)
        num_tokens += length(sentence)
        if len(group) >= max_sentences or (max_tokens is not None and num_tokens >= max_tokens):
            yield group
            group, num_tokens = [], 0
    if group:
        yield group
