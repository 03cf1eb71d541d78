from itertools import chain, count, islice
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
OPTIONAL_LIMIT = st.none() | LIMIT


class TestBatchesByLength:
    @given(LENGTHS, OPTIONAL_LIMIT, OPTIONAL_LIMIT)
    def test_every_sentence_is_in_one_batch_and_limits_are_kept(
        self, lengths: List[int], batch_size: Optional[int], batch_tokens: Optional[int]
    ) -> None:
        batches = list(batches_by_length(lengths, batch_size, batch_tokens))
        assert sorted(chain.from_iterable(batches)) == list(range(len(lengths)))
        for batch in batches:
            assert batch
            assert batch_size is None or len(batch) <= batch_size
            padded_tokens = len(batch) * max(lengths[position] for position in batch)
            assert batch_tokens is None or padded_tokens <= batch_tokens or len(batch) == 1

    @given(LENGTHS, OPTIONAL_LIMIT, OPTIONAL_LIMIT)
    def test_the_longest_come_first_and_equals_keep_their_order(
        self, lengths: List[int], batch_size: Optional[int], batch_tokens: Optional[int]
    ) -> None:
        batches = batches_by_length(lengths, batch_size, batch_tokens)
        keys = [(-lengths[position], position) for position in chain.from_iterable(batches)]
        assert keys == sorted(keys)

    @given(LENGTHS, OPTIONAL_LIMIT, OPTIONAL_LIMIT)
    def test_a_batch_ends_only_where_the_next_sentence_would_break_a_limit(
        self, lengths: List[int], batch_size: Optional[int], batch_tokens: Optional[int]
    ) -> None:
        batches = list(batches_by_length(lengths, batch_size, batch_tokens))
        for batch in batches[:-1]:
            padded_tokens = (len(batch) + 1) * lengths[batch[0]]
            assert len(batch) == batch_size or padded_tokens > (batch_tokens or float("inf"))

    def test_a_sentence_longer_than_the_limit_is_a_batch_of_its_own(self) -> None:
        assert list(batches_by_length([2, 9, 0, 3, 2], None, 8)) == [[1], [3, 0], [4, 2]]


class TestConsecutiveGroups:
    @given(LENGTHS, LIMIT, OPTIONAL_LIMIT)
    def test_order_and_limits_are_kept(
        self, lengths: List[int], max_sentences: int, max_tokens: Optional[int]
    ) -> None:
        sentences = [[number] * length for number, length in enumerate(lengths)]
        groups = list(consecutive_groups(sentences, max_sentences, max_tokens))
        assert list(chain.from_iterable(groups)) == sentences
        for group in groups:
            assert 1 <= len(group) <= max_sentences
            num_tokens = sum(len(sentence) for sentence in group)
            assert max_tokens is None or num_tokens <= max_tokens or len(group) == 1

    @given(LENGTHS, LIMIT)
    def test_without_a_limit_of_tokens_all_groups_but_the_last_are_full(
        self, lengths: List[int], max_sentences: int
    ) -> None:
        groups = list(consecutive_groups([[0] * length for length in lengths], max_sentences))
        assert all(len(group) == max_sentences for group in groups[:-1])

    def test_a_full_group_comes_before_more_is_read(self) -> None:
        num_read = 0

        def endless_sentences() -> Iterator[List[int]]:
            nonlocal num_read
            for num_read in count(1):
                yield [num_read] * 2

        groups = consecutive_groups(endless_sentences(), 3)
        assert (len(next(groups)), num_read) == (3, 3)
        groups = consecutive_groups(endless_sentences(), 100, max_tokens=8)
        assert (len(next(groups)), num_read) == (4, 4)


class TestMapInBatches:
    @given(LENGTHS, OPTIONAL_LIMIT, OPTIONAL_LIMIT, LIMIT, LIMIT)
    def test_each_sentence_has_its_own_result_in_its_place(
        self,
        lengths: List[int],
        batch_size: Optional[int],
        batch_tokens: Optional[int],
        max_sentences_ahead: int,
        max_tokens_ahead: int,
    ) -> None:
        sentences = [[number] * length for number, length in enumerate(lengths)]
        num_seen = 0

        def with_length(batch: List[List[int]]) -> List[tuple]:
            nonlocal num_seen
            num_seen += len(batch)
            return [(sentence, len(sentence)) for sentence in batch]

        results = list(
            map_in_batches(
                with_length,
                sentences,
                batch_size,
                batch_tokens,
                max_sentences_ahead,
                max_tokens_ahead,
            )
        )
        assert results == [(sentence, len(sentence)) for sentence in sentences]
        assert num_seen == len(sentences)

    @given(LENGTHS, LIMIT, LIMIT)
    def test_no_more_is_read_than_one_window_and_a_sentence_ahead_of_the_results(
        self, lengths: List[int], max_sentences_ahead: int, max_tokens_ahead: int
    ) -> None:
        read: List[List[int]] = []

        def sentences() -> Iterator[List[int]]:
            for length in lengths:
                read.append([0] * length)
                yield read[-1]

        results = map_in_batches(
            lambda batch: batch, sentences(), 4, None, max_sentences_ahead, max_tokens_ahead
        )
        for num_given, _ in enumerate(results):
            assert len(read) - num_given <= max_sentences_ahead + 1
            waiting = [len(sentence) for sentence in read[num_given:-1]]
            assert sum(waiting) <= max_tokens_ahead or len(waiting) <= 1

    def test_endless_streams_have_results(self) -> None:
        sentences = ([number] * (number % 7) for number in count())
        results = map_in_batches(lambda batch: batch, sentences, 2, 5, 10, 40)
        assert [len(result) for result in islice(results, 100)] == [n % 7 for n in range(100)]
