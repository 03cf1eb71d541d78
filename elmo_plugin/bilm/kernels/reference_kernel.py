"""The kernel that the others are measured by, and that runs everywhere."""

from typing import List, Optional, Sequence

import torch
from torch import Tensor

from elmo_plugin.bilm.factors import Factor, Factors, PlainFactor, QuantizedFactor
from elmo_plugin.bilm.kernels.lstm_kernel import LSTMKernel
from elmo_plugin.bilm.packed_lstm import Outcome, PackedLSTM, run_with_factors
from elmo_plugin.bilm.projected_lstm import ProjectedLSTM


class ReferenceKernel(LSTMKernel):
    """
    A loop over time of torch's own operations, on any device; the products of inputs are made before it.

    `bfloat16` rounds weights, rows and products; `int8` imitates the rounding to integers in float32, which
    takes longer than float32 itself.
    """

    name = "reference"

    def why_not(self, precision: str, device: torch.device, dtype: torch.dtype) -> Optional[str]:
        return None

    def pack(self, layer: ProjectedLSTM, precision: str) -> Factors:
        return layer.factors(_FACTORS[precision])

    def run(self, lstms: Sequence[PackedLSTM], packed: Sequence[Factors]) -> List[Outcome]:
        return run_with_factors(lstms, packed)


def _bfloat16_factor(weight: Tensor) -> Factor:
    return PlainFactor(weight.bfloat16())


_FACTORS = {"float32": PlainFactor, "bfloat16": _bfloat16_factor, "int8": QuantizedFactor}
