"""What runs a frozen biLM."""

from abc import ABC, abstractmethod
from typing import Any, List, Optional, Sequence, Tuple

import torch
from torch import Tensor

from elmo_plugin.bilm.factors import Factor
from elmo_plugin.bilm.lstm import LSTMRun, Outcome, ProjectedLSTM

PRECISIONS = ("float32", "bfloat16", "int8")


class LSTMKernel(ABC):
    """
    A way to run LSTM layers without gradients, and the matrix products of the character encoder. All kernels
    give what the reference gives, but for rounding.

    # Parameters

    name : `str`
        As configs and logs have it.
    device_type : `str`
        Of the devices that it is made for, as torch names it.
    storable_types : `Tuple[type, ...]`
        The classes that `prepare` and `factor` make, beside tensors, if those can be kept in files.
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
    def factor(self, weight: Tensor, precision: str) -> Factor:
        """What multiplies by `weight`, `(output_dim, input_dim)`."""

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
