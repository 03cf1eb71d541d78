import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from elmo_plugin import batch_to_ids
from elmo_plugin.bilm import word_types
from elmo_plugin.bilm.word_types import distinct_words

word_lists = st.lists(st.text(max_size=3), max_size=20)


@given(words=word_lists)
def test_types_are_distinct_and_give_back_the_words(words: list) -> None:
    character_ids = batch_to_ids([words])[0]
    types, index = distinct_words(character_ids)
    assert torch.equal(types[index], character_ids)
    assert len(types) == len(torch.unique(character_ids, dim=0))


def test_types_are_right_even_if_all_hashes_collide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(word_types, "_multipliers", lambda words: torch.zeros(50, dtype=torch.long))
    character_ids = batch_to_ids([["a", "b", "a", "c"]])[0]
    types, index = distinct_words(character_ids)
    assert len(types) == 3
    assert torch.equal(types[index], character_ids)
