"""Which vectors of a sentence are written: those of all layers, or one vector per token, such as a mix."""

from functools import partial
from typing import Callable, Dict, NamedTuple, Optional, Tuple

import numpy
import torch

from elmo_plugin.embedding.pooling import check_pool, pool_tokens
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.modules.scalar_mix import ScalarMix


class LayerChoice(NamedTuple):
    """
    A function from the layers of a sentence to the vectors that are written, and how these are pooled after
    it, see `pool_tokens`. Choices of the same name give the same vectors.
    """

    name: str
    # From layer activations (num_layers, num_tokens, dim) to an array of this shape or (num_tokens, dim).
    function: Callable[[numpy.ndarray], numpy.ndarray]
    pool: Optional[str] = None  # a vector for each token

    def __call__(self, layers: numpy.ndarray) -> numpy.ndarray:
        """Return the vectors to write. With `pool` they have no dimension of tokens."""
        vectors = self.function(layers)
        return vectors if self.pool is None else pool_tokens(vectors, self.pool)

    def pooled(self, pool: Optional[str]) -> "LayerChoice":
        """Return this choice with another `pool`. Raise `ConfigurationError` for an unknown one."""
        check_pool(pool)
        return self._replace(pool=pool)

    def vector_shape(self, num_layers: int, dim: int) -> Tuple[int, ...]:
        """Return the shape of the vectors of one token or sentence: `(dim,)` or `(num_layers, dim)`."""
        shape = self.function(numpy.zeros((num_layers, 1, dim), dtype="float32")).shape
        return (*shape[:-2], shape[-1])


def _top(layers: numpy.ndarray) -> numpy.ndarray:
    # A copy: a view would keep all layers in memory.
    return layers[-1].copy()


def _average(layers: numpy.ndarray) -> numpy.ndarray:
    return layers.mean(axis=0)


# Functions that can be pickled.
_FUNCTIONS: Dict[str, Callable[[numpy.ndarray], numpy.ndarray]] = {
    "all": numpy.asarray,
    "top": _top,
    "average": _average,
}


def layer_choice(name: str, pool: Optional[str] = None) -> LayerChoice:
    """
    Return the choice of this name: `all`, `top` (the last layer) or `average` (of all layers). With `pool`
    there is one vector for each sentence, see `LayerChoice`.
    """
    if name not in _FUNCTIONS:
        raise ConfigurationError(
            f"output_format is '{name}', expected one of {', '.join(_FUNCTIONS)}."
        )
    return LayerChoice(name, _FUNCTIONS[name]).pooled(pool)


def learnt_mix(mix: ScalarMix, name: str) -> LayerChoice:
    """
    Return the choice that makes the weighted sum of layers that a task model learned (paper, eq. 1), gamma
    included.

    # Raises

    `ConfigurationError` if the mix normalises layers: the vector of a token then depends on the whole batch.
    """
    if mix.do_layer_norm:
        raise ConfigurationError(
            f"The mix '{name}' was learned with do_layer_norm, which makes the vectors of a sentence depend "
            "on the other sentences of its batch, expected a mix without it. Write the layers with --all."
        )
    with torch.no_grad():
        weights = (mix.gamma * mix.normalized_weights).cpu().numpy()  # (num_layers,)
    return LayerChoice(
        f"mix with weights {weights.tolist()}", partial(numpy.tensordot, weights, axes=1)
    )
