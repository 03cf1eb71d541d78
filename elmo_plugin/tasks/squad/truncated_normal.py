"""The initial values that the paper's question answering model has."""

from typing import Any

import torch
from allennlp.nn import Initializer
from torch import Tensor


@Initializer.register("elmo_truncated_normal")
class TruncatedNormalInitializer(Initializer):
    """
    A normal distribution without what is further than two standard deviations from its mean, as
    TensorFlow's `TruncatedNormal`. AllenNLP has no such initializer.

    Registered as an `Initializer` with name `elmo_truncated_normal`.

    # Parameters

    mean : `float`, optional (default = `0.0`)
    std : `float`, optional (default = `0.05`)
        Before the tails are cut.
    """

    def __init__(self, mean: float = 0.0, std: float = 0.05) -> None:
        self._mean = mean
        self._std = std

    def __call__(self, tensor: Tensor, **kwargs: Any) -> None:
        lowest, highest = self._mean - 2 * self._std, self._mean + 2 * self._std
        torch.nn.init.trunc_normal_(tensor, self._mean, self._std, lowest, highest)
