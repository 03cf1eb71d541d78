"""From the characters of a word to its context-independent vector, the biLM's layer 0."""

import math
from typing import List

import torch
from torch import Tensor

from elmo_plugin.bilm.options import NUM_CHARACTER_EMBEDDINGS, BiLMOptions

# Words that are convolved together, to bound memory: about 180 KB a word in the paper's model.
WORDS_PER_BLOCK = 512


class CharacterEncoder(torch.nn.Module):
    """
    Character convolutions with max over time, highway layers and a projection (paper, section 3.1).

    # Parameters

    options : `BiLMOptions`
        The sizes. New encoders start from bilm-tf's initial values.
    """

    def __init__(self, options: BiLMOptions) -> None:
        super().__init__()
        # A backward pass may be followed by a change of weights.
        self.num_backward_passes = 0
        self.activation = torch.relu if options.activation == "relu" else torch.tanh
        self.widest_filter = max(width for width, _ in options.filters)
        # +1: row 0 is padding and stays zero.
        self.character_embedding = torch.nn.Embedding(
            NUM_CHARACTER_EMBEDDINGS + 1, options.character_embedding_dim, padding_idx=0
        )
        with torch.no_grad():
            self.character_embedding.weight[1:].uniform_(-1.0, 1.0)
        self.convolutions = torch.nn.ModuleList(
            _new_convolution(options, width, count) for width, count in options.filters
        )
        self.highways = torch.nn.ModuleList(
            Highway(options.num_filters) for _ in range(options.num_highway)
        )
        self.projection: torch.nn.Module = torch.nn.Identity()
        if options.has_token_projection:
            self.projection = _new_linear(options.num_filters, options.projection_dim)

    def forward(self, words: Tensor) -> Tensor:
        """
        # Parameters

        words : `Tensor`
            `(num_words, 50)`, character ids.

        # Returns

        `Tensor` of shape `(num_words, projection_dim)`.
        """
        words = words[:, : _num_telling_characters(words, self.widest_filter)]
        vectors = torch.cat([self._encode(block) for block in words.split(WORDS_PER_BLOCK)])
        if vectors.requires_grad:
            vectors.register_hook(self._count_backward_pass)
        return vectors

    def _count_backward_pass(self, unused: Tensor) -> None:
        self.num_backward_passes += 1

    def _encode(self, words: Tensor) -> Tensor:
        # (num_words, character_embedding_dim, num_characters)
        characters = self.character_embedding(words).transpose(1, 2)
        pooled: List[Tensor] = []
        for convolution in self.convolutions:
            # (num_words, count): padding characters take part in the maximum, as in bilm-tf.
            pooled.append(self.activation(convolution(characters).amax(dim=2)))
        vectors = torch.cat(pooled, dim=1)  # (num_words, num_filters)
        for highway in self.highways:
            vectors = highway(vectors)
        return self.projection(vectors)  # (num_words, projection_dim)


class Highway(torch.nn.Module):
    """
    `g * relu(x W_transform + b) + (1 - g) * x` with `g = sigmoid(x W_carry + b)`.

    bilm-tf's names: its "carry" gate opens the transformed path. (AllenNLP's `Highway` gates the other
    way round and stores the negative of these carry weights.)
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.transform = _new_linear(dim, dim)
        # Closed at first: words pass unchanged.
        self.carry = _new_linear(dim, dim, bias=-2.0)

    def forward(self, inputs: Tensor) -> Tensor:
        gate = torch.sigmoid(self.carry(inputs))
        return gate * torch.relu(self.transform(inputs)) + (1 - gate) * inputs


def _new_convolution(options: BiLMOptions, width: int, count: int) -> torch.nn.Conv1d:
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


def _num_telling_characters(words: Tensor, widest_filter: int) -> int:
    """
    How many characters must be convolved so that every window that occurs is seen once.

    From some position on, every word repeats its last character (padding) to the end. Windows that
    start there all give the same response, so one such window of the widest filter is enough: the
    maximum over time is exactly the same, for about half of the work.
    """
    num_characters = words.size(1)
    if words.size(0) == 0:
        return num_characters
    differs = (words != words[:, -1:]).any(dim=0)  # (50,)
    telling = int(differs.nonzero().max()) + 1 if bool(differs.any()) else 0
    return min(num_characters, telling + widest_filter)
