"""The runner of torch's operations: runs everywhere, and is the reference for the others."""

import copy
import functools
from typing import Iterable, List, Optional, Sequence

import torch
from torch import Tensor
from torch.nn.functional import linear

from elmo_plugin.bilm.character_encoder import CharacterEncoder
from elmo_plugin.bilm.runners.runner import Encode, Runner, frozen_encoder
from elmo_plugin.bilm.simd.panels import largest_of_pairs, quantized
from elmo_plugin.bilm.steps import (
    LayerInput,
    LayerOutput,
    LSTMTensors,
    PreparedLayer,
    Product,
    run_loop,
)


class ReferenceRunner(Runner):
    """
    A loop over time of operations of torch, on any device; the products of inputs are made before it.

    `bfloat16` rounds weights, rows and products; `int8` imitates the rounding to integers in float32, which
    takes longer than float32 itself.
    """

    name = "reference"

    @classmethod
    def unsupported_reason(cls, precision: str, device: torch.device) -> Optional[str]:
        return None

    @classmethod
    def prepare(
        cls, encoder: torch.nn.Module, layers: Iterable[LSTMTensors], precision: str
    ) -> "ReferenceRunner":
        encode = frozen_encoder(encoder, lambda one: encoder_in_torch(one, precision))
        prepared = [
            PreparedLayer.of(layer, lambda weight: product_by(weight, precision))
            for layer in layers
        ]
        return cls(encode, prepared, _run_in_turn)


def _run_in_turn(
    layers: Sequence[PreparedLayer], layer_inputs: List[LayerInput]
) -> List[LayerOutput]:
    return [run_loop(layer, given) for layer, given in zip(layers, layer_inputs)]


def encoder_in_torch(encoder: CharacterEncoder, precision: str) -> Encode:
    """Return a copy of an encoder whose linear layers are rounded to a precision."""
    encoder = copy.deepcopy(encoder).requires_grad_(False).eval()
    if precision != "float32":
        for name, module in list(encoder.named_modules()):
            if isinstance(module, torch.nn.Linear):
                owner, _, attribute = name.rpartition(".")
                rounded = _RoundedLinear(module, precision)
                setattr(encoder.get_submodule(owner), attribute, rounded)
    return encoder


class _RoundedLinear(torch.nn.Module):
    def __init__(self, linear: torch.nn.Linear, precision: str) -> None:
        super().__init__()
        self._product = product_by(linear.weight, precision)
        self._bias = linear.bias

    def forward(self, rows: Tensor) -> Tensor:
        return self._product(rows) + self._bias


def product_by(weight: Tensor, precision: str) -> Product:
    """Return what multiplies rows by a copy of `weight`, `(output_dim, input_dim)`, in a precision."""
    if precision == "int8":
        integers, scales = quantized(weight, largest_of_pairs(weight))
        return functools.partial(_quantized_product, integers, scales)
    # A copy also where the type is the same.
    return functools.partial(_product, weight.detach().to(getattr(torch, precision), copy=True))


def _product(weight: Tensor, rows: Tensor) -> Tensor:
    return linear(rows.to(weight), weight).to(rows)


def _quantized_product(integers: Tensor, scales: Tensor, rows: Tensor) -> Tensor:
    # Integers are stored and multiplied as float32, which is exact for sums of up to 1,040 of them, and slow:
    # faster runners are compared with this.
    rounded, row_scales = quantized(rows, rows.abs().amax(dim=1))
    return linear(rounded, integers).mul_(row_scales.unsqueeze(1)).mul_(scales)
