"""`scripts/grow_bilm.py`: a wider biLM computes at first what the narrower one does."""

from dataclasses import replace
from typing import Any, Dict

import pytest
import torch

from elmo_plugin import BiLM, batch_to_ids
from elmo_plugin.bilm.lm_vocabulary import SPECIALS, LMVocabulary
from elmo_plugin.bilm.softmax import ExactSoftmax
from elmo_plugin.errors import ConfigurationError
from scripts.grow_bilm import grow_bilm, grow_softmax
from tests.conftest import SENTENCES, TINY_OPTIONS, randomize

FILTERS = TINY_OPTIONS.encoder.filters
WIDER = replace(
    TINY_OPTIONS,
    cell_size=TINY_OPTIONS.cell_size + 5,
    projection_dim=TINY_OPTIONS.projection_dim + 3,
    encoder=replace(TINY_OPTIONS.encoder, filters=tuple((width, n + 2) for width, n in FILTERS)),
)


@torch.no_grad()
def test_a_grown_bilm_computes_the_same() -> None:
    old, new = randomize(BiLM(TINY_OPTIONS)), randomize(BiLM(WIDER))
    grow_bilm(old, new)
    character_ids = batch_to_ids(SENTENCES)
    old_width, new_width = (bilm.options.projection_dim for bilm in (old, new))
    for ours, expected in zip(new(character_ids)["activations"], old(character_ids)["activations"]):
        for direction in range(2):
            start = direction * new_width
            found = ours[..., start : start + old_width]
            part = expected[..., direction * old_width : (direction + 1) * old_width]
            torch.testing.assert_close(found, part)


@pytest.mark.parametrize(
    "sizes, message",
    [
        ({"cell_size": TINY_OPTIONS.cell_size - 1}, "expected no size smaller"),
        ({"cell_size": WIDER.projection_dim}, "expected a projection of cells"),
        ({"encoder": replace(WIDER.encoder, filters=((9, 50),))}, "expected no size smaller"),
    ],
)
def test_other_sizes_are_refused(sizes: Dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        grow_bilm(BiLM(TINY_OPTIONS), BiLM(replace(WIDER, **sizes)))


@pytest.mark.parametrize("new_words", [["x", "y"], []])
def test_new_words_share_a_half_of_the_probability_of_unknown_ones(new_words: Any) -> None:
    old, new = (LMVocabulary([*SPECIALS, *words]) for words in (["a"], ["a", *new_words]))
    softmax = ExactSoftmax(torch.zeros(4, 3), torch.tensor([0.1, 0.2, 0.3, 0.4]))
    grown = grow_softmax(softmax, old, new, width=5)
    assert grown.weight.shape == (4 + len(new_words), 5)
    probabilities = grown.bias.exp()
    unknown = [2, *range(4, 4 + len(new_words))]
    torch.testing.assert_close(probabilities[unknown].sum(), softmax.bias[2].exp())
    torch.testing.assert_close(grown.bias[[0, 1, 3]], softmax.bias[[0, 1, 3]])
