"""What of a sentence's layers is written: all of them, or one vector per token."""

from typing import Callable, Dict, NamedTuple, Tuple

import numpy
import torch

from elmo_plugin.errors import ConfigurationError
from elmo_plugin.modules.scalar_mix import ScalarMix


class LayerChoice(NamedTuple):
    """
    What is made of a sentence's layers.

    # Parameters

    name : `str`
        Choices of one name make the same of the same layers.
    function : `Callable[[numpy.ndarray], numpy.ndarray]`
        From layer activations `(num_layers, num_tokens, dim)` to what is written: the same, or
        `(num_tokens, dim)`.
    """

    name: str
    function: Callable[[numpy.ndarray], numpy.ndarray]

    def __call__(self, layers: numpy.ndarray) -> numpy.ndarray:
        """What is written."""
        return self.function(layers)

    def vector_shape(self, num_layers: int, dim: int) -> Tuple[int, ...]:
        """The shape of what is written of one token: `(dim,)`, or `(num_layers, dim)`."""
        shape = self(numpy.zeros((num_layers, 1, dim), dtype="float32")).shape
        return (*shape[:-2], shape[-1])


def layer_choice(name: str) -> LayerChoice:
    """
    The choice of this name: `all`, `top` (the last layer) or `average` (of all layers).

    # Raises

    `ConfigurationError` if there is no such choice.
    """
    if name not in _CHOICES:
        raise ConfigurationError(
            f"output_format is '{name}', expected one of {', '.join(_CHOICES)}."
        )
    return _CHOICES[name]


def learnt_mix(mix: ScalarMix, name: str) -> LayerChoice:
    """
    The weighted sum of layers that a task model learnt (paper, eq. 1), gamma included.

    # Parameters

    mix : `ScalarMix`
        Its present weights are taken.
    name : `str`
        Says in errors which mix it is.

    # Raises

    `ConfigurationError` if the mix normalises layers: its result then depends on the whole batch, sentence
    marks included, so that there is no one vector of a token.
    """
    if mix.do_layer_norm:
        raise ConfigurationError(
            f"The mix '{name}' was learnt with do_layer_norm, under which the vectors of a sentence depend "
            "on the batch that it stands in, expected a mix without. Write the layers with --all."
        )
    with torch.no_grad():
        weights = (mix.gamma * mix.normalized_weights).cpu().numpy()  # (num_layers,)

    def mixed(layers: numpy.ndarray) -> numpy.ndarray:
        return numpy.tensordot(weights, layers, axes=1)

    return LayerChoice(f"mix with weights {weights.tolist()}", mixed)


def _all(layers: numpy.ndarray) -> numpy.ndarray:
    return layers


def _top(layers: numpy.ndarray) -> numpy.ndarray:
    return layers[-1]


def _average(layers: numpy.ndarray) -> numpy.ndarray:
    return layers.mean(axis=0)


_CHOICES: Dict[str, LayerChoice] = {
    choice.name: choice
    for choice in (
        LayerChoice("all", _all),
        LayerChoice("top", _top),
        LayerChoice("average", _average),
    )
}
