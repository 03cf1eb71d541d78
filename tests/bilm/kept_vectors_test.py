"""What a frozen biLM keeps of words and sentences."""

import random
from typing import Any, List

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from elmo_plugin import FrozenBiLM, batch_to_ids
from elmo_plugin.bilm.kept_vectors import SentenceActivations, WordVectors
from tests.closeness import assert_close
from tests.conftest import SCALE, SENTENCES, TINY_OPTIONS, BiLMFiles, terms_of

CHARACTER_IDS = batch_to_ids(SENTENCES)

TERMS = terms_of(9)


class CountingEncoder:
    """Doubles characters, and remembers which words it was asked for."""

    def __init__(self) -> None:
        self.calls: List[List[int]] = []

    def __call__(self, types: Tensor) -> Tensor:
        self.calls.append(types[:, 0].tolist())
        return 2.0 * types


def types_of(*words: int) -> Tensor:
    return torch.tensor([[word, word + 1] for word in words])


class TestWordVectors:
    @given(
        capacity=st.integers(0, 8),
        batches=st.lists(
            st.lists(st.integers(0, 30), min_size=1, max_size=12, unique=True), max_size=12
        ),
    )
    def test_any_sequence_of_batches_gives_what_the_encoder_gives(
        self, capacity: int, batches: List[List[int]]
    ) -> None:
        words, encoder = WordVectors(capacity), CountingEncoder()
        for batch in batches:
            types = types_of(*batch)
            assert torch.equal(words.read(types, encoder), 2.0 * types)
            assert len(words) <= capacity

    @pytest.mark.parametrize(
        "capacity, batches, encoded",
        [
            (10, [[1, 2], [2, 3], [3, 1]], [[1, 2], [3]]),
            # When it is full, it starts again with the next batch.
            (3, [[1, 2], [3], [4, 1], [4], [2]], [[1, 2], [3], [4], [2]]),
            # Of more words than it holds, it keeps none.
            (3, [[1, 2], [3, 4, 5, 6], [1], [3]], [[1, 2], [3, 4, 5, 6], [3]]),
        ],
    )
    def test_only_unknown_words_are_encoded(
        self, capacity: int, batches: List[List[int]], encoded: List[List[int]]
    ) -> None:
        words, encoder = WordVectors(capacity), CountingEncoder()
        for batch in batches:
            words.read(types_of(*batch), encoder)
        assert encoder.calls == encoded

    @pytest.mark.parametrize("stopped", ["encode", "unbind", "stack"])
    def test_whatever_stops_a_call_no_word_gets_the_vector_of_another(
        self, stopped: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        words, types = WordVectors(5), types_of(1, 2, 3)
        words.read(types_of(1), CountingEncoder())

        def stop(*unused: Any) -> Any:
            raise KeyboardInterrupt

        with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
            patched.setattr(Tensor, "unbind", stop if stopped == "unbind" else Tensor.unbind)
            patched.setattr(torch, "stack", stop if stopped == "stack" else torch.stack)
            words.read(types, stop if stopped == "encode" else CountingEncoder())
        assert torch.equal(words.read(types, CountingEncoder()), 2.0 * types)

    @pytest.mark.parametrize("capacity", [3, 4, 20])
    def test_another_thread_enters_words_meanwhile(self, capacity: int) -> None:
        words, types, others = WordVectors(capacity), types_of(1, 2, 3), types_of(3, 4, 1, 5)
        words.read(types_of(1), CountingEncoder())

        def encode(unknown: Tensor) -> Tensor:
            assert torch.equal(words.read(others, CountingEncoder()), 2.0 * others)
            return 2.0 * unknown

        for known in (types, others, types):
            assert torch.equal(words.read(known, encode), 2.0 * known)


class TestSentenceActivations:
    @pytest.mark.parametrize("megabytes", [0.001, 0.003, 1])
    def test_any_sequence_of_batches_gives_what_the_bilm_gives(
        self, megabytes: float, bilm_files: BiLMFiles
    ) -> None:
        frozen = FrozenBiLM.from_files(*bilm_files, sentence_cache_mb=megabytes)
        whole = frozen(CHARACTER_IDS)
        draw = random.Random(0)
        for _ in range(30):
            rows = draw.choices(range(len(SENTENCES)), k=draw.randint(1, 6))
            output = frozen(CHARACTER_IDS[rows], keep_sentences=True)
            assert torch.equal(output["mask"], whole["mask"][rows])
            for ours, theirs in zip(output["activations"], whole["activations"], strict=True):
                assert_close(ours, theirs[rows], TERMS, SCALE)
                # Whoever keeps a layer does not keep the others in memory.
                assert ours.untyped_storage().nbytes() == ours.nbytes

    def test_a_known_sentence_is_not_read_again(self, bilm_files: BiLMFiles) -> None:
        frozen = FrozenBiLM.from_files(*bilm_files)
        sentences, num_read = SentenceActivations(1), []

        def run(character_ids: Tensor) -> Any:
            num_read.append(len(character_ids))
            return frozen(character_ids)

        for padding, rows in enumerate(([0, 1], [1, 0], [0, 3, 3, 1])):
            character_ids = torch.nn.functional.pad(CHARACTER_IDS[rows], (0, 0, 0, padding))
            sentences.read(character_ids, run)
        assert num_read == [2, 2]
        assert len(sentences) == 3
        # What is kept does not keep its batch in memory.
        for kept in sentences._activations_of.values():
            assert kept.untyped_storage().nbytes() == kept.nbytes

    @pytest.mark.parametrize("num_sentences", [1, 1.99])
    def test_it_holds_what_came_first_and_says_once_that_it_is_full(
        self, num_sentences: float, bilm_files: BiLMFiles, caplog: pytest.LogCaptureFixture
    ) -> None:
        # Characters of two words, and activations of these and the two marks.
        of_two_words = 2 * 50 * 2 + 3 * 4 * 2 * TINY_OPTIONS.projection_dim * 4
        sentences = SentenceActivations(num_sentences * of_two_words / 1e6)
        frozen = FrozenBiLM.from_files(*bilm_files)
        for _ in range(2):
            for words in (["a", "b"], ["c", "d"]):
                sentences.read(batch_to_ids([words]), frozen)
        assert len(sentences) == 1
        assert caplog.text.count("MB is full: all other sentences are read anew") == 1
