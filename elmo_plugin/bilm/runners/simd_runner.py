"""The runner of CPUs: C++ for the processor's vector unit."""

from typing import Any, Dict, Iterator, List, Optional, cast

import torch
from torch.nn import Conv1d, Linear

from elmo_plugin.bilm.character_encoder import CharacterEncoder, Highway
from elmo_plugin.bilm.lstm import ProjectedLSTM
from elmo_plugin.bilm.runners.runner import Encode, Runner, frozen_encoder
from elmo_plugin.bilm.simd.character_encoder import (
    PanelEncoder,
    PanelLinear,
    convolution_in_panels,
)
from elmo_plugin.bilm.simd.library import best_unit, unsupported_reason
from elmo_plugin.bilm.simd.lstm import PanelLayer, run_layers
from elmo_plugin.bilm.steps import Outcome, Run
from elmo_plugin.errors import ConfigurationError


class SIMDRunner(Runner):
    """
    All steps of a layer in one call: gates, cells and hidden values are made from products that are still in
    registers. The directions of a small layer run side by side; those of a large one in turn, each on all
    cores that torch may use, so that the weights of a layer stay in the processor's cache if they fit.

    Sums are float32, of int8 32-bit integers; rows are rounded to int8 with a scale of their own. bfloat16 is
    multiplied as such where the processor can; elsewhere only weights are bfloat16, and are read as float32.

    # Attributes

    unit : `str`
        The vector unit that it is packed for.
    """

    name = "simd"

    def __init__(self, unit: str, encode: Encode, layers: List[PanelLayer]) -> None:
        self.unit = unit
        self.encode = encode
        # Forward and backward of each layer.
        num_layers = len(layers) // 2
        self._layers = list(zip(layers[:num_layers], layers[num_layers:]))

    def __setstate__(self, state: Dict[str, Any]) -> None:
        reason = unsupported_reason(state["unit"])
        if reason is not None:
            raise ConfigurationError(
                f"A biLM that was packed on another machine cannot run here: {reason}. Pack it there with "
                "the environment variable ELMO_CPU_CAPABILITY, which hides instructions of a processor."
            )
        vars(self).update(state)

    @classmethod
    def unsupported_reason(cls, precision: str, device: torch.device) -> Optional[str]:
        if device.type != "cpu":
            return f"it runs on CPUs, not on {device.type}"
        return unsupported_reason(best_unit())

    @classmethod
    def prepare(
        cls, modules: Iterator[torch.nn.Module], precision: str, unit: Optional[str] = None
    ) -> "SIMDRunner":
        """As `Runner.prepare`, for a vector unit: by default the processor's fastest."""
        unit = unit or best_unit()
        encode = frozen_encoder(
            next(modules), lambda encoder: _packed_encoder(encoder, precision, unit)
        )
        layers = [
            PanelLayer.of(cast(ProjectedLSTM, module).tensors(), precision, unit)
            for module in modules
        ]
        return cls(unit, encode, layers)

    def run_layer(self, number: int, runs: List[Run]) -> List[Outcome]:
        return run_layers(self._layers[number], runs)


def _packed_encoder(encoder: CharacterEncoder, precision: str, unit: str) -> PanelEncoder:
    """Pack an encoder. Convolutions are float32 in every precision."""
    convolutions = [cast(Conv1d, module) for module in encoder.convolutions]
    highways = [cast(Highway, module) for module in encoder.highways]
    projection, output_dim = None, sum(module.out_channels for module in convolutions)
    if isinstance(encoder.projection, Linear):
        projection = _packed_linears([encoder.projection], precision, unit)
        output_dim = encoder.projection.out_features
    return PanelEncoder(
        encoder.character_embedding.weight.detach().clone(memory_format=torch.contiguous_format),
        [
            convolution_in_panels(one.weight, cast(torch.Tensor, one.bias).detach(), unit)
            for one in convolutions
        ],
        [convolution.kernel_size[0] for convolution in convolutions],
        [convolution.out_channels for convolution in convolutions],
        [
            _packed_linears([highway.transform, highway.carry], precision, unit)
            for highway in highways
        ],
        projection,
        output_dim,
        encoder.activation is torch.tanh,
    )


def _packed_linears(linears: List[Linear], precision: str, unit: str) -> PanelLinear:
    weights, biases = ([getattr(one, name) for one in linears] for name in ("weight", "bias"))
    return PanelLinear.of(weights, biases, precision, unit)
