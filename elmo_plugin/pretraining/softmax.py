"""The softmax of the language model: parameters of all kinds; the full softmax."""

from typing import Any, List, Tuple

import torch
from allennlp.common import Registrable
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import Embedding

from elmo_plugin.bilm.softmax import (
    ExactSoftmax,
    chunks_of_positions,
    chunks_of_words,
    log_sum_of_chunks,
    logits,
)


class LMSoftmax(torch.nn.Module, Registrable):
    """
    The output layer of the biLM, `softmax(W h + b)`, shared by the two directions: from the state before a
    word to the word's probability (paper, section 3.1).

    A softmax may be trained on a loss that differs from its exact loss. Report only that of `exact`.

    Initial values are bilm-tf's: `W` normal with variance `1 / input_dim`, `b` zero.

    # Parameters

    num_words : `int`
        Size of the vocabulary. Not set in configs: the model gives it.
    input_dim : `int`
        Width of the states, the biLM's `projection_dim`. Not set in configs: the model gives it.
    """

    def __init__(self, num_words: int, input_dim: int) -> None:
        super().__init__()
        self.num_words = num_words
        self.input_dim = input_dim
        vectors = torch.empty(num_words, input_dim).normal_(std=input_dim**-0.5)
        self.word_vectors = Embedding.from_pretrained(vectors, freeze=False)
        self.word_biases = Embedding.from_pretrained(torch.zeros(num_words, 1), freeze=False)

    @property
    def weight(self) -> Tensor:
        """Return the weight, `(num_words, input_dim)`."""
        return self.word_vectors.weight

    @property
    def bias(self) -> Tensor:
        """Return the bias, `(num_words,)`."""
        return self.word_biases.weight.squeeze(1)

    @property
    def exchanged_parameters(self) -> List[str]:
        """
        Return the names of the parameters whose gradients are already the mean of all distributed workers'
        after the backward pass, so that nothing else must exchange them.
        """
        return []

    def forward(self, states: Tensor, targets: Tensor) -> Tensor:
        """
        Return negative log-likelihoods, or a training loss in place of them, `(num_positions,)`.

        # Parameters

        states : `Tensor`
            `(num_positions, input_dim)`, without padding.
        targets : `LongTensor`
            `(num_positions,)`. The word of each position, from 0 to `num_words - 1`.
        """
        raise NotImplementedError

    def exact(self) -> ExactSoftmax:
        """Return the softmax for evaluation, over the same parameters."""
        return ExactSoftmax(self.weight.detach(), self.bias.detach())


@LMSoftmax.register("elmo_full")
class FullSoftmax(LMSoftmax):
    """
    The softmax that is trained on its exact loss. Memory is bounded, but the time of a step grows with the
    vocabulary: use `elmo_sampled` for more than about ten thousand words. Parameters are those of
    `LMSoftmax`.
    """

    def forward(self, states: Tensor, targets: Tensor) -> Tensor:
        # (num_positions,)
        target_logits = (states * self.word_vectors(targets)).sum(dim=1) + self.bias[targets]
        return log_partition(states, self.weight, self.bias) - target_logits


def log_partition(states: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """
    Return `logsumexp(states @ weight.T + bias)` over words, `(num_positions,)`, for training.

    Only a chunk of the matrix of logits is in memory; the gradient computes the chunks again. That is one
    product more than autograd needs, but takes less time, because autograd passes over the whole matrix
    several times. Under autocast, products are computed in its type, and summed in the type of `bias`.
    """
    device_type = states.device.type
    product_type = weight.dtype
    if torch.is_autocast_enabled(device_type):
        product_type = torch.get_autocast_dtype(device_type)
    weight = weight.to(product_type)
    return torch.cat(
        [
            _LogPartition.apply(chunk, weight, bias)
            for chunk in chunks_of_positions(states.to(product_type))
        ]
    )


class _LogPartition(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, states: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        log_sum = log_sum_of_chunks(states, weight, bias).to(bias.dtype)
        ctx.save_for_backward(states, weight, bias, log_sum)
        return log_sum

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Tuple[Tensor, Tensor, Tensor]:
        states, weight, bias, log_sum = ctx.saved_tensors
        scale = gradient.unsqueeze(1)  # (num_positions, 1)
        # Scaling the narrow matrix of states saves a pass over the wide one of probabilities.
        scaled_states = (scale * states).to(states.dtype)
        # Chunks are summed in the type of the bias, which autocast does not change.
        states_gradient = torch.zeros_like(states, dtype=bias.dtype)
        weight_gradient, bias_gradient = torch.empty_like(weight), torch.empty_like(bias)
        for words in chunks_of_words(states, weight):
            # (num_positions, words of the chunk)
            probabilities = logits(states, weight[words], bias[words])
            probabilities.sub_(log_sum.unsqueeze(1)).exp_()
            torch.mv(probabilities.t(), gradient, out=bias_gradient[words])
            probabilities = probabilities.to(states.dtype)
            torch.mm(probabilities.t(), scaled_states, out=weight_gradient[words])
            states_gradient += torch.mm(probabilities, weight[words])
        return states_gradient.mul_(scale).to(states.dtype), weight_gradient, bias_gradient
