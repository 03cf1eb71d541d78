import copy
import logging
import pickle
import threading
from typing import List

import pytest
import torch
from allennlp.common.checks import ConfigurationError
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from elmo_plugin.bilm.word_type_cache import WordTypeCache


class CountingEncoder:
    """Doubles characters, and remembers which words it was asked for."""

    def __init__(self) -> None:
        self.calls: List[List[int]] = []

    def __call__(self, types: Tensor) -> Tensor:
        self.calls.append(types[:, 0].tolist())
        return 2.0 * types


def types_of(*words: int) -> Tensor:
    return torch.tensor([[word, word + 1] for word in words])


batches_of_words = st.lists(
    st.lists(st.integers(0, 30), min_size=1, max_size=12, unique=True), max_size=12
)


@given(capacity=st.integers(0, 8), batches=batches_of_words)
def test_any_sequence_of_batches_gives_what_the_encoder_gives(
    capacity: int, batches: List[List[int]]
) -> None:
    cache, encoder = WordTypeCache(capacity), CountingEncoder()
    for words in batches:
        types = types_of(*words)
        assert torch.equal(cache.encode(types, encoder, version=0), 2.0 * types)
        assert len(cache) <= capacity


def test_only_unknown_words_are_encoded() -> None:
    cache, encoder = WordTypeCache(10), CountingEncoder()
    for words in ([1, 2], [2, 3], [3, 1]):
        cache.encode(types_of(*words), encoder, version=0)
    assert encoder.calls == [[1, 2], [3]]
    assert (cache.num_hits, cache.num_lookups) == (3, 6)
    assert cache.hit_rate == 0.5


def test_the_least_recently_used_word_goes_first() -> None:
    cache, encoder = WordTypeCache(2), CountingEncoder()
    for word in (1, 2, 1, 3, 1, 2):  # 3 drops 2
        cache.encode(types_of(word), encoder, version=0)
    assert encoder.calls == [[1], [2], [3], [2]]


def test_the_table_grows_up_to_the_capacity() -> None:
    cache, encoder = WordTypeCache(5000), CountingEncoder()
    for start in range(0, 6000, 500):
        words = range(start, start + 500)
        assert torch.equal(cache.encode(types_of(*words), encoder, 0), 2.0 * types_of(*words))
    assert len(cache) == 5000
    cache.encode(types_of(5999), encoder, version=0)
    assert len(encoder.calls) == 12


def test_another_version_or_clearing_empties_the_cache() -> None:
    cache, encoder = WordTypeCache(10), CountingEncoder()
    cache.encode(types_of(1), encoder, version=0)
    cache.encode(types_of(1), encoder, version=1)
    cache.clear()
    cache.encode(types_of(1), encoder, version=1)
    assert encoder.calls == [[1], [1], [1]]


def test_copies_and_pickles_start_empty_with_the_same_capacity() -> None:
    cache = WordTypeCache(7)
    cache.encode(types_of(1), CountingEncoder(), version=0)
    for other in (copy.deepcopy(cache), pickle.loads(pickle.dumps(cache))):
        assert len(other) == 0
        assert other.capacity == 7
        assert torch.equal(other.encode(types_of(1), CountingEncoder(), 0), 2.0 * types_of(1))


def test_threads_share_a_small_cache_without_mixing_words_up() -> None:
    cache = WordTypeCache(3)
    wrong: List[int] = []

    def use(start: int) -> None:
        for word in range(start, start + 300):
            types = types_of(word % 7, word % 7 + 100)
            if not torch.equal(cache.encode(types, CountingEncoder(), version=0), 2.0 * types):
                wrong.append(word)

    threads = [threading.Thread(target=use, args=(start,)) for start in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_the_hit_rate_is_logged_after_1_10_100_and_every_1000_batches(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cache = WordTypeCache(10)
    with caplog.at_level(logging.INFO):
        for _ in range(2000):
            cache.encode(types_of(1, 2), CountingEncoder(), version=0)
    assert [record.getMessage() for record in caplog.records] == [
        "Word-type cache: hit rate 0.0% of 2 word types in 1 batches; holds 2 types, room for 10.",
        "Word-type cache: hit rate 90.0% of 20 word types in 10 batches; holds 2 types, room for 10.",
        "Word-type cache: hit rate 99.0% of 200 word types in 100 batches; holds 2 types, room for 10.",
        "Word-type cache: hit rate 99.9% of 2,000 word types in 1,000 batches; holds 2 types, "
        "room for 10.",
        "Word-type cache: hit rate 100.0% of 4,000 word types in 2,000 batches; holds 2 types, "
        "room for 10.",
    ]


def test_a_negative_capacity_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="word_cache_size is -1, expected 0"):
        WordTypeCache(-1)
