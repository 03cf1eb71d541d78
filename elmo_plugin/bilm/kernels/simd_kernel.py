"""What runs frozen biLMs on CPUs: C++ for the processor's vector unit."""

from typing import Optional

import torch

from elmo_plugin.bilm.character_encoder import CharacterEncoder
from elmo_plugin.bilm.kernels.lstm_kernel import LSTMKernel
from elmo_plugin.bilm.lstm import ProjectedLSTM
from elmo_plugin.bilm.simd.character_encoder import PanelEncoder, PanelLinear
from elmo_plugin.bilm.simd.library import PanelMatrix, best_unit, unsupported_reason
from elmo_plugin.bilm.simd.lstm import PanelLayer, run_layers


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
    storable_types = (PanelEncoder, PanelLayer, PanelLinear, PanelMatrix)

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

    def prepare_encoder(self, encoder: CharacterEncoder, precision: str) -> PanelEncoder:
        return PanelEncoder.of(encoder, precision, self.unit)

    def prepare(self, layer: ProjectedLSTM, precision: str) -> PanelLayer:
        return PanelLayer.of(layer.tensors(), precision, self.unit)

    run = staticmethod(run_layers)
