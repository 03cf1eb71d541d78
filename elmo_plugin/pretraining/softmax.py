"""The softmax of the language model: over all words, and over the target and a sample of other words."""

import math
from typing import Any, List, Tuple

import torch
import torch.distributed
from allennlp.common import Registrable
from allennlp.common.util import is_distributed
from torch import Tensor
from torch.nn import Embedding

from elmo_plugin.bilm.interception import without_second_derivatives
from elmo_plugin.bilm.softmax import (
    ExactSoftmax,
    chunks_of_positions,
    chunks_of_words,
    log_sum_of_chunks,
    logits,
)
from elmo_plugin.errors import ConfigurationError


class LMSoftmax(torch.nn.Module, Registrable):
    """
    The output layer of the biLM, `softmax(W h + b)`, shared by the two directions: from the state before a
    word to the word's probability (paper, section 3.1). Training may use another loss than that of `exact`.

    Initial values are bilm-tf's: `W` normal with variance `1 / input_dim`, `b` zero. The model gives
    `num_words`, the size of the vocabulary, and `input_dim`, the biLM's `projection_dim`: configs do not.
    """

    exchanged_parameters: List[str] = []
    """The names of the parameters whose gradients the backward pass averages over workers."""

    def __init__(self, num_words: int, input_dim: int) -> None:
        super().__init__()
        self.num_words = num_words
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

    def forward(self, states: Tensor, targets: Tensor) -> Tensor:
        """
        Return negative log-likelihoods, or a training loss in place of them, `(num_positions,)`. `states` are
        `(num_positions, input_dim)`, without padding; `targets`, `(num_positions,)`, are the words.
        """
        raise NotImplementedError

    def exact(self) -> ExactSoftmax:
        """Return the softmax for evaluation, over the same parameters."""
        return ExactSoftmax(self.weight.detach(), self.bias.detach())


@LMSoftmax.register("elmo_full")
class FullSoftmax(LMSoftmax):
    """
    The softmax that is trained on its exact loss. Memory is bounded, but the time of a step grows with the
    vocabulary: use `elmo_sampled` for more than about ten thousand words.
    """

    def forward(self, states: Tensor, targets: Tensor) -> Tensor:
        # (num_positions,)
        target_logits = (states * self.word_vectors(targets)).sum(dim=1) + self.bias[targets]
        return log_partition(states, self.weight, self.bias) - target_logits


