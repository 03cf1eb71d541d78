from typing import List

import pytest
import torch
from allennlp.common import Lazy, Params
from torch import Tensor

from elmo_plugin.bilm import softmax
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.pretraining import AdaptiveSoftmax, LMSoftmax

NUM_WORDS, INPUT_DIM = 40, 8


def adaptive_softmax(div_value: float = 2.0) -> AdaptiveSoftmax:
    torch.manual_seed(0)
    adaptive = AdaptiveSoftmax(NUM_WORDS, INPUT_DIM, cutoffs=[5, 17], div_value=div_value)
    for parameter in adaptive.parameters():
        torch.nn.init.normal_(parameter)
    return adaptive


def random_states(num_positions: int) -> Tensor:
    return torch.randn(num_positions, INPUT_DIM, generator=torch.Generator().manual_seed(1))


def test_probabilities_sum_to_one_over_the_vocabulary() -> None:
    adaptive = adaptive_softmax()
    for state in random_states(5):
        states = state.expand(NUM_WORDS, INPUT_DIM)
        total = (-adaptive.exact_nll(states, torch.arange(NUM_WORDS))).exp().sum()
        assert total.item() == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize("logits_per_chunk", [2**20, 50, 1])
@pytest.mark.parametrize("positions_per_chunk", [4096, 7])
def test_the_exact_loss_is_torchs_in_float64(
    logits_per_chunk: int, positions_per_chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    adaptive = adaptive_softmax()
    # Every word, so every cluster and both its ends.
    states, targets = random_states(NUM_WORDS), torch.arange(NUM_WORDS).flip(0)
    loss = adaptive(states, targets)
    monkeypatch.setattr(softmax, "LOGITS_PER_CHUNK", logits_per_chunk)
    monkeypatch.setattr(softmax, "POSITIONS_PER_CHUNK", positions_per_chunk)
    exact = adaptive.exact_nll(states, targets)
    assert exact.dtype == torch.float64
    expected = -adaptive.adaptive.double()(states.double(), targets).output
    # float32 products of logits around 10.
    assert torch.allclose(exact, expected, rtol=0, atol=1e-5)
    assert torch.allclose(loss.double(), expected, rtol=0, atol=1e-5)


def test_a_cluster_without_targets_is_left_out() -> None:
    adaptive = adaptive_softmax()
    states, targets = random_states(3), torch.tensor([0, 39, 4])
    expected = adaptive(states, targets)
    assert torch.allclose(adaptive.exact_nll(states, targets).float(), expected, atol=1e-5)


def test_the_exact_loss_ignores_autocast() -> None:
    adaptive = adaptive_softmax()
    states, targets = random_states(NUM_WORDS), torch.arange(NUM_WORDS)
    expected = adaptive.exact_nll(states, targets)
    assert not expected.requires_grad
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(adaptive.exact_nll(states, targets), expected)


def test_configs_choose_cutoffs_and_div_value() -> None:
    params = Params({"type": "elmo_adaptive", "cutoffs": [5, 17], "div_value": 2})
    adaptive = Lazy(LMSoftmax, params=params).construct(num_words=NUM_WORDS, input_dim=INPUT_DIM)
    assert isinstance(adaptive, AdaptiveSoftmax)
    shapes = [tuple(parameter.shape) for parameter in adaptive.adaptive.tail.parameters()]
    assert shapes == [(4, 8), (12, 4), (2, 8), (23, 2)]


@pytest.mark.parametrize("cutoffs", [[], [0], [5, 5], [17, 5], [NUM_WORDS], [5, 60]])
def test_cutoffs_that_are_no_rising_words_are_refused(cutoffs: List[int]) -> None:
    with pytest.raises(
        ConfigurationError, match=r"cutoffs is .*, expected rising numbers from 1 to 39"
    ):
        AdaptiveSoftmax(NUM_WORDS, INPUT_DIM, cutoffs)


@pytest.mark.parametrize("div_value", [0.0, -2.0, 3.0])
def test_a_div_value_that_leaves_no_width_is_refused(div_value: float) -> None:
    with pytest.raises(
        ConfigurationError, match=f"div_value is {div_value}, which leaves no width"
    ):
        adaptive_softmax(div_value)
