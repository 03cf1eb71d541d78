"""Batches of similar length, groups in order, and limits."""

from itertools import chain
from typing import Iterator, List, Optional

from hypothesis import given
from hypothesis import strategies as st

from elmo_plugin.embedding.sentence_batches import (
    batches_by_length,
    consecutive_groups,
    map_in_batches,
)

LENGTHS = st.lists(st.integers(0, 30), max_size=60)
LIMIT = st.integers(1, 40)


@given(LENGTHS, LIMIT, st.none() | LIMIT)
def test_batches_are_sorted_and_full_and_hold_each_sentence_once(
    lengths: List[int], max_tokens: int, max_sentences: Optional[int]
) -> None:
    batches = list(batches_by_length(lengths, max_tokens, max_sentences))
    positions = list(chain.from_iterable(batches))
    # The longest come first, and equals keep their order.
    assert positions == sorted(range(len(lengths)), key=lambda position: -lengths[position])
    max_size = max_sentences or len(lengths)
    for batch in batches:
        assert 1 <= len(batch) <= max_size
        assert len(batch) == 1 or len(batch) * lengths[batch[0]] <= max_tokens
    for batch in batches[:-1]:  # one sentence more would break a limit
        assert len(batch) == max_size or (len(batch) + 1) * lengths[batch[0]] > max_tokens


@given(LENGTHS, LIMIT, st.none() | LIMIT)
def test_groups_keep_order_and_limits(
    lengths: List[int], max_sentences: int, max_tokens: Optional[int]
) -> None:
    sentences = [[number] * length for number, length in enumerate(lengths)]
    groups = list(consecutive_groups(sentences, max_sentences, max_tokens))
    assert list(chain.from_iterable(groups)) == sentences
    for group in groups:
        assert 1 <= len(group) <= max_sentences
        assert max_tokens is None or sum(map(len, group)) <= max_tokens or len(group) == 1
    if max_tokens is None:
        assert all(len(group) == max_sentences for group in groups[:-1])


@given(LENGTHS, LIMIT, LIMIT)
def test_results_are_in_order_and_at_most_one_window_is_read_ahead(
    lengths: List[int], batch_size: int, max_tokens: int
) -> None:
    read: List[List[int]] = []
    batches: List[List[List[int]]] = []

    def sentences() -> Iterator[List[int]]:
        for number, length in enumerate(lengths):
            read.append([number] * length)
            yield read[-1]

    def copied(batch: List[List[int]]) -> List[List[int]]:
        batches.append(batch)
        return [list(sentence) for sentence in batch]

    results = []
    for result in map_in_batches(copied, sentences(), batch_size, max_tokens):
        waiting = read[len(results) :]
        assert len(waiting) <= 1 + (1 if batch_size == 1 else 16 * batch_size)
        assert sum(map(len, waiting[:-1])) <= max_tokens or len(waiting) <= 2
        results.append(result)
    assert results == read
    assert sum(map(len, batches)) == len(lengths)
