"""From the characters of a word to its context-independent vector, the biLM's layer 0."""

import math
from typing import Any, Dict, List, Optional, Tuple

import torch
from torch import Tensor

from elmo_plugin.bilm.characters import NUM_CHARACTER_IDS
from elmo_plugin.bilm.interception import are_plain, settings_of, without_second_derivatives
from elmo_plugin.bilm.options import CharacterEncoderOptions
from elmo_plugin.bilm.simd.character_encoder import pool_words, pool_words_backward
from elmo_plugin.bilm.simd.library import unit_of_modules

# Words that are convolved together, to bound memory: about 180 KB a word in the paper's model.
WORDS_PER_BLOCK = 512


class CharacterEncoder(torch.nn.Module):
    """
    Character convolutions with max over time, highway layers and a projection (paper, section 3.1).

    # Parameters

    options : `CharacterEncoderOptions`
        The sizes. New encoders start from bilm-tf's initial values.
    output_dim : `int`
        Width of a vector. Equal to the number of filters: no projection, as in bilm-tf.
    num_ids : `int`, optional (default = 262)
        Number of character ids, padding included.
    """

    def __init__(
        self,
        options: CharacterEncoderOptions,
        output_dim: int,
        num_ids: int = NUM_CHARACTER_IDS,
    ) -> None:
        super().__init__()
        self.activation = options.activation
        self.widest_filter = max(width for width, _ in options.filters)
        # Row 0 is padding and stays zero.
        self.character_embedding = torch.nn.Embedding(
            num_ids, options.character_embedding_dim, padding_idx=0
        )
        with torch.no_grad():
            self.character_embedding.weight[1:].uniform_(-1.0, 1.0)
        self.convolutions = torch.nn.ModuleList(
            _new_convolution(options, width, count) for width, count in options.filters
        )
        self._built_settings = self._settings()
        self.highways = torch.nn.ModuleList(
            Highway(options.num_filters) for _ in range(options.num_highway)
        )
        self.projection: torch.nn.Module = torch.nn.Identity()
        if output_dim != options.num_filters:
            self.projection = _new_linear(options.num_filters, output_dim)

    def forward(self, words: Tensor) -> Tensor:
        """Return the vectors of words, `(num_words, output_dim)`, from character ids, `(num_words, 50)`."""
        maxima = self._maxima_in_cpp(words)
        if maxima is not None:
            return self._vectors(maxima)
        words = words[:, : _num_characters_to_read(words, self.widest_filter)]
        blocks = words.split(WORDS_PER_BLOCK)
        return torch.cat([self._vectors(self._maxima(block)) for block in blocks])

    def forward_traceable(self, words: Tensor) -> Tensor:
        """As `forward`, by operations that do not depend on the words. It takes more time and memory."""
        return self._vectors(self._maxima(words))

    def _vectors(self, maxima: Tensor) -> Tensor:
        """From maxima over time, `(num_words, num_filters)`, to vectors, `(num_words, projection_dim)`."""
        vectors = getattr(torch, self.activation)(maxima)
        for highway in self.highways:
            vectors = highway(vectors)
        return self.projection(vectors)

    def _maxima(self, words: Tensor) -> Tensor:
        """Return the maxima of all filters over the positions of a word, `(num_words, num_filters)`."""
        # (num_words, character_embedding_dim, num_characters)
        characters = self.character_embedding(words).transpose(1, 2)
        # Padding characters take part in the maximum, as in bilm-tf.
        return torch.cat([layer(characters).amax(dim=2) for layer in self.convolutions], dim=1)

    def _maxima_in_cpp(self, words: Tensor) -> Optional[Tensor]:
        """As `_maxima`, for training; `None` where torch's operations have to do it."""
        if not torch.is_grad_enabled():
            return None
        # Modules with hooks or other settings, and adapters in their place, have to be called.
        convolutions = [(layer, torch.nn.Conv1d) for layer in self.convolutions]
        if (
            not are_plain([(self.character_embedding, torch.nn.Embedding), *convolutions])
            or self._settings() != self._built_settings
            or any(layer.weight.dtype != torch.float32 for layer in self.convolutions)
        ):
            return None
        embedding = self.character_embedding.weight
        unit = unit_of_modules(embedding)
        if unit is None:
            return None
        parameters = [
            parameter for layer in self.convolutions for parameter in (layer.weight, layer.bias)
        ]
        return _MaximaInCpp.apply(unit, words, embedding, *parameters)

    def _settings(self) -> List[Dict[str, Any]]:
        """Return what the modules that the C++ replaces compute by, beside their weights."""
        return [settings_of(module) for module in (self.character_embedding, *self.convolutions)]


