"""Vectors from the layers of a sentence: a choice of layers, pooling over tokens, and cosine similarity."""

import copy
from dataclasses import dataclass
from functools import partial
from numbers import Integral
from typing import Callable, Dict, Optional, Tuple, Union

import numpy
import torch

from elmo_plugin.errors import ConfigurationError, check_choice
from elmo_plugin.modules.scalar_mix import ScalarMix

MEAN, MAX, FIRST_LAST = POOLS = ("mean", "max", "first-last")

TOP_LAYER, AVERAGE = -1, "average"

# The index of a layer, from 0; `TOP_LAYER`; or `AVERAGE`, the mean of all layers.
Layer = Union[int, str]


@dataclass(frozen=True)
class LayerChoice:
    """
    A function from the layers of a sentence to the vectors that are written, and how these are pooled after
    it, see `pool_tokens`. Choices of the same name and pool give the same vectors.
    """

    name: str
    # From layer activations (num_layers, num_tokens, dim) to an array of this shape or (num_tokens, dim).
    function: Callable[[numpy.ndarray], numpy.ndarray]
    pool: Optional[str] = None  # a vector for each token

    def __post_init__(self) -> None:
        if self.pool is not None:
            check_pool(self.pool)

    def __call__(self, layers: numpy.ndarray) -> numpy.ndarray:
        """Return the vectors to write. With `pool` they have no dimension of tokens."""
        vectors = self.function(layers)
        return vectors if self.pool is None else pool_tokens(vectors, self.pool)

    def vector_shape(self, num_layers: int, dim: int) -> Tuple[int, ...]:
        """Return the shape of the vectors of one token or sentence: `(dim,)` or `(num_layers, dim)`."""
        shape = self.function(numpy.zeros((num_layers, 1, dim), dtype="float32")).shape
        return (*shape[:-2], shape[-1])


def check_layer(layer: Layer, num_layers: int, name: str = "--layer") -> None:
    """
    Raise `ConfigurationError` if a biLM with `num_layers` has no such `Layer`. `name` is that of the option
    or key.
    """
    # True is an integer, which numpy takes for a mask.
    is_index = (
        isinstance(layer, Integral)
        and not isinstance(layer, bool)
        and TOP_LAYER <= layer < num_layers
    )
    if not is_index and layer != AVERAGE:
        raise ConfigurationError(
            f"{name}: found {layer}, expected a number from 0 (the token representation) to "
            f"{num_layers - 1} (the last layer of this biLM), {TOP_LAYER} for the last layer, or {AVERAGE}."
        )


def choose_layer(layers: numpy.ndarray, layer: Layer) -> numpy.ndarray:
    """Return one layer of `(num_layers, num_tokens, dim)`, or the mean of all."""
    # A copy: a view would keep all layers in memory.
    return layers.mean(axis=0) if isinstance(layer, str) else layers[layer].copy()


# Functions that can be pickled. They keep both directions: the pool first-last takes the halves of the width.
_FUNCTIONS: Dict[str, Callable[[numpy.ndarray], numpy.ndarray]] = {
    "all": numpy.asarray,
    "top": partial(choose_layer, layer=TOP_LAYER),
    AVERAGE: partial(choose_layer, layer=AVERAGE),
}

LAYER_CHOICES = tuple(_FUNCTIONS)


def layer_choice(name: str, pool: Optional[str] = None) -> LayerChoice:
    """Return the choice of this name: `all`, `top` (the last layer) or `average` (of all layers)."""
    check_choice("output_format", name, _FUNCTIONS)
    return LayerChoice(name, _FUNCTIONS[name], pool)


def learned_mix(mix: ScalarMix, name: str, pool: Optional[str] = None) -> LayerChoice:
    """
    Return the choice that makes the weighted sum of layers that a task model learned (paper, eq. 1), gamma
    included. Raise `ConfigurationError` if the mix normalizes layers: vectors then depend on the whole batch.
    """
    if mix.do_layer_norm:
        raise ConfigurationError(
            f"The mix '{name}' was learned with do_layer_norm, which makes the vectors of a sentence depend "
            "on the other sentences of its batch, expected a mix without it. Write the layers with --all."
        )
    mix = copy.deepcopy(mix).cpu()
    values = {name: value.tolist() for name, value in mix.named_parameters()}
    return LayerChoice(f"mix with {values}", partial(_mixed, mix), pool)


def _mixed(mix: ScalarMix, layers: numpy.ndarray) -> numpy.ndarray:
    with torch.no_grad():
        return mix(list(torch.from_numpy(layers))).numpy()


def check_pool(pool: str) -> None:
    """Raise `ConfigurationError` unless `pool` is one of `POOLS`."""
    check_choice("pool", pool, POOLS)


def pool_tokens(vectors: numpy.ndarray, pool: str) -> numpy.ndarray:
    """
    Make one vector of those of the tokens.

    # Parameters

    vectors : `numpy.ndarray`
        `(num_tokens, dim)` or `(num_layers, num_tokens, dim)`, without sentence marks. The first half of
        `dim` is the forward direction.
    pool : `str`
        - `mean`: the mean over tokens;
        - `max`: in each dimension the largest value of a token;
        - `first-last`: the forward half of the last token and the backward half of the first token, each of
          which has read the whole sentence: the last states of a bidirectional LSTM.

    # Returns

    Array of shape `(dim,)` or `(num_layers, dim)`. Zeros for a sentence without tokens.
    """
    check_pool(pool)
    if vectors.shape[-2] == 0:
        return numpy.zeros((*vectors.shape[:-2], vectors.shape[-1]), dtype=vectors.dtype)
    if pool == MEAN:
        return vectors.mean(axis=-2)
    if pool == MAX:
        return vectors.max(axis=-2)
    half = vectors.shape[-1] // 2
    return numpy.concatenate([vectors[..., -1, :half], vectors[..., 0, half:]], axis=-1)


def cosine_similarities(vectors: numpy.ndarray, others: numpy.ndarray) -> numpy.ndarray:
    """
    Return the cosine similarity of each vector, `(num_vectors, dim)`, to each of the others,
    `(num_others, dim)`: `(num_vectors, num_others)`, from -1 to 1. It is 0 to a vector of zeros.
    """
    # By rounding, products can exceed 1.
    return numpy.clip(of_length_one(vectors) @ of_length_one(others).T, -1, 1)


def of_length_one(vectors: numpy.ndarray) -> numpy.ndarray:
    """Scale each row of `(num_rows, dim)` to length 1, in float64. Rows of zeros stay zeros."""
    # Squares of float16 soon overflow.
    vectors = vectors.astype(numpy.float64)
    lengths = numpy.linalg.norm(vectors, axis=1, keepdims=True)  # (num_rows, 1)
    return vectors / numpy.maximum(lengths, numpy.finfo(numpy.float64).tiny)
