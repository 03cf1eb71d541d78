"""The runner of CPUs: C++ for the processor's vector unit."""

from typing import Any, Dict, Iterable, List, Optional, cast

import torch

from elmo_plugin.bilm.runners.runner import Encode, Runner, frozen_encoder
from elmo_plugin.bilm.simd.character_encoder import PanelEncoder
from elmo_plugin.bilm.simd.library import ABI_VERSION, best_unit, unsupported_reason
from elmo_plugin.bilm.simd.lstm import PanelLayer, run_panel_layers
from elmo_plugin.bilm.steps import LSTMTensors
from elmo_plugin.errors import ConfigurationError


class SIMDRunner(Runner):
    """
    All steps of a layer in one call: cells and hidden values are computed from products that are still in
    registers or the first-level cache. The directions of a small layer run side by side; those of a large
    one in turn, each on all cores that torch may use, so that the weights of a layer stay in the processor's
    cache if they fit.

    Sums are float32, of int8 32-bit integers; rows are rounded to int8 with a scale for each. bfloat16 is
    multiplied where the processor can; elsewhere only weights are rounded to it, and are cast to float32 when
    they are read.

    # Attributes

    unit : `str`
        The vector unit that it is packed for.
    version : `int`
        Of the library that reads what is packed.
    """

    name = "simd"

    def __init__(self, unit: str, encode: Encode, layers: List[PanelLayer]) -> None:
        super().__init__(encode, layers, run_panel_layers)
        self.unit = unit
        self.version = ABI_VERSION

    def __setstate__(self, state: Dict[str, Any]) -> None:
        if state.get("version") != ABI_VERSION:
            raise ConfigurationError(
                "A biLM that was packed by another version of elmo_plugin cannot run here. Freeze it again, "
                "from its files."
            )
        reason = unsupported_reason(state["unit"])
        if reason is not None:
            raise ConfigurationError(
                f"A biLM that was packed on another machine cannot run here: {reason}. Freeze it here, from "
                "its files; or, if only instructions are missing here, pack it there with the environment "
                "variable ELMO_CPU_CAPABILITY, which hides them."
            )
        vars(self).update(state)

    @classmethod
    def unsupported_reason(cls, precision: str, device: torch.device) -> Optional[str]:
        if device.type != "cpu":
            return f"it runs on CPUs, not on {device.type}"
        return unsupported_reason(best_unit())

    @classmethod
    def prepare(
        cls,
        encoder: torch.nn.Module,
        layers: Iterable[LSTMTensors],
        precision: str,
        unit: Optional[str] = None,
    ) -> "SIMDRunner":
        """As `Runner.prepare`, for a vector unit: by default the fastest that runs here."""
        unit = unit or cast(str, best_unit())
        encode = frozen_encoder(encoder, lambda one: PanelEncoder(one, precision, unit))
        return cls(unit, encode, [PanelLayer(layer, precision, unit) for layer in layers])