class _MaximaInCpp(torch.autograd.Function):
    """
    The maxima over time of convolutions. Only the window with the maximum has a gradient: the C++ library
    computes it for those windows, autograd would for all.
    """

    @staticmethod
    def forward(
        ctx: Any, unit: str, words: Tensor, embedding: Tensor, *parameters: Tensor
    ) -> Tensor:
        words = words.long().contiguous()
        weights, biases = list(parameters[::2]), list(parameters[1::2])
        maxima, places = pool_words(words, embedding.detach(), weights, biases, unit)
        ctx.unit = unit
        ctx.save_for_backward(words, places, embedding, *weights)
        return maxima

    @staticmethod
    @without_second_derivatives
    def backward(ctx: Any, gradient: Tensor) -> Tuple[Optional[Tensor], ...]:
        # Read once: tensors that were recomputed for this pass can be read only once.
        words, places, embedding, *weights = ctx.saved_tensors
        of_embedding, of_weights = pool_words_backward(
            words, embedding, weights, places, gradient, ctx.unit
        )
        of_embedding[0] = 0  # padding, which is not trained
        of_biases = gradient.sum(dim=0).split([len(weight) for weight in weights])
        of_parameters = [part for pair in zip(of_weights, of_biases) for part in pair]
        return (None, None, of_embedding, *of_parameters)


class Highway(torch.nn.Module):
    """
    `g * relu(x W_transform + b) + (1 - g) * x` with `g = sigmoid(x W_carry + b)`.

    bilm-tf's names: its "carry" gate opens the transformed path. (AllenNLP's `Highway` gates the other
    way round and stores the negative of these carry weights.) `character_encoder.h` has the same arithmetic
    for frozen biLMs.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.transform = _new_linear(dim, dim)
        # Closed at first: words pass unchanged.
        self.carry = _new_linear(dim, dim, bias=-2.0)

    def forward(self, inputs: Tensor) -> Tensor:
        gate = torch.sigmoid(self.carry(inputs))
        return gate * torch.relu(self.transform(inputs)) + (1 - gate) * inputs


def _new_convolution(options: CharacterEncoderOptions, width: int, count: int) -> torch.nn.Conv1d:
    """A character convolution with bilm-tf's initial values."""
    convolution = torch.nn.Conv1d(options.character_embedding_dim, count, width)
    assert convolution.bias is not None
    if options.activation == "relu":
        torch.nn.init.uniform_(convolution.weight, -0.05, 0.05)
    else:
        fan_in = width * options.character_embedding_dim
        torch.nn.init.normal_(convolution.weight, 0.0, math.sqrt(1.0 / fan_in))
    torch.nn.init.zeros_(convolution.bias)
    return convolution


def _new_linear(input_dim: int, output_dim: int, bias: float = 0.0) -> torch.nn.Linear:
    """A linear layer with bilm-tf's initial values."""
    linear = torch.nn.Linear(input_dim, output_dim)
    torch.nn.init.normal_(linear.weight, 0.0, math.sqrt(1.0 / input_dim))
    torch.nn.init.constant_(linear.bias, bias)
    return linear


def _num_characters_to_read(words: Tensor, widest_filter: int) -> int:
    """
    Return how many characters must be convolved so that every distinct window is read once.

    From some position on, every word repeats its last character (padding) to the end. Windows that start
    there are all equal, so one of the widest filter is enough: the maximum over time is exactly the same, for
    about half of the work.
    """
    num_characters = words.size(1)
    if words.size(0) == 0:
        return num_characters
    differs = (words != words[:, -1:]).any(dim=0)  # (50,)
    distinct = int(differs.nonzero().max()) + 1 if bool(differs.any()) else 0
    return min(num_characters, distinct + widest_filter)
