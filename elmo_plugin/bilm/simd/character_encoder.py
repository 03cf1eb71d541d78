"""The character encoder in C++: character_encoder.h."""

import ctypes
from dataclasses import dataclass
from typing import List, Optional, Sequence, Tuple

import torch
from torch import Tensor

from elmo_plugin.bilm.simd.library import (
    MULTIPLICATIONS_PER_THREAD,
    CMatrix,
    PanelMatrix,
    c_matrix,
    in_panels,
    library_of,
    pointer,
    raise_problem,
    vector_in_panels,
)

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

    @classmethod
    def of(
        cls, weights: List[Tensor], biases: List[Tensor], precision: str, unit: str
    ) -> "PanelLinear":
        """Pack groups of outputs: weights `(num_outputs, depth)` and biases `(num_outputs,)`."""
        weight = torch.stack([weight.detach() for weight in weights])
        bias = torch.stack([bias.detach() for bias in biases])
        return cls(in_panels(weight, precision, unit), vector_in_panels(bias, unit))


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
        convolutions = _c_convolutions(self.convolutions, self.widths, self.counts)
        highways = (_CHighway * len(self.highways))(
            *(
                _CHighway(c_matrix(highway.weight), pointer(highway.bias))
                for highway in self.highways
            )
        )
        projection = self.projection
        encoder = _CEncoder(
            pointer(self.embedding),
            self.embedding.size(1),
            sum(self.counts),
            self.output_dim,
            ctypes.cast(convolutions, ctypes.c_void_p),
            len(convolutions),
            ctypes.cast(highways, ctypes.c_void_p),
            len(highways),
            c_matrix(None if projection is None else projection.weight),
            pointer(None if projection is None else projection.bias),
            self.uses_tanh,
        )
        linears = [*self.highways, *([projection] if projection else [])]
        last = (linears or self.convolutions)[-1].weight.panels
        problem = library_of(self.convolutions[0].weight.unit).functions.encode_words(
            last.element_size(),
            ctypes.byref(encoder),
            ctypes.byref(_CWords(pointer(words, torch.long), *words.shape, pointer(vectors))),
            _num_threads(len(words), self.convolutions, linears),
        )
        if problem:
            raise_problem(problem)
        return vectors


def pool_words(
    words: Tensor, embedding: Tensor, weights: List[Tensor], biases: List[Tensor], unit: str
) -> Tuple[Tensor, Tensor]:
    """
    Return the maxima over time of convolutions of words, in float32, and where they are.

    # Parameters

    words : `Tensor`
        `(num_words, num_characters)`, character ids, int64.
    embedding : `Tensor`
        `(num_ids, embedding_dim)`
    weights, biases : `List[Tensor]`
        Of each convolution: `(count, embedding_dim, width)` and `(count,)`.

    # Returns

    The maxima and, int32, the first characters of their windows, `(num_words, num_filters)` each.
    """
    embedding = embedding.contiguous()
    convolutions = [
        convolution_in_panels(weight, bias, unit) for weight, bias in zip(weights, biases)
    ]
    counts = [len(bias) for bias in biases]
    structs = _c_convolutions(convolutions, [weight.size(2) for weight in weights], counts)
    maxima = embedding.new_empty(len(words), sum(counts))
    places = torch.empty_like(maxima, dtype=torch.int32)
    encoder = _CEncoder(
        embedding=pointer(embedding),
        embedding_dim=embedding.size(1),
        num_filters=maxima.size(1),
        convolutions=ctypes.cast(structs, ctypes.c_void_p),
        num_convolutions=len(weights),
    )
    problem = library_of(unit).functions.pool_words(
        ctypes.byref(encoder),
        ctypes.byref(_CWords(pointer(words, torch.long), *words.shape)),
        ctypes.byref(_CMaxima(pointer(maxima), pointer(places, torch.int32))),
        _num_threads(len(words), convolutions),
    )
    if problem:
        raise_problem(problem)
    return maxima, places


def pool_words_backward(
    words: Tensor,
    embedding: Tensor,
    weights: List[Tensor],
    places: Tensor,
    gradient: Tensor,
    unit: str,
) -> Tuple[Tensor, List[Tensor]]:
    """
    Return the gradients of `embedding` and `weights` from that of the maxima, `(num_words, num_filters)`.

    The other parameters are those of `pool_words`, and what it returned.
    """
    embedding = embedding.contiguous()
    plain = [_by_window(weight).contiguous() for weight in weights]
    gradients = [torch.zeros_like(weight) for weight in plain]
    filters = (_CFilters * len(weights))(
        *(
            _CFilters(pointer(weight), pointer(own), original.size(2), original.size(0))
            for weight, own, original in zip(plain, gradients, weights)
        )
    )
    num_threads = torch.get_num_threads()
    embedding_gradients = embedding.new_zeros(num_threads, *embedding.shape)
    # Filter by filter.
    gradient, places = gradient.t().contiguous(), places.t().contiguous()
    problem = library_of(unit).functions.pool_words_backward(
        ctypes.c_void_p(pointer(embedding)),
        ctypes.c_int64(embedding.size(1)),
        filters,
        ctypes.c_int64(len(filters)),
        ctypes.byref(_CWords(pointer(words, torch.long), *words.shape)),
        ctypes.byref(
            _CMaximaGradients(
                pointer(gradient),
                pointer(places, torch.int32),
                pointer(embedding_gradients),
                embedding.size(0),
            )
        ),
        num_threads,
    )
    if problem:
        raise_problem(problem)
    return embedding_gradients.sum(dim=0), [
        own.view(len(own), -1, embedding.size(1)).transpose(1, 2) for own in gradients
    ]


def convolution_in_panels(weight: Tensor, bias: Tensor, unit: str) -> PanelLinear:
    """Pack a convolution, `(count, embedding_dim, width)`, in float32."""
    return PanelLinear.of([_by_window(weight)], [bias], "float32", unit)


def _by_window(weight: Tensor) -> Tensor:
    # (count, width * embedding_dim)
    return weight.detach().transpose(1, 2).flatten(1)


def _c_convolutions(
    convolutions: List[PanelLinear], widths: List[int], counts: List[int]
) -> "ctypes.Array[_CConvolution]":
    return (_CConvolution * len(convolutions))(
        *(
            _CConvolution(c_matrix(convolution.weight), pointer(convolution.bias), width, count)
            for convolution, width, count in zip(convolutions, widths, counts)
        )
    )


def _num_threads(
    num_words: int, convolutions: List[PanelLinear], linears: Sequence[PanelLinear] = ()
) -> int:
    multiplications = num_words * (
        sum(linear.weight.panels.numel() for linear in linears)
        + _WINDOWS_PER_WORD * sum(one.weight.panels.numel() for one in convolutions)
    )
    return max(1, min(torch.get_num_threads(), multiplications // MULTIPLICATIONS_PER_THREAD))


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


class _CMaxima(ctypes.Structure):
    _fields_ = [("values", ctypes.c_void_p), ("places", ctypes.c_void_p)]


class _CFilters(ctypes.Structure):
    _fields_ = [
        ("weight", ctypes.c_void_p),
        ("weight_gradient", ctypes.c_void_p),
        ("width", ctypes.c_int64),
        ("count", ctypes.c_int64),
    ]


class _CMaximaGradients(ctypes.Structure):
    _fields_ = [
        ("values", ctypes.c_void_p),
        ("places", ctypes.c_void_p),
        ("embedding", ctypes.c_void_p),
        ("num_ids", ctypes.c_int64),
    ]
