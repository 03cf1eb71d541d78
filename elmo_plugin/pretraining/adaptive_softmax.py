"""An adaptive softmax, which spends less computation on rare words."""

import itertools
from typing import List

from torch import Tensor
from torch.nn import AdaptiveLogSoftmaxWithLoss

from elmo_plugin.bilm.softmax import ExactAdaptiveSoftmax, ExactFullSoftmax, ExactSoftmax
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.pretraining.softmax import LMSoftmax


@LMSoftmax.register("elmo_adaptive")
class AdaptiveSoftmax(LMSoftmax):
    """
    torch's adaptive softmax (Grave et al. 2017): frequent words and one entry per cluster of rarer words
    share a first softmax; each cluster has a softmax of its own over narrower vectors. Exact in training and
    in evaluation. Words must be sorted by descending frequency. Not in the paper.

    A cluster without a target in a batch gets no gradient, so distributed training needs
    `find_unused_parameters`.

    # Parameters

    num_words : `int`
        Size of the vocabulary.
    input_dim : `int`
        Width of the states.
    cutoffs : `List[int]`
        First word of each cluster, in ascending order. `[2000, 10000]`: words 0 to 1999 are in the first
        softmax.
    div_value : `float`, optional (default = `4.0`)
        Cluster `i`, from 1, has vectors of width `input_dim / div_value ** i`.

    # Raises

    `ConfigurationError` if cutoffs are not ascending indices of the vocabulary, or if a cluster's vectors
    would have no width.
    """

    def __init__(
        self, num_words: int, input_dim: int, cutoffs: List[int], div_value: float = 4.0
    ) -> None:
        super().__init__(num_words, input_dim)
        bounds = [0, *cutoffs, num_words]
        if not cutoffs or any(low >= high for low, high in itertools.pairwise(bounds)):
            raise ConfigurationError(
                f"softmax.cutoffs is {cutoffs}, expected rising numbers from 1 to {num_words - 1}, since "
                f"the vocabulary has {num_words} words. Leave out larger ones, or use type 'elmo_full'."
            )
        if div_value <= 0 or input_dim / div_value ** len(cutoffs) < 1:
            raise ConfigurationError(
                f"softmax.div_value is {div_value}, which leaves no width to the vectors of cluster "
                f"{len(cutoffs)}: {input_dim} / {div_value} ** {len(cutoffs)} must be 1 or more. Choose a "
                "smaller div_value above 0, or fewer cutoffs."
            )
        self.cutoffs = cutoffs
        # head_bias: the full softmax has biases too. torch has none for the clusters.
        self.adaptive = AdaptiveLogSoftmaxWithLoss(
            input_dim, num_words, cutoffs, div_value, head_bias=True
        )

    def forward(self, states: Tensor, targets: Tensor) -> Tensor:
        self.check_inputs(states, targets)
        return -self.adaptive(states, targets).output  # (num_positions,)

    def exact(self) -> ExactSoftmax:
        # torch would hold (positions, words) for a whole cluster.
        head = self.adaptive.head
        tails = []
        for tail in self.adaptive.tail:
            narrowing, weight = tail.parameters()
            tails.append((narrowing, weight))
        return ExactAdaptiveSoftmax(ExactFullSoftmax(head.weight, head.bias), tails)
