"""The weighted sum of the layers of a biLM."""

from numbers import Real
from typing import List, Optional

import torch
from torch import BoolTensor, Tensor
from torch.nn import Parameter, ParameterList

from elmo_plugin.errors import ConfigurationError


class ScalarMix(torch.nn.Module):
    """
    Collapse layers into one vector per token, with softmax-normalized weights and a scale (paper, eq. 1).

    Parameters are called `scalar_parameters.0`, `scalar_parameters.1`, ... and `gamma`, as in AllenNLP, so
    that the regexes of regularizers match them.

    # Parameters

    mixture_size : `int`
        Number of layers.
    do_layer_norm : `bool`, optional (default = `False`)
        Normalize each layer before mixing, with one mean and one variance over all unmasked elements of
        the batch.
    initial_scalar_parameters : `List[float]`, optional (default = all 0)
        Weights before the softmax.
    trainable : `bool`, optional (default = `True`)
        Whether the weights are trained.
    trainable_gamma : `bool`, optional (default = `trainable`)
        Whether gamma is trained.

    # Raises

    `ConfigurationError` if the number of initial weights is not the number of layers, or one is not a finite
    number of float32.
    """

    def __init__(
        self,
        mixture_size: int,
        do_layer_norm: bool = False,
        initial_scalar_parameters: Optional[List[float]] = None,
        trainable: bool = True,
        trainable_gamma: Optional[bool] = None,
    ) -> None:
        super().__init__()
        initial = (
            [0.0] * mixture_size if initial_scalar_parameters is None else initial_scalar_parameters
        )
        if isinstance(initial, (str, Real)) or len(initial) != mixture_size:
            raise ConfigurationError(
                f"scalar_mix_parameters is {initial!r}, expected a list of {mixture_size} numbers: one for "
                "the token representation and one for each LSTM layer."
            )
        largest = torch.finfo(torch.float32).max
        if not all(isinstance(value, Real) and abs(value) <= largest for value in initial):
            raise ConfigurationError(
                f"scalar_mix_parameters is {initial}, expected finite numbers of float32."
            )
        self.mixture_size = mixture_size
        self.do_layer_norm = do_layer_norm
        # What the config says. `requires_grad` is false in a model that is loaded for inference, too.
        self.trainable = trainable
        self.scalar_parameters = ParameterList(
            Parameter(torch.tensor([float(value)]), requires_grad=trainable) for value in initial
        )
        if trainable_gamma is None:
            trainable_gamma = trainable
        self.gamma = Parameter(torch.ones(1), requires_grad=trainable_gamma)

    @property
    def normalized_weights(self) -> Tensor:
        """The weights of the layers after the softmax, `(mixture_size,)`. They sum to 1."""
        return torch.softmax(torch.cat(list(self.scalar_parameters)), dim=0)

    def forward(self, layer_activations: List[Tensor], mask: Optional[BoolTensor] = None) -> Tensor:
        """
        Return the weighted sum of the layers.

        # Parameters

        layer_activations : `List[Tensor]`
            One tensor per layer, token representation first, each `(batch_size, timesteps, dim)`.
        mask : `BoolTensor`, optional
            `(batch_size, timesteps)`. Needed only for layer normalization.

        # Returns

        `Tensor` of shape `(batch_size, timesteps, dim)`. Padded positions are not zeroed.

        # Raises

        `ValueError` if the number of layers is not `mixture_size`, or if layer normalization has no mask.
        """
        if len(layer_activations) != self.mixture_size:
            raise ValueError(
                f"Got {len(layer_activations)} layers to mix, expected {self.mixture_size}."
            )
        if self.do_layer_norm:
            if mask is None:
                raise ValueError(
                    "Layer normalization in a scalar mix needs the mask; none was given."
                )
            layer_activations = [_layer_norm(layer, mask) for layer in layer_activations]
        weights = self.gamma * self.normalized_weights
        mixed = weights[0] * layer_activations[0]
        for weight, layer in zip(weights[1:], layer_activations[1:]):
            mixed = mixed + weight * layer
        return mixed


def _layer_norm(layer: Tensor, mask: Tensor) -> Tensor:
    """
    Normalize a layer by mean and variance over all unmasked elements of the batch. The mask of `Elmo` has the
    sentence marks, as in AllenNLP; bilm-tf leaves them out.
    """
    selected = mask.unsqueeze(-1)  # (batch_size, timesteps, 1)
    num_elements = mask.sum() * layer.size(-1)
    # In float16, sums over a batch overflow: the layer would become zeros or NaN.
    values = layer.to(torch.promote_types(layer.dtype, torch.float32))
    mean = (values * selected).sum() / num_elements
    variance = (((values - mean) * selected) ** 2).sum() / num_elements
    # Those of AllenNLP 2.10.1, although the statistics are float32 here. bilm-tf and AllenNLP 0.9 have 1e-12.
    epsilon = 1e-4 if layer.dtype == torch.half else 1e-13
    return ((values - mean) / torch.sqrt(variance + epsilon)).to(layer)
