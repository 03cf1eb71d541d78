import math
from dataclasses import replace
from typing import Any, Type

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from elmo_plugin import batch_to_ids
from elmo_plugin.bilm import character_encoder
from elmo_plugin.bilm.character_encoder import CharacterEncoder
from elmo_plugin.bilm.options import ACTIVATIONS, CharacterEncoderOptions
from elmo_plugin.bilm.simd.character_encoder import PanelEncoder
from elmo_plugin.bilm.simd.library import best_unit
from tests.bilm.conftest import skip_without_library
from tests.bilm.runners_test import UNITS
from tests.closeness import assert_close

WIDE = CharacterEncoderOptions("relu", 4, ((1, 4), (2, 8), (7, 12)), num_highway=1)
OUTPUT_DIM = 6

# The sums on the way to a vector: the widest filter over characters, highway and projection.
TERMS = 7 * 4 + 2 * 24 + 24


@pytest.mark.parametrize("is_trained", [True, False], ids=["in C++", "in torch"])
@given(words=st.lists(st.text(max_size=30), min_size=1, max_size=6))
def test_leaving_out_repeated_padding_changes_nothing(is_trained: bool, words: list) -> None:
    torch.manual_seed(0)
    encoder = CharacterEncoder(WIDE, OUTPUT_DIM)
    ids = batch_to_ids([words])[0]
    # A word of 48 bytes makes every character of the batch count.
    longest = batch_to_ids([["x" * 48]])[0]
    with torch.set_grad_enabled(is_trained):
        full = encoder(torch.cat([ids, longest]))[:-1]
        assert_close(encoder(ids), full, TERMS)


@pytest.mark.parametrize(
    "words, error",
    [
        (torch.full((1, 50), 300), IndexError),
        (torch.full((1, 50), -1), IndexError),
        (torch.ones(1, 3, dtype=torch.long), RuntimeError),
    ],
)
@torch.no_grad()  # else the C++ library encodes in both
def test_ids_that_no_embedding_has_and_words_shorter_than_a_filter_are_refused(
    words: torch.Tensor, error: Type[Exception]
) -> None:
    unit = best_unit()
    skip_without_library(unit)
    encoder = CharacterEncoder(WIDE, OUTPUT_DIM)
    panels = PanelEncoder(encoder, "float32", unit)
    with pytest.raises(
        ValueError, match=r"Found character ids from .* expected 0 to 261, and 7 or"
    ):
        panels(words)
    with pytest.raises(error):
        encoder(words)


@torch.no_grad()  # else the C++ library encodes all words at once
def test_blocks_of_words_are_put_together(monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = CharacterEncoder(WIDE, OUTPUT_DIM)
    words = batch_to_ids([["a", "bb", "ccc", "dddd", "eeeee"]])[0]
    expected = encoder(words)
    monkeypatch.setattr(character_encoder, "WORDS_PER_BLOCK", 2)
    assert_close(encoder(words), expected, TERMS)


@pytest.mark.parametrize("num_threads", [1, 3])
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.usefixtures("same_threads_afterwards")
def test_gradients_in_cpp_are_those_of_torch(
    unit: str, activation: str, num_threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    skip_without_library(unit)
    torch.manual_seed(0)
    encoder = CharacterEncoder(
        replace(WIDE, activation=activation, character_embedding_dim=19), OUTPUT_DIM
    )
    for convolution in encoder.convolutions:
        torch.nn.init.normal_(convolution.weight)
        torch.nn.init.normal_(convolution.bias)
    # Of equal windows the gradient of any is that of all; a row of zeros is padding.
    words = batch_to_ids([["a", "bb", "mississippi", "aaaaaaaa", "x" * 60, "", "\u9f8d"]])[0]
    words = torch.cat([words, torch.zeros_like(words[:1])])
    weights = torch.randn(len(words), 6)
    results = []
    torch.set_num_threads(num_threads)
    for chosen in (unit, None):
        monkeypatch.setattr(
            character_encoder, "unit_of_modules", lambda tensor, chosen=chosen: chosen
        )
        encoder.zero_grad()
        assert (encoder._maxima_in_cpp(words) is None) == (chosen is None)
        vectors = encoder(words)
        (vectors * weights).sum().backward()
        results.append([vectors.detach(), *(parameter.grad for parameter in encoder.parameters())])
    # Forwards, and backwards as far as a character's embedding: over filters, their width and words.
    terms = 7 * 19 + 2 * (2 * 24 + 24) + 24 * 7 * len(words)
    for ours, theirs in zip(*results, strict=True):
        # Weights of the loss are of both signs, and so are the terms of gradients.
        assert_close(ours, theirs, terms, scale=max(1.0, float(theirs.abs().max())))


class DoubledEmbedding(torch.nn.Embedding):
    """The vectors that it returns are not the rows of its weight."""

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return 2 * super().forward(ids)


@pytest.mark.parametrize(
    "module, setting, value",
    [
        ("character_embedding", "__class__", DoubledEmbedding),
        ("character_embedding", "max_norm", 0.1),
        ("convolutions.1", "dilation", (2,)),
        ("convolutions.1", "stride", (3,)),
    ],
)
def test_settings_and_classes_that_were_changed_count_in_training(
    module: str, setting: str, value: Any
) -> None:
    torch.manual_seed(0)
    encoder = CharacterEncoder(WIDE, OUTPUT_DIM)
    words = batch_to_ids([["word", "another"]])[0]
    unchanged = encoder(words).detach()
    setattr(encoder.get_submodule(module), setting, value)
    with torch.no_grad():
        expected = encoder(words)
    assert not torch.equal(expected, unchanged)
    assert_close(encoder(words), expected, TERMS)


def test_not_a_number_passes_through_training() -> None:
    encoder = CharacterEncoder(WIDE, OUTPUT_DIM)
    words = batch_to_ids([["a", "b"]])[0]
    with torch.no_grad():
        encoder.character_embedding.weight[words[1, 1]] = math.nan
    vectors = encoder(words)
    assert vectors[1].isnan().all() and not vectors[0].isnan().any()
    vectors.sum().backward()
    assert encoder.convolutions[0].weight.grad.isnan().any()


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_initial_values_are_those_of_bilm_tf(activation: str) -> None:
    # Limits are statistics: standard deviations of at least 3,000 random numbers.
    torch.manual_seed(0)
    encoder = CharacterEncoder(CharacterEncoderOptions(activation, filters=((3, 600),)), 16)
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
