"""What a biLM remembers of its weights is never used after they changed."""

import copy
import pickle
from typing import Callable, Dict, List

import pytest
import torch
from allennlp.training.moving_average import ExponentialMovingAverage
from allennlp.training.optimizers import DenseSparseAdam
from torch import Tensor

from elmo_plugin import BiLM, batch_to_ids
from elmo_plugin.bilm.packing import Packing
from tests.conftest import SENTENCES, TINY_OPTIONS, BiLMFiles, randomize

CHARACTER_IDS = batch_to_ids(SENTENCES)

# The fused ones and AllenNLP's change parameters without raising their `_version`.
OPTIMIZERS: Dict[str, Callable[[BiLM], torch.optim.Optimizer]] = {
    "Adam": lambda bilm: torch.optim.Adam(bilm.parameters(), lr=0.1),
    "fused Adam": lambda bilm: torch.optim.Adam(bilm.parameters(), lr=0.1, fused=True),
    "fused Adagrad": lambda bilm: torch.optim.Adagrad(bilm.parameters(), lr=0.1, fused=True),
    "DenseSparseAdam": lambda bilm: DenseSparseAdam(list(bilm.named_parameters()), lr=0.1),
}


def activations(bilm: BiLM) -> Tensor:
    return torch.stack(bilm(CHARACTER_IDS)["activations"])


def assert_up_to_date(bilm: BiLM) -> None:
    """It gives what a new biLM of the same weights gives."""
    fresh = BiLM(bilm.options, kernel="reference").requires_grad_(False)
    fresh.load_state_dict(bilm.state_dict())
    assert torch.allclose(activations(bilm), activations(fresh), atol=1e-5)


def num_remembered(bilm: BiLM) -> int:
    return len(bilm.word_cache) + bilm._frozen.runner.num_packed


@pytest.fixture
def bilm(bilm_files: BiLMFiles) -> BiLM:
    """Frozen, and has run."""
    bilm = BiLM.from_files(*bilm_files)
    activations(bilm)
    assert num_remembered(bilm) > 2 * TINY_OPTIONS.num_layers
    return bilm


def run_parts(bilm: BiLM) -> Tensor:
    """Train as a model does that never calls the biLM itself, such as the one for pretraining."""
    words = CHARACTER_IDS[(CHARACTER_IDS > 0).any(dim=2)]
    packing = Packing.from_lengths(torch.tensor([len(words)]), len(words))
    vectors = bilm.character_encoder(words)
    for number in range(TINY_OPTIONS.num_layers):
        (forward, _), (backward, _) = bilm.run_layer(
            number, [vectors, vectors], packing.step_sizes, [None, None]
        )
        vectors = forward + backward
    return vectors


def run_modules(bilm: BiLM) -> Tensor:
    """As `run_parts`, not even through `run_layer`."""
    words = CHARACTER_IDS[(CHARACTER_IDS > 0).any(dim=2)]
    vectors = bilm.character_encoder(words)
    for layer in [*bilm.forward_layers, *bilm.backward_layers]:
        vectors, _ = layer(vectors, [1] * len(words))
    return vectors


@pytest.mark.parametrize("run", [activations, run_parts, run_modules])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("zeroed", ["before freezing", "never"])
def test_trained_and_frozen_again(
    zeroed: str, optimizer: str, run: Callable[[BiLM], Tensor], bilm: BiLM
) -> None:
    before = activations(bilm)
    steps = OPTIMIZERS[optimizer](bilm)
    for _ in range(2):
        bilm.requires_grad_(True)
        run(bilm).pow(2).sum().backward()
        steps.step()
        if zeroed == "before freezing":
            steps.zero_grad()
        bilm.requires_grad_(False)
        assert_up_to_date(bilm)
    assert float((activations(bilm) - before).abs().max()) > 0.01


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_step_after_freezing(optimizer: str, bilm: BiLM) -> None:
    """Optimizers apply gradients also to parameters that no longer require them."""
    steps = OPTIMIZERS[optimizer](bilm)
    bilm.requires_grad_(True)
    activations(bilm).pow(2).sum().backward()
    bilm.requires_grad_(False)
    activations(bilm)
    steps.step()
    assert_up_to_date(bilm)


