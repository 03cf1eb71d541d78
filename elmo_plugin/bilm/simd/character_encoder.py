"""The character encoder in C++, and its convolutions with their gradients: character_encoder.h."""

import ctypes
from typing import TYPE_CHECKING, List, Sequence, Tuple, cast

import torch
from torch import Tensor
from torch.nn import Conv1d, Linear

from elmo_plugin.bilm.simd.library import addresses, c_fields, call
from elmo_plugin.bilm.simd.panels import CMatrix, PanelMatrix, c_matrix, in_panels
from elmo_plugin.bilm.threads import most_threads, num_threads_for

if TYPE_CHECKING:
    from elmo_plugin.bilm.character_encoder import CharacterEncoder, Highway

# About the number of windows of a word, to choose the number of threads.
WINDOWS_PER_WORD = 10


class PanelEncoder:
    """A character encoder packed for a vector unit. Convolutions are float32 in every precision."""

    def __init__(self, encoder: "CharacterEncoder", precision: str, unit: str) -> None:
        def packed(*linears: Linear) -> PanelMatrix:
            weights, biases = zip(*((linear.weight, linear.bias) for linear in linears))
            return in_panels(weights, precision, unit, biases)

        self._unit = unit
        self._element_size = getattr(torch, precision).itemsize
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
            for highway in cast("List[Highway]", list(encoder.highways))
        ]
        self._projection, self._output_dim = None, sum(self._counts)
        if isinstance(encoder.projection, Linear):
            self._projection = packed(encoder.projection)
            self._output_dim = encoder.projection.out_features
        self._uses_tanh = {"relu": False, "tanh": True}[encoder.activation]
        linears = [*self._highways, *([self._projection] if self._projection else [])]
        self._multiplications_per_word = multiplications_per_word(self._convolutions) + sum(
            linear.panels.numel() for linear in linears
        )

    def struct(self) -> "CEncoder":
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
        words_and_vectors = c_words(words, self._embedding, self._widths)
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
    maxima = embedding.new_empty(len(words), sum(map(len, biases)))
    places = torch.empty_like(maxima, dtype=torch.int32)
    encoder = CEncoder(
        *addresses((embedding, embedding.shape)),
        *embedding.shape,
        num_filters=maxima.size(1),
        convolutions=c_convolutions(
            convolutions, [weight.size(2) for weight in weights], list(map(len, biases))
        ),
        num_convolutions=len(weights),
    )
    call(
        unit,
        "pool_words",
        ctypes.byref(encoder),
        ctypes.byref(c_words(words, embedding, [weight.size(2) for weight in weights])),
        ctypes.byref(_c_maxima(maxima, places)),
        num_threads_for(len(words) * multiplications_per_word(convolutions)),
    )
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
    by_window = [_by_window(weight).contiguous() for weight in weights]
    gradients = [torch.zeros_like(weight) for weight in by_window]
    filters = (_CFilters * len(weights))()
    for number, weight in enumerate(weights):
        count, width = weight.size(0), weight.size(2)
        shape = (count, width * embedding.size(1))
        filters[number] = _CFilters(
            *addresses((by_window[number], shape), (gradients[number], shape)), width, count
        )
    # In a crowd too: the sum of gradients depends on it.
    num_threads = most_threads()
    embedding_gradients = embedding.new_zeros(num_threads, *embedding.shape)
    encoder = CEncoder(
        *addresses((embedding, embedding.shape)), *embedding.shape, num_convolutions=len(weights)
    )
    # Filter by filter.
    gradient, places = gradient.t().contiguous(), places.t().contiguous()
    call(
        unit,
        "pool_words_backward",
        ctypes.byref(encoder),
        filters,
        ctypes.byref(c_words(words, embedding, [weight.size(2) for weight in weights])),
        ctypes.byref(_c_maxima(gradient, places)),
        ctypes.c_void_p(*addresses((embedding_gradients, embedding_gradients.shape))),
        num_threads,
    )
    return embedding_gradients.sum(dim=0), [
        own.view(len(own), -1, embedding.size(1)).transpose(1, 2) for own in gradients
    ]


def convolution_in_panels(weight: Tensor, bias: Tensor, unit: str) -> PanelMatrix:
    """Pack a convolution, `(count, embedding_dim, width)` and `(count,)`, in float32."""
    return in_panels([_by_window(weight)], "float32", unit, [bias])


def c_convolutions(
    convolutions: Sequence[PanelMatrix], widths: Sequence[int], counts: Sequence[int]
) -> "ctypes.Array[CConvolution]":
    """Return what C++ reads, with the characters of a window and the filters of each convolution."""
    structs = map(CConvolution, map(c_matrix, convolutions), widths, counts)
    return (CConvolution * len(convolutions))(*structs)


def c_words(words: Tensor, embedding: Tensor, widths: Sequence[int]) -> "CWords":
    """
    Return what C++ reads of character ids, `(num_words, num_characters)`. Raise `ValueError` if one is not
    in the embedding, or if words are shorter than a filter.
    """
    least, largest = map(int, torch.aminmax(words)) if words.numel() > 0 else (0, 0)
    if least < 0 or largest >= len(embedding) or words.size(1) < max(widths):
        raise ValueError(
            f"Found character ids from {least} to {largest} in words of {words.size(1)}, expected 0 to "
            f"{len(embedding) - 1}, and {max(widths)} or more in a word, as wide as a filter."
        )
    return CWords(*addresses((words, words.shape), dtype=torch.long), *words.shape)


def multiplications_per_word(convolutions: Sequence[PanelMatrix]) -> int:
    """Return about the number of multiplications of a word."""
    return WINDOWS_PER_WORD * sum(matrix.panels.numel() for matrix in convolutions)


def _by_window(weight: Tensor) -> Tensor:
    # (count, width * embedding_dim)
    return weight.detach().transpose(1, 2).flatten(1)


def _c_maxima(values: Tensor, places: Tensor) -> "_CMaxima":
    return _CMaxima(
        *addresses((values, places.shape)), *addresses((places, places.shape), dtype=torch.int32)
    )


class CConvolution(ctypes.Structure):
    _fields_ = [("weight", CMatrix), *c_fields(ctypes.c_int64, "width count")]


class CEncoder(ctypes.Structure):
    _fields_ = [
        ("embedding", ctypes.c_void_p),
        *c_fields(ctypes.c_int64, "num_ids embedding_dim num_filters output_dim"),
        ("convolutions", ctypes.POINTER(CConvolution)),
        ("num_convolutions", ctypes.c_int64),
        ("highways", ctypes.POINTER(CMatrix)),
        ("num_highways", ctypes.c_int64),
        ("projection", CMatrix),
        ("uses_tanh", ctypes.c_int32),
    ]


class CWords(ctypes.Structure):
    _fields_ = [
        ("ids", ctypes.c_void_p),
        *c_fields(ctypes.c_int64, "num_words num_characters"),
        ("vectors", ctypes.c_void_p),
    ]


class _CMaxima(ctypes.Structure):
    _fields_ = c_fields(ctypes.c_void_p, "values places")


class _CFilters(ctypes.Structure):
    _fields_ = [
        *c_fields(ctypes.c_void_p, "weight weight_gradient"),
        *c_fields(ctypes.c_int64, "width count"),
    ]
