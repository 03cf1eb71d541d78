"""The runner of CPUs: C++ for the processor's vector unit."""

import ctypes
import functools
from dataclasses import dataclass
from typing import Any, Dict, Iterator, List, Optional, cast

import torch
from torch import Tensor
from torch.nn import Conv1d, Linear

from elmo_plugin.bilm.character_encoder import CharacterEncoder, Highway
from elmo_plugin.bilm.lstm import ProjectedLSTM
from elmo_plugin.bilm.runners.runner import Encode, Runner, frozen_encoder
from elmo_plugin.bilm.simd.character_encoder import (
    CEncoder,
    CWords,
    c_convolutions,
    convolution_in_panels,
    multiplications_per_word,
)
from elmo_plugin.bilm.simd.library import (
    addresses,
    best_unit,
    call,
    num_threads_for,
    unsupported_reason,
)
from elmo_plugin.bilm.simd.lstm import PanelLayer, run_layers
from elmo_plugin.bilm.simd.panels import TYPES, CMatrix, PanelMatrix, WithStruct, in_panels
from elmo_plugin.bilm.steps import Outcome, Run
from elmo_plugin.errors import ConfigurationError


class SIMDRunner(Runner):
    """
    All steps of a layer in one call: cells and hidden values are computed from products that are still in
    registers. The directions of a small layer run side by side; those of a large one in turn, each on all
    cores that torch may use, so that the weights of a layer stay in the processor's cache if they fit.

    Sums are float32, of int8 32-bit integers; rows are rounded to int8 with a scale for each. bfloat16 is
    multiplied where the processor can; elsewhere only weights are rounded to it, and are cast to float32 when
    they are read.

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
        unit = unit or cast(str, best_unit())
        encode = frozen_encoder(
            next(modules), lambda encoder: PanelEncoder.of(encoder, precision, unit)
        )
        layers = [
            PanelLayer.of(cast(ProjectedLSTM, module).tensors(), precision, unit)
            for module in modules
        ]
        return cls(unit, encode, layers)

    def run_layer(self, number: int, runs: List[Run]) -> List[Outcome]:
        return run_layers(self._layers[number], runs)


@dataclass(frozen=True)
class PanelEncoder(WithStruct):
    """
    A character encoder packed for a vector unit.

    # Parameters

    embedding : `Tensor`
        `(num_ids, embedding_dim)`
    convolutions : `List[PanelMatrix]`
        In float32 in every precision. A row of a window is that of its first character, then of the next ...
    widths, counts : `List[int]`
        Characters of a window, and filters, of each convolution.
    highways : `List[PanelMatrix]`
        A panel holds the transform of two vectors of columns, then their carry gates.
    projection : `PanelMatrix`, optional
    output_dim : `int`
    uses_tanh : `bool`
        In place of relu.
    precision : `str`
        Of highways and projection.
    """

    embedding: Tensor
    convolutions: List[PanelMatrix]
    widths: List[int]
    counts: List[int]
    highways: List[PanelMatrix]
    projection: Optional[PanelMatrix]
    output_dim: int
    uses_tanh: bool
    precision: str

    @classmethod
    def of(cls, encoder: CharacterEncoder, precision: str, unit: str) -> "PanelEncoder":
        """Pack an encoder."""

        def packed(*linears: Linear) -> PanelMatrix:
            weights = torch.stack([linear.weight for linear in linears])
            biases = torch.stack([linear.bias for linear in linears])
            return in_panels(weights, precision, unit, biases)

        convolutions = [cast(Conv1d, module) for module in encoder.convolutions]
        highways = [cast(Highway, module) for module in encoder.highways]
        counts = [convolution.out_channels for convolution in convolutions]
        projection, output_dim = None, sum(counts)
        if isinstance(encoder.projection, Linear):
            projection = packed(encoder.projection)
            output_dim = encoder.projection.out_features
        return cls(
            encoder.character_embedding.weight.detach().clone(
                memory_format=torch.contiguous_format
            ),
            [
                convolution_in_panels(one.weight, cast(Tensor, one.bias), unit)
                for one in convolutions
            ],
            [convolution.kernel_size[0] for convolution in convolutions],
            counts,
            [packed(highway.transform, highway.carry) for highway in highways],
            projection,
            output_dim,
            encoder.activation is torch.tanh,
            precision,
        )

    @functools.cached_property
    def struct(self) -> CEncoder:
        """What C++ reads. It does not keep the encoder alive."""
        return CEncoder(
            *addresses((self.embedding, self.embedding.shape)),
            *self.embedding.shape,
            sum(self.counts),
            self.output_dim,
            c_convolutions(self.convolutions, self.widths, self.counts),
            len(self.convolutions),
            (CMatrix * len(self.highways))(*(highway.struct() for highway in self.highways)),
            len(self.highways),
            CMatrix() if self.projection is None else self.projection.struct(),
            self.uses_tanh,
        )

    @functools.cached_property
    def multiplications_per_word(self) -> int:
        """About how much work a word is."""
        linears = [*self.highways, *([self.projection] if self.projection else [])]
        return multiplications_per_word(self.convolutions) + sum(
            linear.panels.numel() for linear in linears
        )

    def __call__(self, words: Tensor) -> Tensor:
        """
        Return the vectors of words, `(num_words, output_dim)`.

        # Parameters

        words : `Tensor`
            `(num_words, num_characters)`, character ids.
        """
        words = words.long().contiguous()
        num_words = words.size(0)
        vectors = self.embedding.new_empty(num_words, self.output_dim)
        call(
            self.convolutions[0].unit,
            "encode_words",
            TYPES[self.precision].itemsize,
            ctypes.byref(self.struct),
            ctypes.byref(
                CWords(
                    *addresses((words, words.shape), dtype=torch.long),
                    *words.shape,
                    *addresses((vectors, (num_words, self.output_dim))),
                )
            ),
            num_threads_for(num_words * self.multiplications_per_word),
        )
        return vectors
