"""The softmax over all words, in training too."""

import torch
from torch import Tensor
from torch.nn import Embedding

from elmo_plugin.pretraining.softmax import LMSoftmax, chunked_nll, log_partition


@LMSoftmax.register("elmo_full")
class FullSoftmax(LMSoftmax):
    """
    `softmax(W h + b)`, trained on the exact loss. Memory is bounded, but the work of a step grows with the
    vocabulary: `elmo_sampled` is for more than some ten thousand words.

    Initial values are bilm-tf's: `W` normal with variance `1 / input_dim`, `b` zero.

    # Parameters

    num_words : `int`
        Size of the vocabulary.
    input_dim : `int`
        Width of the states.
    """

    def __init__(self, num_words: int, input_dim: int) -> None:
        super().__init__(num_words, input_dim)
        vectors = torch.empty(num_words, input_dim).normal_(std=input_dim**-0.5)
        self.word_vectors = Embedding.from_pretrained(vectors, freeze=False)
        self.word_biases = Embedding.from_pretrained(torch.zeros(num_words, 1), freeze=False)

    @property
    def weight(self) -> Tensor:
        """`(num_words, input_dim)`."""
        return self.word_vectors.weight

    @property
    def bias(self) -> Tensor:
        """`(num_words,)`."""
        return self.word_biases.weight.squeeze(1)

    def forward(self, states: Tensor, targets: Tensor) -> Tensor:
        self.check_inputs(states, targets)
        # (num_positions,)
        target_logits = (states * self.word_vectors(targets)).sum(dim=1) + self.bias[targets]
        return log_partition(states, self.weight, self.bias) - target_logits

    def exact_nll(self, states: Tensor, targets: Tensor) -> Tensor:
        self.check_inputs(states, targets)
        return chunked_nll(states, targets, self.weight, self.bias)
