"""Batches of sentences of similar length out of a stream, and their results in the stream's order."""

from typing import Callable, Dict, Iterable, Iterator, List, Optional, Sequence, Sized, TypeVar

SentenceT = TypeVar("SentenceT", bound=Sized)
ResultT = TypeVar("ResultT")


def map_in_batches(
    function: Callable[[List[SentenceT]], Sequence[ResultT]],
    sentences: Iterable[SentenceT],
    batch_size: Optional[int],
    batch_tokens: Optional[int],
    max_sentences_ahead: int,
    max_tokens_ahead: int,
) -> Iterator[ResultT]:
    """
    Apply `function` to batches of sentences of similar length, and give the results in the sentences' order.

    Sentences are read ahead, sorted and batched window by window; the results of a window come when all of
    it is done, and before more is read. So one window and its results is all that is in memory.

    # Parameters

    function
        Gives one result for each sentence of a batch.
    sentences
        Any number, also endlessly many.
    batch_size, batch_tokens
        Limits of a batch, see `batches_by_length`.
    max_sentences_ahead, max_tokens_ahead
        Limits of a window, see `consecutive_groups`.
    """
    for window in consecutive_groups(sentences, max_sentences_ahead, max_tokens_ahead):
        results: Dict[int, ResultT] = {}  # by position in the window
        lengths = [len(sentence) for sentence in window]
        for positions in batches_by_length(lengths, batch_size, batch_tokens):
            batch_results = function([window[position] for position in positions])
            results.update(zip(positions, batch_results))
        for position in range(len(window)):
            # Taken out, so that what the caller has done with is not kept.
            yield results.pop(position)


def batches_by_length(
    lengths: Sequence[int], batch_size: Optional[int], batch_tokens: Optional[int]
) -> Iterator[List[int]]:
    """
    Group sentences of similar length, the longest first.

    # Parameters

    lengths : `Sequence[int]`
        Tokens of each sentence.
    batch_size : `int`, optional
        At most so many sentences are in a batch.
    batch_tokens : `int`, optional
        At most so many tokens are in a batch when padding counts too: the number of its sentences times the
        length of the longest. A sentence that is longer is a batch of its own.

    # Returns

    For each batch the positions of its sentences; every position is in exactly one. Sentences of one length
    keep their order.
    """
    batch: List[int] = []
    for position in sorted(range(len(lengths)), key=lambda position: -lengths[position]):
        if batch:
            padded_tokens = (len(batch) + 1) * lengths[batch[0]]
            if len(batch) == batch_size or (
                batch_tokens is not None and padded_tokens > batch_tokens
            ):
                yield batch
                batch = []
        batch.append(position)
    if batch:
        yield batch


def consecutive_groups(
    sentences: Iterable[SentenceT], max_sentences: int, max_tokens: Optional[int] = None
) -> Iterator[List[SentenceT]]:
    """
    Cut a stream into groups, in its order.

    # Parameters

    sentences
        Any number, also endlessly many.
    max_sentences : `int`
        At most so many sentences are in a group. A full group is given before more is read.
    max_tokens : `int`, optional
        At most so many tokens are in a group, without padding. A sentence that is longer is a group of its
        own. That a group has no room for a sentence shows when the sentence has been read.
    """
    group: List[SentenceT] = []
    num_tokens = 0
    for sentence in sentences:
        if group and max_tokens is not None and num_tokens + len(sentence) > max_tokens:
            yield group
            group, num_tokens = [], 0
        group.append(sentence)
        num_tokens += len(sentence)
        if len(group) >= max_sentences or (max_tokens is not None and num_tokens >= max_tokens):
            yield group
            group, num_tokens = [], 0
    if group:
        yield group
