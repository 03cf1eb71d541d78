"""The character encoder in C++: character_encoder.h."""

import ctypes
from dataclasses import dataclass
from typing import TYPE_CHECKING, List, Optional, cast

import torch
from torch import Tensor
from torch.nn import Conv1d

from elmo_plugin.bilm.simd.library import (
    MULTIPLICATIONS_PER_THREAD,
    CMatrix,
    PanelMatrix,
    address,
    c_matrix,
    in_panels,
    library_of,
    raise_problem,
    vector_in_panels,
)

if TYPE_CHECKING:
    from elmo_plugin.bilm.character_encoder import CharacterEncoder, Highway

# Windows of a word, about, to decide on the number of threads.
_WINDOWS_PER_WORD = 10


@dataclass(frozen=True)
class PanelLinear:
    """
    A product and what is added to it.

    # Parameters

    weight : `PanelMatrix`
    bias : `Tensor`
        `(num_panels * panel_columns,)`
    """

    weight: PanelMatrix
    bias: Tensor


@dataclass(frozen=True)
class PanelEncoder:
    """
    A character encoder.

    # Parameters

    embedding : `Tensor`
        `(num_ids, embedding_dim)`
    convolutions : `List[PanelLinear]`
        In float32. A row of a window is that of its first character, then of the next ...
    widths, counts : `List[int]`
        Characters of a window, and filters, of each convolution.
    highways : `List[PanelLinear]`
        A panel holds the transform of two vectors of columns, then their carry gates.
    projection : `PanelLinear`, optional
    output_dim : `int`
    uses_tanh : `bool`
        In place of relu.
    """

    embedding: Tensor
    convolutions: List[PanelLinear]
    widths: List[int]
    counts: List[int]
    highways: List[PanelLinear]
    projection: Optional[PanelLinear]
    output_dim: int
    uses_tanh: bool

    @classmethod
    def of(cls, encoder: "CharacterEncoder", precision: str, unit: str) -> "PanelEncoder":
        """Pack an encoder for a vector unit. Convolutions are float32 in every precision."""

        def linear(weights: List[Tensor], biases: List[Tensor], precision: str) -> PanelLinear:
            # (groups, num_outputs, depth)
            together = torch.stack([weight.detach() for weight in weights])
            bias = torch.stack([bias.detach() for bias in biases])
            return PanelLinear(in_panels(together, precision, unit), vector_in_panels(bias, unit))

        convolutions = [cast(Conv1d, module) for module in encoder.convolutions]
        highways = [cast("Highway", module) for module in encoder.highways]
        projection, output_dim = None, sum(module.out_channels for module in convolutions)
        if isinstance(encoder.projection, torch.nn.Linear):
            projection = linear([encoder.projection.weight], [encoder.projection.bias], precision)
            output_dim = encoder.projection.out_features
        return cls(
            encoder.character_embedding.weight.detach().clone(),
            [
                # (count, embedding_dim, width) -> (count, width * embedding_dim)
                linear([one.weight.transpose(1, 2).flatten(1)], [cast(Tensor, one.bias)], "float32")
                for one in convolutions
            ],
            [convolution.kernel_size[0] for convolution in convolutions],
            [convolution.out_channels for convolution in convolutions],
            [
                linear(
                    [highway.transform.weight, highway.carry.weight],
                    [highway.transform.bias, highway.carry.bias],
                    precision,
                )
                for highway in highways
            ],
            projection,
            output_dim,
            encoder.activation is torch.tanh,
        )

    def __call__(self, words: Tensor) -> Tensor:
        """
        Return the vectors of words.

        # Parameters

        words : `Tensor`
            `(num_words, num_characters)`, character ids.

        # Returns

        `Tensor` of shape `(num_words, output_dim)`.
        """
        words = words.long().contiguous()
        vectors = self.embedding.new_empty(words.size(0), self.output_dim)
        convolutions = (_CConvolution * len(self.convolutions))(
            *(
                _CConvolution(c_matrix(convolution.weight), address(convolution.bias), width, count)
                for convolution, width, count in zip(self.convolutions, self.widths, self.counts)
            )
        )
        highways = (_CHighway * len(self.highways))(
            *(
                _CHighway(c_matrix(highway.weight), address(highway.bias))
                for highway in self.highways
            )
        )
        projection = self.projection
        encoder = _CEncoder(
            address(self.embedding),
            self.embedding.size(1),
            sum(self.counts),
            self.output_dim,
            ctypes.cast(convolutions, ctypes.c_void_p),
            len(convolutions),
            ctypes.cast(highways, ctypes.c_void_p),
            len(highways),
            c_matrix(None if projection is None else projection.weight),
            address(None if projection is None else projection.bias),
            self.uses_tanh,
        )
        linears = [*self.highways, *([projection] if projection else [])]
        last = (linears or self.convolutions)[-1].weight.panels
        multiplications = words.size(0) * (
            sum(linear.weight.panels.numel() for linear in linears)
            + _WINDOWS_PER_WORD * sum(one.weight.panels.numel() for one in self.convolutions)
        )
        threads = min(torch.get_num_threads(), multiplications // MULTIPLICATIONS_PER_THREAD)
        problem = library_of(self.convolutions[0].weight.unit).functions.encode_words(
            last.element_size(),
            ctypes.byref(encoder),
            ctypes.byref(_CWords(address(words), *words.shape, address(vectors))),
            max(1, threads),
        )
        if problem:
            raise_problem(problem)
        return vectors


class _CConvolution(ctypes.Structure):
    _fields_ = [
        ("weight", CMatrix),
        ("bias", ctypes.c_void_p),
        ("width", ctypes.c_int64),
        ("count", ctypes.c_int64),
    ]


class _CHighway(ctypes.Structure):
    _fields_ = [("weight", CMatrix), ("bias", ctypes.c_void_p)]


class _CEncoder(ctypes.Structure):
    _fields_ = [
        ("embedding", ctypes.c_void_p),
        ("embedding_dim", ctypes.c_int64),
        ("num_filters", ctypes.c_int64),
        ("output_dim", ctypes.c_int64),
        ("convolutions", ctypes.c_void_p),
        ("num_convolutions", ctypes.c_int64),
        ("highways", ctypes.c_void_p),
        ("num_highways", ctypes.c_int64),
        ("projection", CMatrix),
        ("projection_bias", ctypes.c_void_p),
        ("uses_tanh", ctypes.c_int32),
    ]


class _CWords(ctypes.Structure):
    _fields_ = [
        ("ids", ctypes.c_void_p),
        ("num_words", ctypes.c_int64),
        ("num_characters", ctypes.c_int64),
        ("vectors", ctypes.c_void_p),
    ]
