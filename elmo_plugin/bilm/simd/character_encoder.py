"""The character encoder in C++: character_encoder.h."""

import ctypes
from dataclasses import dataclass
from typing import TYPE_CHECKING, List, Optional, Sequence, Tuple, cast

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

    @classmethod
    def of(cls, encoder: "CharacterEncoder", precision: str, unit: str) -> "PanelEncoder":
        """Pack an encoder for a vector unit. Convolutions are float32 in every precision."""

        def linear(weights: List[Tensor], biases: List[Tensor]) -> PanelLinear:
            return PanelLinear.of(weights, biases, precision, unit)

        convolutions = [cast(Conv1d, module) for module in encoder.convolutions]
        highways = [cast("Highway", module) for module in encoder.highways]
        projection, output_dim = None, sum(module.out_channels for module in convolutions)
        if isinstance(encoder.projection, torch.nn.Linear):
            projection = linear([encoder.projection.weight], [encoder.projection.bias])
            output_dim = encoder.projection.out_features
        return cls(
            encoder.character_embedding.weight.detach().clone(),
            [
                _convolution(by_window(one.weight), cast(Tensor, one.bias), unit)
                for one in convolutions
            ],
            [convolution.kernel_size[0] for convolution in convolutions],
            [convolution.out_channels for convolution in convolutions],
            [
                linear(
                    [highway.transform.weight, highway.carry.weight],
                    [highway.transform.bias, highway.carry.bias],
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
        convolutions = _c_convolutions(self.convolutions, self.widths, self.counts)
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
        problem = library_of(self.convolutions[0].weight.unit).functions.encode_words(
            last.element_size(),
            ctypes.byref(encoder),
            ctypes.byref(_CWords(address(words), *words.shape, address(vectors))),
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
    convolutions = [
        _convolution(by_window(weight), bias, unit) for weight, bias in zip(weights, biases)
    ]
    counts = [len(bias) for bias in biases]
    structs = _c_convolutions(convolutions, [weight.size(2) for weight in weights], counts)
    maxima = embedding.new_empty(len(words), sum(counts))
    places = torch.empty_like(maxima, dtype=torch.int32)
    encoder = _CEncoder(
        embedding=address(embedding),
        embedding_dim=embedding.size(1),
        num_filters=maxima.size(1),
        convolutions=ctypes.cast(structs, ctypes.c_void_p),
        num_convolutions=len(weights),
    )
    problem = library_of(unit).functions.pool_words(
        ctypes.byref(encoder),
        ctypes.byref(_CWords(address(words), *words.shape)),
        ctypes.byref(_CMaxima(address(maxima), address(places))),
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
    plain = [by_window(weight) for weight in weights]
    gradients = [torch.zeros_like(weight) for weight in plain]
    filters = (_CFilters * len(weights))(
        *(
            _CFilters(address(weight), address(own), original.size(2), original.size(0))
            for weight, own, original in zip(plain, gradients, weights)
        )
    )
    num_threads = torch.get_num_threads()
    embedding_gradients = embedding.new_zeros(num_threads, *embedding.shape)
    # Filter by filter.
    gradient, places = gradient.t().contiguous(), places.t().contiguous()
    problem = library_of(unit).functions.pool_words_backward(
        ctypes.c_void_p(address(embedding)),
        ctypes.c_int64(embedding.size(1)),
        filters,
        ctypes.c_int64(len(filters)),
        ctypes.byref(_CWords(address(words), *words.shape)),
        ctypes.byref(
            _CMaximaGradients(
                address(gradient), address(places), address(embedding_gradients), embedding.size(0)
            )
        ),
        num_threads,
    )
    if problem:
        raise_problem(problem)
    return embedding_gradients.sum(dim=0), [
        own.view(len(own), -1, embedding.size(1)).transpose(1, 2) for own in gradients
    ]


def by_window(weight: Tensor) -> Tensor:
    """Bring a convolution, `(count, embedding_dim, width)`, into `(count, width * embedding_dim)`."""
    return weight.detach().transpose(1, 2).flatten(1)


def _convolution(weight: Tensor, bias: Tensor, unit: str) -> PanelLinear:
    return PanelLinear.of([weight], [bias], "float32", unit)


def _c_convolutions(
    convolutions: List[PanelLinear], widths: List[int], counts: List[int]
) -> "ctypes.Array[_CConvolution]":
    return (_CConvolution * len(convolutions))(
        *(
            _CConvolution(c_matrix(convolution.weight), address(convolution.bias), width, count)
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
