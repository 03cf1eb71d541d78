from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from elmo_plugin import batch_to_ids
from elmo_plugin.bilm import character_encoder
from elmo_plugin.bilm.character_encoder import CharacterEncoder
from elmo_plugin.bilm.options import BiLMOptions
from tests.conftest import TINY_OPTIONS

WIDE = replace(TINY_OPTIONS, filters=((1, 4), (2, 8), (7, 12)))


@given(words=st.lists(st.text(max_size=30), min_size=1, max_size=6))
def test_leaving_out_repeated_padding_changes_nothing(words: list) -> None:
    torch.manual_seed(0)
    encoder = CharacterEncoder(WIDE)
    ids = batch_to_ids([words])[0]
    # A word of 48 bytes makes every character of the batch count.
    longest = batch_to_ids([["x" * 48]])[0]
    full = encoder(torch.cat([ids, longest]))[:-1]
    assert torch.allclose(encoder(ids), full, atol=1e-6)


@pytest.mark.parametrize("num_words", [0, 1, 5])
def test_any_number_of_words(num_words: int) -> None:
    words = batch_to_ids([["w"] * num_words])[0]
    assert CharacterEncoder(WIDE)(words).shape == (num_words, 6)


def test_blocks_of_words_are_put_together(monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = CharacterEncoder(WIDE)
    words = batch_to_ids([["a", "bb", "ccc", "dddd", "eeeee"]])[0]
    expected = encoder(words)
    monkeypatch.setattr(character_encoder, "WORDS_PER_BLOCK", 2)
    assert torch.allclose(encoder(words), expected, atol=1e-6)


def test_padding_characters_have_no_embedding_and_get_no_gradient() -> None:
    encoder = CharacterEncoder(TINY_OPTIONS)
    encoder(torch.zeros(1, 50, dtype=torch.long)).sum().backward()
    assert not encoder.character_embedding.weight[0].any()
    assert not encoder.character_embedding.weight.grad[0].any()


@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_initial_values_are_those_of_bilm_tf(activation: str) -> None:
    torch.manual_seed(0)
    options = BiLMOptions(
        activation=activation, filters=((3, 600),), cell_size=32, projection_dim=16
    )
    encoder = CharacterEncoder(options)
    embedding = encoder.character_embedding.weight[1:]
    assert embedding.abs().max() <= 1
    assert embedding.std().item() == pytest.approx(3**-0.5, rel=0.05)
    weight = encoder.convolutions[0].weight
    expected_deviation = 0.05 / 3**0.5 if activation == "relu" else (3 * 16) ** -0.5
    assert weight.std().item() == pytest.approx(expected_deviation, rel=0.05)
    highway = encoder.highways[0]
    assert highway.carry.weight.std().item() == pytest.approx(600**-0.5, rel=0.05)
    assert torch.equal(highway.carry.bias, torch.full((600,), -2.0))
    assert not highway.transform.bias.any()
    assert encoder.projection.weight.std().item() == pytest.approx(600**-0.5, rel=0.05)