class TestTrainableInEvalMode:
    """A fine-tuned biLM predicts as fast as a frozen one."""

    @pytest.fixture
    def fine_tuned(self, bilm: BiLM) -> BiLM:
        return bilm.requires_grad_(True).eval()

    def test_it_remembers_words_and_packs_weights(self, fine_tuned: BiLM) -> None:
        for _ in range(2):
            with torch.no_grad():
                activations(fine_tuned)
            assert fine_tuned._frozen.runner.num_packed == 2 * TINY_OPTIONS.num_layers
            assert len(fine_tuned.word_cache) > 0
        assert fine_tuned.word_cache.hit_rate > 0
        with torch.no_grad():
            assert_up_to_date(fine_tuned)

    @pytest.mark.parametrize("mode", ["train mode", "gradients on"])
    def test_in_another_mode_it_remembers_nothing(self, mode: str, fine_tuned: BiLM) -> None:
        fine_tuned.train(mode == "train mode")
        with torch.set_grad_enabled(mode == "gradients on"):
            activations(fine_tuned)
        assert num_remembered(fine_tuned) == 0

    @pytest.mark.parametrize("when", ["before backward", "before step", "after step"])
    @pytest.mark.parametrize("optimizer", OPTIMIZERS)
    def test_prediction_in_the_middle_of_a_step(
        self, optimizer: str, when: str, fine_tuned: BiLM
    ) -> None:
        steps = OPTIMIZERS[optimizer](fine_tuned)
        for _ in range(2):
            loss = activations(fine_tuned).pow(2).sum()
            for moment in ("before backward", "before step", "after step"):
                if moment == when:
                    with torch.no_grad():
                        assert_up_to_date(fine_tuned)
                if moment == "before backward":
                    loss.backward()
                elif moment == "before step":
                    steps.step()
            steps.zero_grad()
        with torch.no_grad():
            assert_up_to_date(fine_tuned)

    def test_moving_averages(self, fine_tuned: BiLM) -> None:
        """AllenNLP swaps them in for validation through `parameter.data`."""
        average = ExponentialMovingAverage(fine_tuned.named_parameters())
        steps = torch.optim.SGD(fine_tuned.parameters(), lr=0.1)
        activations(fine_tuned).pow(2).mean().backward()
        steps.step()
        average.apply(1)
        with torch.no_grad():
            average.assign_average_value()
            assert_up_to_date(fine_tuned)
            average.restore()
            assert_up_to_date(fine_tuned)


class TestWritesWhileFrozen:
    def test_in_place(self, bilm: BiLM) -> None:
        for name, parameter in bilm.named_parameters():
            before = activations(bilm)
            with torch.no_grad():
                parameter.mul_(0.9)
            assert_up_to_date(bilm)
            assert not torch.equal(activations(bilm), before), name

    @pytest.mark.parametrize("how", ["from_files", "load_state_dict"])
    def test_to_a_bilm_made_in_inference_mode(self, how: str, bilm_files: BiLMFiles) -> None:
        with torch.inference_mode():
            if how == "from_files":
                bilm = BiLM.from_files(*bilm_files)
            else:
                bilm = randomize(BiLM(TINY_OPTIONS)).requires_grad_(False)
            activations(bilm)
            assert num_remembered(bilm) > 0
            for parameter in bilm.parameters():
                parameter.mul_(0.9)
            assert_up_to_date(bilm)

    def test_to_a_bilm_moved_in_inference_mode(
        self, bilm: BiLM, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Its parameters have no version."""
        with torch.inference_mode():
            bilm.double().float()
            for _ in range(2):
                for parameter in bilm.parameters():
                    parameter.mul_(0.9)
                assert_up_to_date(bilm)
        messages = [record.getMessage() for record in caplog.records]
        assert sum("been moved or cast in inference mode" in text for text in messages) == 1

    def test_through_data_it_takes_clear_caches(self, bilm: BiLM) -> None:
        """What the docstring says: such writes go unnoticed."""
        for parameter in bilm.parameters():
            parameter.data.mul_(0.9)
        bilm.clear_caches()
        assert_up_to_date(bilm)

    def test_a_parameter_that_was_replaced(self, bilm: BiLM) -> None:
        layer = bilm.forward_layers[0]
        for _ in range(5):
            value = 1.5 * layer.gate_weight.detach()
            # Freed memory is given out again first.
            del layer.gate_weight
            layer.gate_weight = torch.nn.Parameter(value, requires_grad=False)
            assert_up_to_date(bilm)

    @pytest.mark.parametrize("assign", [True, False])
    def test_load_state_dict(self, assign: bool, bilm: BiLM) -> None:
        other = randomize(BiLM(TINY_OPTIONS), seed=7).requires_grad_(False)
        bilm.load_state_dict(other.state_dict(), assign=assign)
        assert torch.allclose(activations(bilm), activations(other), atol=1e-5)

    def test_weights_of_a_functional_call(self, bilm: BiLM) -> None:
        before = activations(bilm)
        doubled = {name: 2 * parameter for name, parameter in bilm.named_parameters()}
        other = copy.deepcopy(bilm)
        other.load_state_dict(doubled)
        theirs = torch.func.functional_call(bilm, doubled, CHARACTER_IDS)["activations"]
        assert torch.allclose(torch.stack(theirs), activations(other), atol=1e-5)
        assert torch.equal(activations(bilm), before)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda bilm: pickle.loads(pickle.dumps(bilm))])
def test_copies_remember_nothing(copied: Callable[[BiLM], BiLM], bilm: BiLM) -> None:
    other = copied(bilm)
    assert num_remembered(other) == 0
    assert torch.equal(activations(other), activations(bilm))


def test_it_remembers_while_a_task_model_is_trained(bilm: BiLM) -> None:
    """The usual case: the biLM is frozen, and what stands above it learns, in train mode."""
    linear = torch.nn.Linear(bilm.get_output_dim(), 2)
    steps = torch.optim.Adam([*bilm.parameters(), *linear.parameters()], fused=True)
    packed: List[int] = []
    for _ in range(2):
        linear(bilm.train()(CHARACTER_IDS)["activations"][-1]).sum().backward()
        steps.step()
        packed.append(id(bilm._frozen.runner._packed_weights._held["forward_layers.0"][1]))
    assert packed[0] == packed[1]
    assert bilm.word_cache.hit_rate == pytest.approx(2 / 3)
