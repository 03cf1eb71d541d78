"""What runs a frozen biLM."""

from abc import ABC, abstractmethod
from typing import Any, List, Optional, Sequence

import torch
from torch import Tensor

from elmo_plugin.bilm.factors import Factor
from elmo_plugin.bilm.packed_lstm import Outcome, PackedLSTM
from elmo_plugin.bilm.projected_lstm import ProjectedLSTM

PRECISIONS = ("float32", "bfloat16", "int8")


class LSTMKernel(ABC):
    """
    A way to run LSTM layers without gradients, and the matrix products of the character encoder. All kernels
    give what the reference gives, but for rounding.

    # Parameters

    name : `str`
        As configs and logs have it.
    """

    name: str

    @abstractmethod
    def why_not(self, precision: str, device: torch.device, dtype: torch.dtype) -> Optional[str]:
        """
        What keeps it from running in this precision on this device with weights of this type, as a clause;
        `None` if nothing does.
        """

    @abstractmethod
    def factor(self, weight: Tensor, precision: str) -> Factor:
        """What multiplies by `weight`, `(output_dim, input_dim)`."""

    @abstractmethod
    def pack(self, layer: ProjectedLSTM, precision: str) -> Any:
        """The weights of a layer in the form that `run` multiplies by."""

    @abstractmethod
    def run(self, lstms: Sequence[PackedLSTM], packed: Sequence[Any]) -> List[Outcome]:
        """Run layers that do not depend on each other, each with what `pack` made of it."""
