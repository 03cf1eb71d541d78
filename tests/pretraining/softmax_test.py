from typing import Tuple

import pytest
import torch
from torch import Tensor

from elmo_plugin.bilm import softmax
from elmo_plugin.pretraining import FullSoftmax
from elmo_plugin.pretraining import softmax as training_softmax
from tests.closeness import assert_close

NUM_WORDS, INPUT_DIM, NUM_POSITIONS = 37, 6, 11
# A logit sums products and a bias; a loss sums exponentials of logits.
LOGIT_TERMS = INPUT_DIM + 1
LOSS_TERMS = LOGIT_TERMS + NUM_WORDS


def softmax_with_biases() -> FullSoftmax:
    torch.manual_seed(0)
    full = FullSoftmax(NUM_WORDS, INPUT_DIM)
    torch.nn.init.normal_(full.word_biases.weight)
    return full


def positions(scale: float = 1.0) -> Tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    states = scale * torch.randn(NUM_POSITIONS, INPUT_DIM, generator=generator)
    return states, torch.randint(NUM_WORDS, (NUM_POSITIONS,), generator=generator)


def brute_force_nll(full: FullSoftmax, states: Tensor, targets: Tensor) -> Tensor:
    """One position and one word at a time, in float64."""
    nll = []
    for state, target in zip(states.double(), targets):
        logits = [
            (state * row).sum() + bias
            for row, bias in zip(full.weight.double(), full.bias.double())
        ]
        nll.append(torch.stack(logits).exp().sum().log() - logits[int(target)])
    return torch.stack(nll)


def largest_logit(full: FullSoftmax, states: Tensor) -> float:
    """The largest that a partial sum can be, whatever the order."""
    sizes = states.detach().abs() @ full.weight.detach().abs().T + full.bias.detach().abs()
    return sizes.max().item()


def set_chunks(monkeypatch: pytest.MonkeyPatch, logits: int, positions_per_chunk: int) -> None:
    monkeypatch.setattr(softmax, "LOGITS_PER_CHUNK", logits)
    monkeypatch.setattr(softmax, "POSITIONS_PER_CHUNK", positions_per_chunk)


@pytest.mark.parametrize("chunks", [(2**20, 4096), (1, 1), (7, 1), (24, 4), (NUM_WORDS, 3)])
@pytest.mark.parametrize("scale", [1.0, 30.0])
def test_losses_equal_brute_force_for_any_chunks(
    chunks: Tuple[int, int], scale: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_chunks(monkeypatch, *chunks)
    full = softmax_with_biases()
    states, targets = positions(scale)
    expected = brute_force_nll(full, states, targets)
    largest = largest_logit(full, states)
    exact = full.exact().nll(states, targets)
    assert exact.dtype == torch.float64 and not exact.requires_grad
    # Products in float32, exponentials summed in float64.
    assert_close(exact, expected, terms=LOGIT_TERMS, scale=largest, dtype=torch.float32)
    assert_close(full(states, targets), expected, terms=LOSS_TERMS, scale=largest)


@pytest.mark.parametrize("chunks", [(2**20, 4096), (24, 4), (1, 1)])
def test_gradients_are_those_of_cross_entropy(
    chunks: Tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    set_chunks(monkeypatch, *chunks)
    full = softmax_with_biases()
    states, targets = positions()
    states.requires_grad_(True)
    inputs = (states, *full.parameters())
    weights = torch.linspace(-1, 2, NUM_POSITIONS)  # every position counts differently
    gradients = torch.autograd.grad((weights * full(states, targets)).sum(), inputs)
    logits = torch.nn.functional.linear(states, full.weight, full.bias)
    expected_loss = torch.nn.functional.cross_entropy(logits, targets, reduction="none")
    expected = torch.autograd.grad((weights * expected_loss).sum(), inputs)
    # Sums over words or positions of a weight times a state or a row, where probabilities have the
    # rounding of losses.
    largest = max(tensor.abs().max().item() for tensor in (states, full.weight))
    scale = weights.abs().max().item() * largest
    for gradient, expected_gradient in zip(gradients, expected):
        assert_close(gradient, expected_gradient, terms=LOSS_TERMS + NUM_WORDS, scale=scale)


def test_no_chunk_of_logits_is_larger_than_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []
    make_logits = softmax.logits

    def measured_logits(*tensors: Tensor) -> Tensor:
        logits = make_logits(*tensors)
        sizes.append(logits.numel())
        return logits

    for module in (
        softmax,
        training_softmax,
    ):  # of evaluation and the forward pass; of the backward pass
        monkeypatch.setattr(module, "logits", measured_logits)
    set_chunks(monkeypatch, 100, 8)
    full = softmax_with_biases()
    states, targets = positions()
    full.exact().nll(states, targets)
    full(states.requires_grad_(True), targets).sum().backward()
    assert len(sizes) >= 3 * NUM_WORDS * NUM_POSITIONS // 100
    assert max(sizes) <= 100


def test_autocast_changes_training_by_rounding_only() -> None:
    full = softmax_with_biases()
    states, targets = positions()
    inputs = (states.requires_grad_(True), *full.parameters())
    expected = full(states, targets)
    expected_gradients = torch.autograd.grad(expected.mean(), inputs)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = full(states, targets)
    assert loss.dtype == torch.float32
    largest = largest_logit(full, states)
    assert_close(loss, expected, terms=LOSS_TERMS, scale=largest, dtype=torch.bfloat16)
    for gradient, expected_gradient in zip(
        torch.autograd.grad(loss.mean(), inputs), expected_gradients
    ):
        assert gradient.dtype == torch.float32
        # The mean over positions. Rounded twice: the logits, and the products of the backward pass.
        assert_close(
            gradient,
            expected_gradient,
            terms=LOSS_TERMS + NUM_WORDS,
            scale=largest / NUM_POSITIONS,
            dtype=torch.bfloat16,
            roundings=2,
        )


def test_initial_values_are_bilm_tfs() -> None:
    torch.manual_seed(0)
    full = FullSoftmax(4000, 16)
    assert full.weight.shape == (4000, 16)
    assert full.bias.shape == (4000,)
    # Of n normal values, the mean has the standard deviation s / sqrt(n), and their standard deviation has
    # s / sqrt(2 * n). Five of these are allowed.
    num_values, std = 64_000, 16**-0.5
    assert abs(full.weight.std().item() - std) < 5 * std / (2 * num_values) ** 0.5
    assert abs(full.weight.mean().item()) < 5 * std / num_values**0.5
    assert not full.bias.any()
    assert all(parameter.requires_grad for parameter in full.parameters())
