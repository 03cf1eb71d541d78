"""Weights in the layout of oneDNN, the library behind torch's products on CPUs."""

import platform
from typing import List, Optional, Sequence

import torch
from torch import Tensor

from elmo_plugin.bilm.factors import Factor, PlainFactor
from elmo_plugin.bilm.kernels.lstm_kernel import FactorKernel
from elmo_plugin.bilm.lstm import ProjectedLSTM
from elmo_plugin.bilm.lstm_steps import LSTMRun, LSTMWeights, Outcome, run_loops
from elmo_plugin.bilm.processor import has_bfloat16_products

# Products with fewer float32 weights take less time than to call these operators.
SMALLEST_WEIGHT = 500_000

# For so many rows the layout is best; any number can be multiplied.
EXPECTED_ROWS = 32

# They are torch's own, so a later torch may lack them.
_OPERATORS = ("_reorder_linear_weight", "_linear_pointwise")

_TYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


class OneDNNKernel(FactorKernel):
    """
    The reference's loop over time with weights that were brought into oneDNN's layout once, rather than by
    each product; small float32 weights stay as they are. Uses AMX in bfloat16 where the processor has it.
    """

    name = "onednn"

    def why_not(self, precision: str, device: torch.device, dtype: torch.dtype) -> Optional[str]:
        if precision not in _TYPES:
            return f"it has no {precision}"
        if device.type != "cpu":
            return f"it runs on CPUs, not on {device.type}"
        if dtype != torch.float32:
            return f"it needs float32 weights, and these are {str(dtype).removeprefix('torch.')}"
        if platform.machine() not in ("x86_64", "AMD64"):
            return f"it is for x86-64 processors, and this is {platform.machine()}"
        if not torch.backends.mkldnn.is_available():
            return "this build of torch has no oneDNN"
        missing = [name for name in _OPERATORS if not hasattr(torch.ops.mkldnn, name)]
        if missing:
            return f"torch {torch.__version__} lacks its operators {', '.join(missing)}"
        if precision == "bfloat16" and not has_bfloat16_products():
            return "this processor has no products of bfloat16"
        return None

    def factor(self, weight: Tensor, precision: str) -> Factor:
        if precision == "float32" and weight.numel() < SMALLEST_WEIGHT:
            return PlainFactor(weight)
        return _OneDNNFactor(weight.to(_TYPES[precision]))

    def prepare(self, layer: ProjectedLSTM, precision: str) -> LSTMWeights:
        return LSTMWeights.of(layer.tensors(), lambda weight: self.factor(weight, precision))

    def run(self, layers: Sequence[LSTMWeights], runs: Sequence[LSTMRun]) -> List[Outcome]:
        return run_loops(layers, runs)


class _OneDNNFactor(Factor):
    def __init__(self, weight: Tensor) -> None:
        self._dtype = weight.dtype
        self._weight = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), EXPECTED_ROWS)

    def product(self, rows: Tensor, out: Optional[Tensor] = None) -> Tensor:
        result = torch.ops.mkldnn._linear_pointwise(
            rows.to(self._dtype), self._weight, None, "none", [], ""
        )
        return result.to(rows.dtype) if out is None else out.copy_(result)

    def add_product(self, total: Tensor, rows: Tensor) -> Tensor:
        return total.add_(self.product(rows))
