"""The kernel that the others are measured by, and that runs everywhere."""

from typing import List, Optional, Sequence

import torch
from torch import Tensor

from elmo_plugin.bilm.factors import Factor, PlainFactor, QuantizedFactor
from elmo_plugin.bilm.kernels.lstm_kernel import FactorKernel
from elmo_plugin.bilm.lstm import ProjectedLSTM
from elmo_plugin.bilm.lstm_steps import LSTMRun, LSTMWeights, Outcome, run_loops


class ReferenceKernel(FactorKernel):
    """
    A loop over time of torch's own operations, on any device; the products of inputs are made before it.

    `bfloat16` rounds weights, rows and products; `int8` imitates the rounding to integers in float32, which
    takes longer than float32 itself.
    """

    name = "reference"

    def why_not(self, precision: str, device: torch.device, dtype: torch.dtype) -> Optional[str]:
        return None

    def factor(self, weight: Tensor, precision: str) -> Factor:
        if precision == "int8":
            return QuantizedFactor(weight)
        return PlainFactor(weight.bfloat16() if precision == "bfloat16" else weight)

    def prepare(self, layer: ProjectedLSTM, precision: str) -> LSTMWeights:
        return LSTMWeights.of(layer.tensors(), lambda weight: self.factor(weight, precision))

    def run(self, layers: Sequence[LSTMWeights], runs: Sequence[LSTMRun]) -> List[Outcome]:
        return run_loops(layers, runs)