@LMSoftmax.register("elmo_sampled")
class SampledSoftmax(LMSoftmax):
    """
    A full softmax that is trained on the target and on words that each call draws, like TensorFlow's
    `sampled_softmax_loss` in bilm-tf. Its parameters are those of a full softmax, so the two can exchange
    weights.

    The draw is log-uniform, `P(k) = ln((k + 2) / (k + 1)) / ln(num_words + 1)`, which is about the frequency
    of word `k` if words are sorted by descending frequency. There is one draw of distinct words per call,
    shared by all positions. The logarithm of the expected count of a word is subtracted from its logit, also
    for the target, and a target that was also drawn counts once.

    This trains the right probabilities, but the loss is not an estimate of the exact loss: it is lower, by up
    to the logarithm of the target's expected count. It only shows whether training makes progress.

    # Parameters

    num_samples : `int`, optional (default = `8192`)
        Number of distinct words in a draw. If it is more than about half of the vocabulary, the full softmax
        is the better choice: a draw takes too many tries.
    sparse_gradients : `bool`, optional (default = `False`)
        Whether the gradient of the parameters has only the rows of targets and drawn words. Then the cost of
        a step, and the size of gradients that distributed workers exchange, do not depend on the size of the
        vocabulary. Values are the same either way. Sparse gradients need an optimizer that supports them:
        Adagrad without weight decay, SGD, SparseAdam.
    """

    def __init__(
        self,
        num_words: int,
        input_dim: int,
        num_samples: int = 8192,
        sparse_gradients: bool = False,
    ) -> None:
        if not 1 <= num_samples <= num_words:
            raise ConfigurationError(
                f"softmax.num_samples is {num_samples}, expected 1 to {num_words}, the vocabulary's words "
                "(a fifth is plenty). Change it, use softmax type 'elmo_full', or make a larger vocabulary."
            )
        super().__init__(num_words, input_dim)
        self.num_samples = num_samples
        if sparse_gradients:
            self.word_vectors.sparse = self.word_biases.sparse = True
            self.exchanged_parameters = ["word_vectors.weight", "word_biases.weight"]

    def forward(self, states: Tensor, targets: Tensor) -> Tensor:
        # On the CPU, while a GPU has the LSTMs to do.
        sampled_words, num_tries = self.draw_words()
        return self.sampled_nll(states, targets, sampled_words.to(targets.device), num_tries)

    def draw_words(self) -> Tuple[Tensor, int]:
        """
        Draw until there are `num_samples` distinct words; on the CPU, so that a seed gives the same words on
        any device. Return the words, ascending, `(num_samples,)`, and the number of draws.
        """
        # Each batch has room for repetitions. Most draws of a small share of the words need just one.
        tries_per_batch = 2 * self.num_samples
        num_tries = 0
        # The try at which each word came first; `never` for words that did not come.
        never = torch.iinfo(torch.long).max
        first_tries = torch.full((self.num_words,), never)
        while True:
            # float64: in float32, the steps between numbers below 1 would leave out some rare words.
            uniform = torch.rand(tries_per_batch, dtype=torch.float64)
            words = uniform.mul_(math.log(self.num_words + 1)).exp_().long().sub_(1)
            # Rounding may reach one beyond the last word.
            words.clamp_max_(self.num_words - 1)
            tries = torch.arange(num_tries, num_tries + tries_per_batch)
            first_tries.scatter_reduce_(0, words, tries, reduce="amin")
            num_tries += tries_per_batch
            drawn_words = (first_tries < never).nonzero().squeeze(1)
            if len(drawn_words) >= self.num_samples:
                # The try that completed the draw; what came after it is dropped.
                last_try = int(first_tries[drawn_words].kthvalue(self.num_samples).values)
                return drawn_words[first_tries[drawn_words] <= last_try], last_try + 1

    def expected_counts(self, words: Tensor, num_tries: int) -> Tensor:
        """Return the probability of each word to occur in `num_tries` draws, its expected count; float64."""
        probabilities = (1 / (words.double() + 1)).log1p() / math.log(self.num_words + 1)
        # 1 - (1 - p) ** num_tries, without loss for small p.
        return -torch.expm1(num_tries * torch.log1p(-probabilities))

    def sampled_nll(
        self, states: Tensor, targets: Tensor, sampled_words: Tensor, num_tries: int
    ) -> Tensor:
        """Return the loss of `forward`, given what `draw_words` returns."""
        # One look-up for all rows, so that the gradient is touched once.
        words = torch.cat([targets, sampled_words])  # (num_positions + num_samples,)
        sizes = [len(targets), len(sampled_words)]
        if self.exchanged_parameters and is_distributed():
            weights = self.word_vectors.weight, self.word_biases.weight
            vectors, biases = ExchangedRows.apply(words, *weights)
        else:
            vectors, biases = self.word_vectors(words), self.word_biases(words)
        target_vectors, sampled_vectors = vectors.split(sizes)
        counts = self.expected_counts(words, num_tries)
        biases = biases.squeeze(1) - counts.log().to(biases.dtype)
        target_biases, sampled_biases = biases.split(sizes)

        target_logits = (states * target_vectors).sum(dim=1) + target_biases  # (num_positions,)
        log_sum = log_partition(states, sampled_vectors, sampled_biases)  # (num_positions,)
        # An accidental hit has the same logit as the target: removing it and adding the target would not
        # change the sum. TensorFlow does so, by a matrix as large as the logits.
        nearest = torch.searchsorted(sampled_words, targets).clamp_max(len(sampled_words) - 1)
        is_hit = sampled_words[nearest] == targets
        return torch.where(is_hit, log_sum, torch.logaddexp(log_sum, target_logits)) - target_logits


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
    @without_second_derivatives
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


class ExchangedRows(torch.autograd.Function):
    """
    Return the rows `words`, `(num_rows,)`, of some matrices of the same type, each `(num_rows, dim)`. The
    backward pass is a collective operation of all workers: each gets the mean of the gradients of all, for
    the rows that any of them has looked up. Workers may look up different numbers of rows.

    `DistributedDataParallel` would give the same, but with gloo and sparse gradients it damages memory (torch
    2.12: "malloc(): unaligned tcache chunk detected" after some thousand steps, even for a model of torch's
    own layers only). So it must be told to ignore these parameters.
    """

    @staticmethod
    def forward(ctx: Any, words: Tensor, *weights: Tensor) -> Tuple[Tensor, ...]:
        ctx.save_for_backward(words)
        ctx.sizes = [weight.size() for weight in weights]
        return tuple(weight[words] for weight in weights)

    @staticmethod
    @without_second_derivatives
    def backward(ctx: Any, *gradients: Tensor) -> Tuple[Any, ...]:
        (words,) = ctx.saved_tensors
        num_rows = [int(size) for size in _gather(torch.tensor([len(words)], device=words.device))]
        indices = _gather_rows(words, num_rows).unsqueeze(0)  # (1, rows of all workers)
        # One message for all weights.
        rows_of_all = _gather_rows(torch.cat(gradients, dim=1), num_rows) / len(num_rows)
        rows_of_weights = rows_of_all.split([size[1] for size in ctx.sizes], dim=1)
        return None, *(
            torch.sparse_coo_tensor(indices, rows, size, check_invariants=False)
            for rows, size in zip(rows_of_weights, ctx.sizes)
        )


def _gather_rows(rows: Tensor, num_rows: List[int]) -> Tensor:
    """Return the rows of all workers, in the order of the workers. `num_rows` are their numbers of rows."""
    padded = rows.new_zeros(max(num_rows), *rows.shape[1:])
    padded[: len(rows)] = rows
    return torch.cat([gathered[:number] for gathered, number in zip(_gather(padded), num_rows)])


def _gather(tensor: Tensor) -> List[Tensor]:
    """Return the tensors of all workers, which must have the same shape."""
    gathered = [torch.empty_like(tensor) for _ in range(torch.distributed.get_world_size())]
    torch.distributed.all_gather(gathered, tensor)
    return gathered
