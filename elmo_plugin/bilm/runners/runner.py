"""What runs a frozen biLM."""

import copy
import functools
from abc import ABC, abstractmethod
from typing import Any, Callable, Iterable, List, Optional, Sequence, Tuple

import torch
from torch import Tensor

from elmo_plugin.bilm.character_encoder import CharacterEncoder
from elmo_plugin.bilm.many_langs import ManyLangsEncoder
from elmo_plugin.bilm.steps import LayerInput, LayerOutput, LSTMTensors, RunLayer

# From character ids, `(num_words, 50)`, to vectors, `(num_words, projection_dim)`.
Encode = Callable[[Tensor], Tensor]


class Runner(ABC):
    """
    The weights of a biLM in the layout in which they are multiplied, and the code that does it. All runners
    return what the reference runner returns, up to rounding. They are immutable.

    # Attributes

    name : `str`
        The name in configs and logs.
    layers : `List[RunLayer]`
        Each runs both directions of a layer.

    # Parameters

    encode : `Encode`
        Returns the vectors of words. Also an attribute.
    prepared : `Sequence[Any]`
        The layers of the forward direction, then those of the backward direction, as the runner packs them.
    run : `Callable[[Tuple[Any, Any], List[LayerInput]], List[LayerOutput]]`
        Runs both directions of one layer.
    """

    name: str

    def __init__(
        self,
        encode: Encode,
        prepared: Sequence[Any],
        run: Callable[[Tuple[Any, Any], List[LayerInput]], List[LayerOutput]],
    ) -> None:
        self.encode = encode
        num_lstm_layers = len(prepared) // 2
        pairs = zip(prepared[:num_lstm_layers], prepared[num_lstm_layers:])
        self.layers: List[RunLayer] = [functools.partial(run, pair) for pair in pairs]

    @classmethod
    @abstractmethod
    def unsupported_reason(cls, precision: str, device: torch.device) -> Optional[str]:
        """Return why it cannot run in this precision on this device, as a clause; `None` if it can."""

    @classmethod
    @abstractmethod
    def prepare(
        cls, encoder: torch.nn.Module, layers: Iterable[LSTMTensors], precision: str
    ) -> "Runner":
        """
        Copy the weights of a character encoder, the LSTMs of the forward direction and those of the backward
        direction. Each layer, and each of its `matrices`, is copied before the next is requested.
        """


def frozen_encoder(
    encoder: torch.nn.Module, prepare: Callable[[CharacterEncoder], Encode]
) -> Encode:
    """Return the frozen copy of an encoder; `prepare` copies its convolutions and highways."""
    if isinstance(encoder, CharacterEncoder):
        return prepare(encoder)
    assert isinstance(encoder, ManyLangsEncoder)
    encode_characters = None if encoder.characters is None else prepare(encoder.characters)
    rest = copy.deepcopy(encoder)
    rest.characters = None
    return functools.partial(rest.encode, encode_characters)
