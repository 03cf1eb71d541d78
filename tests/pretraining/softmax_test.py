"""Training by the full and by the sampled softmax. Their sizes are small enough for slow loops."""

import math
from typing import Any, List, Tuple

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from elmo_plugin.bilm import softmax
from elmo_plugin.pretraining import FullSoftmax, LMSoftmax, SampledSoftmax
from elmo_plugin.pretraining import softmax as training_softmax
from tests.closeness import assert_close

NUM_WORDS, INPUT_DIM, NUM_POSITIONS = 50, 6, 12
# A logit sums products and a bias; a loss sums exponentials of logits.
LOGIT_TERMS = INPUT_DIM + 1
LOSS_TERMS = LOGIT_TERMS + NUM_WORDS


def with_biases(kind: Any, *arguments: Any) -> Any:
    torch.manual_seed(0)
    built = kind(NUM_WORDS, INPUT_DIM, *arguments)
    torch.nn.init.normal_(built.word_biases.weight)
    return built


def positions(scale: float = 1.0) -> Tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    states = scale * torch.randn(NUM_POSITIONS, INPUT_DIM, generator=generator)
    return states, torch.randint(NUM_WORDS, (NUM_POSITIONS,), generator=generator)


def largest_logit(built: LMSoftmax, states: Tensor) -> float:
    """The largest that a partial sum can be, whatever the order."""
    sizes = states.detach().abs() @ built.weight.detach().abs().T + built.bias.detach().abs()
    return sizes.max().item()


def set_chunks(monkeypatch: pytest.MonkeyPatch, logits: int, positions_per_chunk: int) -> None:
    monkeypatch.setattr(softmax, "LOGITS_PER_CHUNK", logits)
    monkeypatch.setattr(softmax, "POSITIONS_PER_CHUNK", positions_per_chunk)


def torchs_losses(full: FullSoftmax, states: Tensor, targets: Tensor) -> Tensor:
    logits = torch.nn.functional.linear(states, full.weight.to(states), full.bias.to(states))
    return torch.nn.functional.cross_entropy(logits, targets, reduction="none")


