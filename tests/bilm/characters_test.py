import re
from typing import Any, Callable, List

import numpy
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from elmo_plugin import batch_to_ids
from elmo_plugin.bilm import batch
from elmo_plugin.bilm.batch import distinct_words
from tests.conftest import SENTENCES, of_allennlp


@given(st.lists(st.lists(st.text(max_size=60), min_size=1, max_size=3), min_size=1, max_size=3))
@example(SENTENCES)
@example([["\ud83d", "a\ud83db"]])  # halves of surrogate pairs
def test_ids_are_those_of_allennlp(sentences: list) -> None:
    assert torch.equal(batch_to_ids(sentences), of_allennlp("modules.elmo.batch_to_ids")(sentences))


@pytest.mark.parametrize("form", [tuple, numpy.array], ids=["tuples", "arrays"])
def test_words_may_be_in_any_sequence(form: Callable[[List[str]], Any]) -> None:
    words = [["a", "été"], ["日本語"]]
    assert torch.equal(batch_to_ids([form(sentence) for sentence in words]), batch_to_ids(words))


def test_batches_without_words_keep_three_dimensions() -> None:
    assert batch_to_ids([]).shape == (0, 0, 50)
    assert batch_to_ids([[], []]).shape == (2, 0, 50)


def test_a_string_in_place_of_words_is_refused() -> None:
    with pytest.raises(ValueError, match="Sentence 1 is 'Hello there', expected a list of tokens"):
        batch_to_ids([["Hello"], "Hello there"])


@pytest.mark.parametrize("word", [None, 1, b"a", ["a"], (), float("nan"), numpy.int64(1)], ids=repr)
def test_a_word_that_is_no_string_is_named(word: Any) -> None:
    with pytest.raises(ValueError, match=re.escape(f"Token 1 of sentence 0 is {word!r}, expected")):
        batch_to_ids([["a", word]])


word_lists = st.lists(st.text(max_size=3), max_size=20)


@given(words=word_lists)
def test_types_are_distinct_and_give_back_the_words(words: list) -> None:
    character_ids = batch_to_ids([words])[0]
    types, index = distinct_words(character_ids)
    assert torch.equal(types[index], character_ids)
    assert len(types) == len(torch.unique(character_ids, dim=0))


def test_types_are_right_even_if_all_hashes_collide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch, "_multipliers", lambda words: torch.zeros(50, dtype=torch.long))
    character_ids = batch_to_ids([["a", "b", "a", "c"]])[0]
    types, index = distinct_words(character_ids)
    assert len(types) == 3
    assert torch.equal(types[index], character_ids)
