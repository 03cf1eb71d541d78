"""The exact softmax of the core. Its losses are compared with slow loops in tests/pretraining."""

import math
from pathlib import Path
from typing import Dict

import h5py
import numpy
import pytest
import torch
from torch import Tensor

from elmo_plugin.bilm.softmax import ExactSoftmax, perplexities, read_softmax, softmax_of
from elmo_plugin.errors import ConfigurationError
from tests.closeness import assert_close

NUM_WORDS, INPUT_DIM, NUM_POSITIONS = 37, 8, 5

# The sums on the way to a probability: a logit, and the exponentials of all.
TERMS = INPUT_DIM + 1 + NUM_WORDS


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


FULL: Dict[str, Tensor] = {"W": random(NUM_WORDS, INPUT_DIM), "b": random(NUM_WORDS, seed=1)}


@pytest.fixture
def softmax() -> ExactSoftmax:
    return softmax_of(FULL, "weights.hdf5")


def test_losses_and_probabilities_are_torchs(softmax: ExactSoftmax) -> None:
    states = random(NUM_POSITIONS, INPUT_DIM)
    expected = torch.nn.functional.linear(states, FULL["W"], FULL["b"]).log_softmax(dim=1)
    assert_close(softmax.log_probabilities(states), expected, TERMS)
    words = torch.tensor([0, 36, 5, 5, 17])
    nll = softmax.nll(states, words)
    assert nll.dtype == torch.float64
    chosen = expected[torch.arange(NUM_POSITIONS), words]
    assert_close(-nll, chosen, TERMS, scale=float(expected.abs().max()))


def test_half_precision_and_autocast_do_not_change_results(softmax: ExactSoftmax) -> None:
    states, words = random(NUM_POSITIONS, INPUT_DIM), torch.arange(NUM_POSITIONS)
    expected = softmax.nll(states, words), softmax.log_probabilities(states)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = softmax.nll(states, words), softmax.log_probabilities(states)
    # Autocast is off inside: the same call twice.
    assert all(map(torch.equal, found, expected))


@pytest.mark.parametrize(
    "datasets, message",
    [
        ({"W": FULL["W"]}, "found the datasets W of a softmax, expected W, b"),
        ({**FULL, "c": FULL["b"]}, "found the datasets W, b, c of a softmax, expected W, b"),
        (
            {"W": FULL["W"][1:], "b": FULL["b"]},
            r"shapes \(36, 8\) \(W\) and \(37,\) \(b\), expected",
        ),
        ({"W": FULL["W"] / 0, "b": FULL["b"]}, "softmax/W holds NaN or infinite values, expected"),
    ],
)
def test_other_datasets_are_refused(datasets: Dict[str, Tensor], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        softmax_of(datasets, "weights")


@pytest.mark.parametrize(
    "biases, message",
    [
        (numpy.full(NUM_WORDS, 1e300), "softmax/b holds NaN or infinite values, expected finite"),
        (
            numpy.array([-numpy.inf, *[numpy.inf] * (NUM_WORDS - 1)]),
            "softmax/b holds NaN or infinite values, expected finite",
        ),
        (numpy.ones(NUM_WORDS, "int8"), "softmax/b holds values of type int8, expected floating"),
    ],
)
@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_numbers_in_a_file_that_no_softmax_has(
    biases: numpy.ndarray, message: str, tmp_path: Path
) -> None:
    """The error is all: numpy does not warn of them."""
    path = tmp_path / "softmax.hdf5"
    with h5py.File(path, "w") as file:
        file["softmax/W"] = FULL["W"].numpy()
        file["softmax/b"] = biases
    with pytest.raises(ConfigurationError, match=rf"softmax\.hdf5: dataset {message}"):
        read_softmax(path)


def test_perplexities() -> None:
    found = perplexities([3 * math.log(10), 3 * math.log(1000)], 3)
    expected = {
        "forward_perplexity": 10,
        "backward_perplexity": 1000,
        "perplexity": 505,
        "bilm_tf_perplexity": 100,
    }
    assert found.keys() == expected.keys()
    for name, perplexity in expected.items():
        # An error of a logarithm, of up to log(1000), is a relative one of its exponential.
        assert_close(found[name], perplexity, 3, scale=1000 * math.log(1000))
    # The bound of overflows: the same exponential.
    assert perplexities([1e9, 1e9], 1)["perplexity"] == math.exp(700)


def test_a_nearly_certain_word_has_no_negative_loss(softmax: ExactSoftmax) -> None:
    states = 1000 * random(NUM_POSITIONS, INPUT_DIM)
    best = softmax.log_probabilities(states).argmax(dim=1)
    assert (softmax.nll(states, best) >= 0).all()