class TestFull:
    @pytest.mark.parametrize("chunks", [(2**20, 4096), (1, 1), (7, 1), (24, 4), (NUM_WORDS, 3)])
    @pytest.mark.parametrize("scale", [1.0, 30.0])
    def test_losses_are_those_of_cross_entropy_for_any_chunks(
        self, chunks: Tuple[int, int], scale: float, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        set_chunks(monkeypatch, *chunks)
        full = with_biases(FullSoftmax)
        states, targets = positions(scale)
        expected = torchs_losses(full, states.double(), targets)
        largest = largest_logit(full, states)
        exact = full.exact().nll(states, targets)
        assert exact.dtype == torch.float64 and not exact.requires_grad
        # Products in float32, exponentials summed in float64.
        assert_close(exact, expected, terms=LOGIT_TERMS, scale=largest, dtype=torch.float32)
        assert_close(full(states, targets), expected, terms=LOSS_TERMS, scale=largest)

    def test_a_second_derivative_is_refused(self) -> None:
        states, targets = positions()
        losses = with_biases(FullSoftmax)(states.requires_grad_(), targets)
        with pytest.raises(RuntimeError, match="the softmax of its training: they have no second"):
            torch.autograd.grad(losses.sum(), states, create_graph=True)

    @pytest.mark.parametrize("chunks", [(2**20, 4096), (24, 4), (1, 1)])
    def test_gradients_are_those_of_cross_entropy(
        self, chunks: Tuple[int, int], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        set_chunks(monkeypatch, *chunks)
        full = with_biases(FullSoftmax)
        states, targets = positions()
        states.requires_grad_(True)
        inputs = (states, *full.parameters())
        weights = torch.linspace(-1, 2, NUM_POSITIONS)  # every position counts differently
        gradients = torch.autograd.grad((weights * full(states, targets)).sum(), inputs)
        expected_loss = torchs_losses(full, states, targets)
        expected = torch.autograd.grad((weights * expected_loss).sum(), inputs)
        # Sums over words or positions of a weight times a state or a row, where probabilities have the
        # rounding of losses.
        largest = max(tensor.abs().max().item() for tensor in (states, full.weight))
        scale = weights.abs().max().item() * largest
        for gradient, expected_gradient in zip(gradients, expected):
            assert_close(gradient, expected_gradient, terms=LOSS_TERMS + NUM_WORDS, scale=scale)

    def test_no_chunk_of_logits_is_larger_than_the_limit(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        sizes = []
        make_logits = softmax.logits

        def measured_logits(*tensors: Tensor) -> Tensor:
            logits = make_logits(*tensors)
            sizes.append(logits.numel())
            return logits

        # Of evaluation and the forward pass; of the backward pass.
        for module in (softmax, training_softmax):
            monkeypatch.setattr(module, "logits", measured_logits)
        set_chunks(monkeypatch, 100, 8)
        full = with_biases(FullSoftmax)
        states, targets = positions()
        full.exact().nll(states, targets)
        full(states.requires_grad_(True), targets).sum().backward()
        assert len(sizes) >= 3 * NUM_WORDS * NUM_POSITIONS // 100
        assert max(sizes) <= 100

    def test_initial_values_are_bilm_tfs(self) -> None:
        torch.manual_seed(0)
        full = FullSoftmax(4000, 16)
        # Of n normal values, the mean has the standard deviation s / sqrt(n), and their standard deviation
        # has s / sqrt(2 * n). Five of these are allowed.
        num_values, std = 64_000, 16**-0.5
        assert abs(full.weight.std().item() - std) < 5 * std / (2 * num_values) ** 0.5
        assert abs(full.weight.mean().item()) < 5 * std / num_values**0.5
        assert not full.bias.any()
        assert all(parameter.requires_grad for parameter in full.parameters())


def slow_loss(
    sampled: SampledSoftmax, states: Tensor, targets: Tensor, words: List[int], num_tries: int
) -> Tensor:
    """The definition, word by word: corrected logits of the target and of every other drawn word."""

    def corrected_logit(state: Tensor, word: int) -> Tensor:
        probability = math.log((word + 2) / (word + 1)) / math.log(sampled.num_words + 1)
        expected_count = 1 - (1 - probability) ** num_tries
        logit = (state * sampled.weight[word].double()).sum() + sampled.bias[word].double()
        return logit - math.log(expected_count)

    losses = []
    for state, target in zip(states.double(), targets.tolist()):
        logits = [corrected_logit(state, target)]
        logits += [corrected_logit(state, word) for word in words if word != target]
        losses.append(torch.stack(logits).exp().sum().log() - logits[0])
    return torch.stack(losses)


class TestDraws:
    @given(num_words=st.integers(1, 300), share=st.floats(0, 1), seed=st.integers(0, 1000))
    def test_a_draw_is_the_first_distinct_words_of_single_draws(
        self, num_words: int, share: float, seed: int
    ) -> None:
        num_samples = max(1, int(share * num_words))
        sampled = SampledSoftmax(num_words, 2, num_samples)
        torch.manual_seed(seed)
        words, num_tries = sampled.draw_words()
        # The same random numbers one by one; a batch is twice the sample.
        torch.manual_seed(seed)
        expected: List[int] = []
        tries = 0
        while len(expected) < num_samples:
            for number in torch.rand(2 * num_samples, dtype=torch.float64).tolist():
                word = int(math.exp(number * math.log(num_words + 1))) - 1
                if len(expected) < num_samples:
                    tries += 1
                    expected += [word] if word not in expected else []
        assert words.tolist() == sorted(expected)
        assert num_tries == tries

    def test_rare_words_of_a_large_vocabulary_are_all_reachable(self) -> None:
        sampled = SampledSoftmax(793_471, 1, 8192)
        torch.manual_seed(0)
        words = torch.cat([sampled.draw_words()[0] for _ in range(4)])
        rare_words = words[words > 400_000]
        # In float32, the random numbers' steps would favor some words there over their neighbors.
        # The share of odd ones has this standard deviation at most; four of it are allowed.
        deviation = 0.5 / len(rare_words) ** 0.5
        assert len(rare_words) > 1000
        assert abs((rare_words % 2).double().mean().item() - 0.5) < 4 * deviation
        assert rare_words.max() > 790_000


class TestSampled:
    @pytest.mark.parametrize("with_hits", [True, False])
    @pytest.mark.parametrize("num_tries", [3, 40])
    def test_the_loss_of_a_fixed_draw_equals_a_slow_loop(
        self, num_tries: int, with_hits: bool
    ) -> None:
        sampled = with_biases(SampledSoftmax, 20)
        states, targets = positions()
        # Words 0 and 49 and three of the targets: accidental hits, at both ends and in between.
        targets[0], targets[1] = 0, 49
        hits = {0, 8, 17, 49, *targets[2:5].tolist()}
        words = sorted(hits if with_hits else {*range(NUM_WORDS)} - {*targets.tolist()})
        loss = sampled.sampled_nll(states, targets, torch.tensor(words), num_tries)
        expected = slow_loss(sampled, states, targets, words, num_tries)
        # Products, a bias and a correction, then exponentials of these.
        counts = sampled.expected_counts(torch.arange(NUM_WORDS), num_tries)
        largest = largest_logit(sampled, states) - counts.log().min().item()
        assert_close(loss, expected, terms=INPUT_DIM + 2 + len(words), scale=largest)

    def test_gradients_are_those_of_finite_differences(self) -> None:
        sampled = with_biases(SampledSoftmax, 20).double()
        states, targets = positions()
        words = torch.tensor(sorted({0, 8, 49, *targets[:3].tolist()}))

        def loss(states: Tensor, *_: Tensor) -> Tensor:
            return sampled.sampled_nll(states, targets, words, 9)

        inputs = (states.double().requires_grad_(True), *sampled.parameters())
        assert torch.autograd.gradcheck(loss, inputs)

    @pytest.mark.filterwarnings("ignore:Sparse invariant checks are implicitly disabled")
    def test_sparse_and_dense_gradients_train_equally(self) -> None:
        dense, sparse = trained(False), trained(True)
        # Each of three steps sums gradients over the positions of two calls, of losses with 20 words.
        terms = 3 * (2 * NUM_POSITIONS + 20)
        for ours, expected in zip(sparse.parameters(), dense.parameters()):
            assert_close(ours.grad.to_dense(), expected.grad, terms=terms)
            assert_close(ours, expected, terms=terms)


@pytest.mark.parametrize("kind, arguments", [(FullSoftmax, ()), (SampledSoftmax, (20,))])
def test_autocast_changes_training_by_rounding_only(kind: Any, arguments: Any) -> None:
    built = with_biases(kind, *arguments)
    states, targets = positions()
    inputs = (states.requires_grad_(True), *built.parameters())
    torch.manual_seed(4)  # the same words are sampled
    expected = built(states, targets)
    expected_gradients = torch.autograd.grad(expected.mean(), inputs)
    torch.manual_seed(4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = built(states, targets)
    assert loss.dtype == torch.float32
    # Logits are rounded; the corrections of the sampled softmax are not.
    largest = largest_logit(built, states)
    assert_close(loss, expected, terms=LOSS_TERMS, scale=largest, dtype=torch.bfloat16)
    gradients = torch.autograd.grad(loss.mean(), inputs)
    for gradient, expected_gradient in zip(gradients, expected_gradients):
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


def trained(sparse_gradients: bool) -> SampledSoftmax:
    sampled = with_biases(SampledSoftmax, 20, sparse_gradients)
    optimizer = torch.optim.Adagrad(sampled.parameters(), lr=0.2, initial_accumulator_value=1.0)
    states, targets = positions()
    torch.manual_seed(4)
    for _ in range(3):
        optimizer.zero_grad()
        # Two calls, as for the two directions.
        (sampled(states, targets).mean() + sampled(-states, targets.flip(0)).mean()).backward()
        assert all(weight.grad.is_sparse == sparse_gradients for weight in sampled.parameters())
        optimizer.step()
    return sampled
