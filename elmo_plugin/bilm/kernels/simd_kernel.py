"""What runs frozen biLMs on CPUs: C++ for the processor's vector unit."""

import ctypes
from typing import List, Optional, Sequence

import torch
from torch import Tensor

from elmo_plugin.bilm.factors import Factor
from elmo_plugin.bilm.kernels.lstm_kernel import LSTMKernel
from elmo_plugin.bilm.lstm import LSTMRun, Outcome, ProjectedLSTM
from elmo_plugin.bilm.simd.library import (
    PanelMatrix,
    best_unit,
    c_matrix,
    in_panels,
    library_of,
    unsupported_reason,
)
from elmo_plugin.bilm.simd.lstm import MULTIPLICATIONS_PER_THREAD, PanelLayer, run_layers


class PanelFactor(Factor):
    """A matrix that the C++ multiplies by."""

    def __init__(self, matrix: PanelMatrix, output_dim: int) -> None:
        self._matrix = matrix
        self._output_dim = output_dim

    def product(self, rows: Tensor, out: Optional[Tensor] = None) -> Tensor:
        rows = rows.contiguous()
        result = rows.new_empty(rows.size(0), self._output_dim)
        threads = rows.numel() * self._output_dim // MULTIPLICATIONS_PER_THREAD
        library_of(self._matrix.unit).call(
            "run_linear",
            self._matrix.panels.element_size(),
            ctypes.byref(c_matrix(self._matrix)),
            ctypes.c_void_p(rows.data_ptr()),
            ctypes.c_void_p(result.data_ptr()),
            *(ctypes.c_int64(size) for size in (*rows.shape, self._output_dim)),
            ctypes.c_int(max(1, min(torch.get_num_threads(), threads))),
        )
        return result if out is None else out.copy_(result)

    def add_product(self, total: Tensor, rows: Tensor) -> Tensor:
        return total.add_(self.product(rows))


class SIMDKernel(LSTMKernel):
    """
    All steps of a layer in one call: gates, cells and hidden values are made from products that are still in
    registers. The directions of a small layer run side by side; those of a large one in turn, each on all
    cores that torch may use, so that the weights of a layer stay in the processor's cache if they fit.

    Sums are float32, of int8 32-bit integers; rows are rounded to int8 with a scale of their own. bfloat16 is
    multiplied as such where the processor can; elsewhere only weights are bfloat16, and are read as float32.

    # Parameters

    unit : `str`, optional
        The vector unit that it runs on, one of `VECTOR_UNITS`; the processor's fastest if not given.
    """

    name = "simd"
    storable_types = (PanelLayer, PanelMatrix, PanelFactor)

    def __init__(self, unit: Optional[str] = None) -> None:
        self._unit = unit

    @property
    def unit(self) -> str:
        """The vector unit that it runs on."""
        return self._unit or best_unit()

    @property
    def layout(self) -> str:
        return f"{self.name} {self.unit}"

    def why_not(self, precision: str, device: torch.device, dtype: torch.dtype) -> Optional[str]:
        if device.type != "cpu":
            return f"it runs on CPUs, not on {device.type}"
        if dtype != torch.float32:
            return f"it needs float32 weights, and these are {str(dtype).removeprefix('torch.')}"
        return unsupported_reason(self.unit)

    def factor(self, weight: Tensor, precision: str) -> Factor:
        return PanelFactor(in_panels(weight[None], precision, self.unit), weight.size(0))

    def prepare(self, layer: ProjectedLSTM, precision: str) -> PanelLayer:
        return PanelLayer.of(layer, precision, self.unit)

    def run(self, layers: Sequence[PanelLayer], runs: Sequence[LSTMRun]) -> List[Outcome]:
        return run_layers(layers, runs)
