"""Cut a stream of sentences into batches of similar length; give the results in the order of the stream."""

from dataclasses import dataclass
from numbers import Integral
from typing import Callable, Dict, Iterable, Iterator, List, Optional, Sequence, Sized, TypeVar

from elmo_plugin.arguments import option
from elmo_plugin.errors import ConfigurationError

DEFAULT_BATCH_SIZE = 64

SentenceT = TypeVar("SentenceT", bound=Sized)
ResultT = TypeVar("ResultT")


@dataclass(frozen=True)
class BatchOptions:
    """
    Limits of a batch, in sentences and in tokens with padding: the number of sentences times the length of
    the longest one. `None` is no limit. A sentence of more tokens is a batch by itself.

    # Raises

    `ConfigurationError` if both limits are `None`, or one is not positive.
    """

    batch_size: Optional[int] = option(
        "at most N sentences in a batch", DEFAULT_BATCH_SIZE, metavar="N"
    )
    batch_tokens: Optional[int] = option(
        "at most N tokens, with padding (default: 256 MiB of vectors)", None, metavar="N"
    )

    def __post_init__(self) -> None:
        for name, limit in (("batch_size", self.batch_size), ("batch_tokens", self.batch_tokens)):
            if limit is not None and not (isinstance(limit, Integral) and limit > 0):
                raise ConfigurationError(f"{name} is {limit!r}, expected a positive whole number.")
        if self.batch_size is None and self.batch_tokens is None:
            raise ConfigurationError("batch_size and batch_tokens are None, expected one or both.")

    def check_for_stateful(self) -> None:
        """
        # Raises

        `ConfigurationError` if batches could have different numbers of sentences.
        """
        if self.batch_size is None or self.batch_tokens is not None:
            raise ConfigurationError(
                f"batch_size is {self.batch_size} and batch_tokens is {self.batch_tokens}, but a stateful "
                "biLM needs batches of one size, since it carries states by the position in a batch. Give "
                "batch_size alone."
            )


def map_in_batches(
    function: Callable[[List[SentenceT]], Sequence[ResultT]],
    sentences: Iterable[SentenceT],
    limits: BatchOptions,
    max_sentences_ahead: int,
    max_tokens_ahead: int,
) -> Iterator[ResultT]:
    """
    Apply `function` to batches of sentences of similar length, and yield the results in the order of the
    sentences.

    A window of sentences is read, sorted and cut into batches. Its results are yielded before the next window
    is read, so memory holds one window and its results.

    # Parameters

    function
        Returns one result for each sentence of a batch.
    sentences
        Any number of them; the stream may be endless.
    max_sentences_ahead, max_tokens_ahead
        Limits of a window, see `consecutive_groups`.
    """
    for window in consecutive_groups(sentences, max_sentences_ahead, max_tokens_ahead):
        results: Dict[int, ResultT] = {}  # by position in the window
        for positions in batches_by_length([len(sentence) for sentence in window], limits):
            batch_results = function([window[position] for position in positions])
            results.update(zip(positions, batch_results))
        for position in range(len(window)):
            # Removed, so that a result is freed when the caller no longer needs it.
            yield results.pop(position)


def batches_by_length(lengths: Sequence[int], limits: BatchOptions) -> Iterator[List[int]]:
    """
    Group sentences of similar length, the longest first. Yield each batch as the positions of its sentences
    in `lengths`. Sentences of equal length keep their order.
    """
    batch: List[int] = []
    for position in sorted(range(len(lengths)), key=lambda position: -lengths[position]):
        if batch:
            padded_tokens = (len(batch) + 1) * lengths[batch[0]]
            if len(batch) == limits.batch_size or (
                limits.batch_tokens is not None and padded_tokens > limits.batch_tokens
            ):
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
    Cut a stream into groups of consecutive sentences.

    # Parameters

    sentences
        Any number of them; the stream may be endless.
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
