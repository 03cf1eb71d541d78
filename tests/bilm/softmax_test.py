"""Exact softmaxes of the core. Their losses are compared with slow loops in tests/pretraining."""

import math
from typing import Any, Dict

import pytest
import torch
from torch import Tensor

from elmo_plugin.bilm.softmax import (
    ExactAdaptiveSoftmax,
    ExactFullSoftmax,
    ExactSoftmax,
    perplexities,
    softmax_of,
)
from elmo_plugin.errors import ConfigurationError

NUM_WORDS, INPUT_DIM, NUM_POSITIONS = 37, 8, 5


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


FULL: Dict[str, Tensor] = {"W": random(NUM_WORDS, INPUT_DIM), "b": random(NUM_WORDS, seed=1)}
# 10 frequent words and two clusters, of 15 and 12 words.
ADAPTIVE: Dict[str, Tensor] = {
    "adaptive.head.weight": random(12, INPUT_DIM),
    "adaptive.head.bias": random(12, seed=1),
    "adaptive.tail.0.0.weight": random(4, INPUT_DIM, seed=2),
    "adaptive.tail.0.1.weight": random(15, 4, seed=3),
    "adaptive.tail.1.0.weight": random(2, INPUT_DIM, seed=4),
    "adaptive.tail.1.1.weight": random(12, 2, seed=5),
}


@pytest.fixture(params=["full", "adaptive"])
def softmax(request: Any) -> ExactSoftmax:
    return softmax_of(FULL if request.param == "full" else ADAPTIVE, "weights.hdf5")


def test_its_sizes_are_those_of_the_datasets(softmax: ExactSoftmax) -> None:
    assert (softmax.num_words, softmax.input_dim) == (NUM_WORDS, INPUT_DIM)


def test_probabilities_sum_to_one(softmax: ExactSoftmax) -> None:
    sums = softmax.log_probabilities(random(NUM_POSITIONS, INPUT_DIM)).exp().sum(dim=1)
    assert torch.allclose(sums, torch.ones(NUM_POSITIONS), atol=1e-5)


def test_the_loss_of_a_word_is_its_negative_log_probability(softmax: ExactSoftmax) -> None:
    states = random(NUM_POSITIONS, INPUT_DIM)
    table = softmax.log_probabilities(states)
    for word in range(NUM_WORDS):
        nll = softmax.nll(states, torch.full((NUM_POSITIONS,), word))
        assert nll.dtype == torch.float64
        assert torch.allclose(-nll.float(), table[:, word], atol=1e-5)


def test_a_full_softmax_is_torchs() -> None:
    states = random(NUM_POSITIONS, INPUT_DIM)
    expected = torch.nn.functional.linear(states, FULL["W"], FULL["b"]).log_softmax(dim=1)
    found = ExactFullSoftmax(FULL["W"], FULL["b"]).log_probabilities(states)
    assert torch.allclose(found, expected, atol=1e-6)


def test_an_adaptive_softmax_is_torchs() -> None:
    theirs = torch.nn.AdaptiveLogSoftmaxWithLoss(
        INPUT_DIM, NUM_WORDS, [10, 25], div_value=2.0, head_bias=True
    )
    theirs.load_state_dict(
        {name.removeprefix("adaptive."): value for name, value in ADAPTIVE.items()}
    )
    states = random(NUM_POSITIONS, INPUT_DIM)
    ours = softmax_of(ADAPTIVE, "weights.hdf5")
    assert isinstance(ours, ExactAdaptiveSoftmax)
    assert torch.allclose(ours.log_probabilities(states), theirs.log_prob(states), atol=1e-5)


def test_half_precision_and_autocast_do_not_change_results(softmax: ExactSoftmax) -> None:
    states, words = random(NUM_POSITIONS, INPUT_DIM), torch.arange(NUM_POSITIONS)
    expected = softmax.nll(states, words), softmax.log_probabilities(states)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = softmax.nll(states, words), softmax.log_probabilities(states)
    assert all(map(torch.equal, found, expected))


@pytest.mark.parametrize(
    "datasets, message",
    [
        ({}, r"weights: found the datasets \(none\) of a softmax, expected W, b"),
        ({"W": FULL["W"]}, "found the datasets W of a softmax, expected W, b"),
        ({**FULL, "c": FULL["b"]}, "found the datasets W, b, c of a softmax, expected W, b"),
        (
            {**ADAPTIVE, "W": FULL["W"]},
            r"W, adaptive.head.bias, .*, expected adaptive.head.weight, adapt",
        ),
        ({"W": FULL["b"], "b": FULL["b"]}, r"softmax/W has shape \(37,\), expected 2 dimension"),
        ({"W": FULL["W"], "b": FULL["W"]}, r"softmax/b has shape \(37, 8\), expected 1 dimension"),
        ({"W": FULL["W"][1:], "b": FULL["b"]}, r"softmax/W has 36 rows and b has 37, expected one"),
        ({"W": FULL["W"] / 0, "b": FULL["b"]}, "softmax/W holds NaN or infinite values, expected"),
    ],
)
def test_other_datasets_are_refused(datasets: Dict[str, Tensor], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        softmax_of(datasets, "weights")


def test_perplexities() -> None:
    found = perplexities([3 * math.log(10), 3 * math.log(1000)], 3)
    assert found == {
        "forward_perplexity": pytest.approx(10),
        "backward_perplexity": pytest.approx(1000),
        "perplexity": pytest.approx(505),
        "bilm_tf_perplexity": pytest.approx(100),
    }
    assert perplexities([1e9, 1e9], 1)["perplexity"] == pytest.approx(math.exp(700))
