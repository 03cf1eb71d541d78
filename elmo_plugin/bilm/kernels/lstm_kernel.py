"""What runs a frozen biLM."""

import copy
from abc import ABC, abstractmethod
from typing import Any, Callable, List, Optional, Sequence, Tuple

import torch
from torch import Tensor

from elmo_plugin.bilm.character_encoder import CharacterEncoder
from elmo_plugin.bilm.factors import Factor
from elmo_plugin.bilm.lstm import ProjectedLSTM
from elmo_plugin.bilm.lstm_steps import LSTMRun, Outcome

PRECISIONS = ("float32", "bfloat16", "int8")


class LSTMKernel(ABC):
    """
    A way to run LSTM layers and the character encoder without gradients. All kernels give what the reference
    gives, but for rounding.

    # Parameters

    name : `str`
        As configs and logs have it.
    device_type : `str`
        Of the devices that it is made for, as torch names it.
    storable_types : `Tuple[type, ...]`
        The classes that what is prepared consists of, beside tensors, if it can be kept in files.
    """

    name: str
    device_type: str = "cpu"
    storable_types: Tuple[type, ...] = ()

    @property
    def layout(self) -> str:
        """What `prepare` and `factor` make is read by kernels of the same layout only."""
        return self.name

    @abstractmethod
    def why_not(self, precision: str, device: torch.device, dtype: torch.dtype) -> Optional[str]:
        """
        What keeps it from running in this precision on this device with weights of this type, as a clause;
        `None` if nothing does.
        """

    @abstractmethod
    def prepare_encoder(
        self, encoder: CharacterEncoder, precision: str
    ) -> Callable[[Tensor], Tensor]:
        """Return what to call in place of a character encoder, with character ids, `(num_words, 50)`."""

    @abstractmethod
    def prepare(self, layer: ProjectedLSTM, precision: str) -> Any:
        """
        All that `run` needs of a layer, with its weights in the form that it multiplies by.

        Weights that are views of a file are asked for one matrix at a time, so that only that one has to be
        in memory beside what is made of it.
        """

    @abstractmethod
    def run(self, layers: Sequence[Any], runs: Sequence[LSTMRun]) -> List[Outcome]:
        """Run layers that do not depend on each other, each given as what `prepare` made of it."""


class FactorKernel(LSTMKernel):
    """A kernel of matrices that multiply one at a time."""

    @abstractmethod
    def factor(self, weight: Tensor, precision: str) -> Factor:
        """Return what multiplies by `weight`, `(output_dim, input_dim)`."""

    def prepare_encoder(
        self, encoder: CharacterEncoder, precision: str
    ) -> Callable[[Tensor], Tensor]:
        if precision == "float32":
            return encoder
        # A copy with the same parameters.
        prepared = copy.deepcopy(
            encoder, {id(parameter): parameter for parameter in encoder.parameters()}
        )
        for name, linear in encoder.named_modules():
            if isinstance(linear, torch.nn.Linear):
                owner, _, attribute = name.rpartition(".")
                factor = self.factor(linear.weight.detach(), precision)
                setattr(
                    prepared.get_submodule(owner), attribute, _FactorLinear(factor, linear.bias)
                )
        return prepared


class _FactorLinear(torch.nn.Module):
    def __init__(self, factor: Factor, bias: Tensor) -> None:
        super().__init__()
        self._factor = factor
        self._bias = bias

    def forward(self, rows: Tensor) -> Tensor:
        return self._factor.product(rows).add_(self._bias)
