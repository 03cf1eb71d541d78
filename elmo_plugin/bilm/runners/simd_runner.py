"""The runner of CPUs: C++ for the processor's vector unit."""

import ctypes
from typing import Any, Dict, Iterable, List, Optional, cast

import torch
from torch import Tensor
from torch.nn import Conv1d, Linear

from elmo_plugin.bilm.character_encoder import CharacterEncoder, Highway
from elmo_plugin.bilm.runners.runner import Encode, Runner, frozen_encoder
from elmo_plugin.bilm.simd.character_encoder import (
    CEncoder,
    c_convolutions,
    c_words,
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
from elmo_plugin.bilm.simd.lstm import PanelLayer, run_panel_layers
from elmo_plugin.bilm.simd.panels import (
    TYPES,
    CMatrix,
    PanelMatrix,
    c_matrix,
    in_panels,
)
from elmo_plugin.bilm.steps import LSTMTensors
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
        super().__init__(encode, layers, run_panel_layers)
        self.unit = unit

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
        cls,
        encoder: torch.nn.Module,
        layers: Iterable[LSTMTensors],
        precision: str,
        unit: Optional[str] = None,
    ) -> "SIMDRunner":
        """As `Runner.prepare`, for a vector unit: by default the processor's fastest."""
        unit = unit or cast(str, best_unit())
        encode = frozen_encoder(encoder, lambda one: PanelEncoder(one, precision, unit))
        return cls(unit, encode, [PanelLayer(layer, precision, unit) for layer in layers])


class PanelEncoder:
    """A character encoder packed for a vector unit. Convolutions are float32 in every precision."""

    def __init__(self, encoder: CharacterEncoder, precision: str, unit: str) -> None:
        def packed(*linears: Linear) -> PanelMatrix:
            weights, biases = zip(*((linear.weight, linear.bias) for linear in linears))
            return in_panels(weights, precision, unit, biases)

        self._unit = unit
        self._element_size = TYPES[precision].itemsize
        embedding = encoder.character_embedding.weight.detach()
        self._embedding = embedding.clone(memory_format=torch.contiguous_format)
        convolutions = [cast(Conv1d, module) for module in encoder.convolutions]
        self._widths = [convolution.kernel_size[0] for convolution in convolutions]
        self._counts = [convolution.out_channels for convolution in convolutions]
        self._convolutions = [
            convolution_in_panels(one.weight, cast(Tensor, one.bias), unit) for one in convolutions
        ]
        # A panel holds the transform of two vectors of columns, then their carry gates.
        self._highways = [
            packed(highway.transform, highway.carry)
            for highway in cast(List[Highway], list(encoder.highways))
        ]
        self._projection, self._output_dim = None, sum(self._counts)
        if isinstance(encoder.projection, Linear):
            self._projection = packed(encoder.projection)
            self._output_dim = encoder.projection.out_features
        self._uses_tanh = encoder.activation is torch.tanh
        linears = [*self._highways, *([self._projection] if self._projection else [])]
        self._multiplications_per_word = multiplications_per_word(self._convolutions) + sum(
            linear.panels.numel() for linear in linears
        )

    def struct(self) -> CEncoder:
        """Return what C++ reads, see `c_matrix`."""
        return CEncoder(
            *addresses((self._embedding, self._embedding.shape)),
            *self._embedding.shape,
            sum(self._counts),
            self._output_dim,
            c_convolutions(self._convolutions, self._widths, self._counts),
            len(self._convolutions),
            (CMatrix * len(self._highways))(*map(c_matrix, self._highways)),
            len(self._highways),
            c_matrix(self._projection),
            self._uses_tanh,
        )

    def __call__(self, words: Tensor) -> Tensor:
        """Return the vectors of words, `(num_words, output_dim)`, from `(num_words, num_characters)`."""
        words = words.long().contiguous()
        vectors = self._embedding.new_empty(words.size(0), self._output_dim)
        words_and_vectors = c_words(words)
        (words_and_vectors.vectors,) = addresses((vectors, vectors.shape))
        call(
            self._unit,
            "encode_words",
            self._element_size,
            ctypes.byref(self.struct()),
            ctypes.byref(words_and_vectors),
            num_threads_for(words.size(0) * self._multiplications_per_word),
        )
        return vectors
