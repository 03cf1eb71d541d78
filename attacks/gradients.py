"""Gradients of random biLMs and mixes, against those of torch in float64."""

import copy
from pathlib import Path
from random import Random
from typing import Dict, List

import torch
from torch import Tensor

from attacks.models import (
    PROMISE,
    Expected,
    choose_code,
    compare,
    random_ids,
    random_options,
    random_weights,
)
from attacks.trials import Attack, Trial
from elmo_plugin import BiLM, Elmo
from tests.closeness import assert_close, largest_difference


def gradients(folder: Path) -> Trial:
    """
    Gradients of all parameters that are trained, by way of the layers or of mixes in `Elmo`, against those of
    torch in float64, whose values are those of the slow loop.
    """
    torch.set_num_threads(1)
    files = (str(folder / "options.json"), str(folder / "weights.hdf5"))

    def trial(random: Random) -> None:
        choose_code(random, "default")
        options = random_options(random)
        # Not of zeros: several windows of characters would be the largest, each a right one for the gradient.
        bilm = random_weights(random, options)
        bilm.stateful = random.random() < 0.3
        bilm.save(*files)
        exact = BiLM(options, bilm.stateful).double()
        exact.load_state_dict(bilm.state_dict())
        if random.random() < 0.3:
            for pair in zip(bilm.parameters(), exact.parameters()):
                is_trained = random.random() < 0.5
                for parameter in pair:
                    parameter.requires_grad_(is_trained)
        is_of_layers = random.random() < 0.5
        batches = [random_ids(random) for _ in range(random.choice([1, 1, 2]))]
        slow = Expected(files, bilm.stateful)
        for character_ids in batches:
            output = exact(character_ids)
            compare(output, slow.of(character_ids), options, "float64", slow.largest)
        expected = gradients_of(exact, batches, is_of_layers)
        found = gradients_of(bilm, batches, is_of_layers)
        steps = sum(ids.size(0) * (ids.size(1) + 2) for ids in batches)
        # Each step adds to the gradient what it gets from the sums of later steps.
        terms = steps * (2 * options.projection_dim + options.cell_size)
        enlarged = 3**options.num_lstm_layers
        for name, own in found.items():
            their = expected[name]
            scale = max(1.0, float(their.abs().max())) * enlarged
            if float((own - their).abs().max()) > largest_difference(torch.float32, terms, scale):
                if any(
                    float((moved[name] - their).abs().max()) > float((own - their).abs().max()) / 2
                    for moved in (
                        gradients_of(_moved(exact, seed), batches, is_of_layers)
                        for seed in range(10)
                    )
                ):
                    return  # Nearly at zero before a relu, or on a clip: the gradient may be of either side.
                assert_close(own, their, terms, scale, "float32")

    return trial


def gradients_of(bilm: BiLM, batches: List[Tensor], is_of_layers: bool) -> Dict[str, Tensor]:
    """Return the gradients of a loss, of the parameters of a biLM and of two mixes, by name."""
    bilm.reset_states()
    torch.manual_seed(0)
    elmo = Elmo(None, num_output_representations=2, dropout=0.0, module=bilm)
    elmo.zero_grad()
    for mix in elmo.scalar_mixes:
        mix.to(next(bilm.parameters()).dtype)
    for character_ids in batches:
        if is_of_layers:
            outputs = bilm(character_ids)["activations"]
        else:
            outputs = elmo(character_ids)["elmo_representations"]
        losses = [(output * torch.randn(output.shape)).sum() for output in outputs]
        if any(loss.requires_grad for loss in losses):
            torch.stack(losses).sum().backward()
    return {
        name: torch.zeros_like(one) if one.grad is None else one.grad.double()
        for name, one in elmo.named_parameters()
    }


def _moved(bilm: BiLM, seed: int) -> BiLM:
    """Return a copy whose weights are changed in the last places of float32."""
    moved = copy.deepcopy(bilm)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in moved.parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
            parameter.mul_(1 + 5 * torch.finfo(torch.float32).eps * noise)
    return moved


ATTACKS = [Attack("gradients", PROMISE, gradients, max_seconds=60.0)]
