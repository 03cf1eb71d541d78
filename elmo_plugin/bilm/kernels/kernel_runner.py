"""What a frozen biLM leaves to kernels."""

import logging
from os import PathLike
from typing import List, Optional, Sequence, Set, Tuple, Union

import torch
from torch import Tensor

from elmo_plugin.bilm.kernels.lstm_kernel import LSTMKernel
from elmo_plugin.bilm.kernels.packed_folder import PackedFolder
from elmo_plugin.bilm.kernels.packed_weights import PackedWeights
from elmo_plugin.bilm.kernels.selection import check_kernel, choose_kernel, choose_precision
from elmo_plugin.bilm.packed_lstm import Outcome, PackedLSTM
from elmo_plugin.bilm.projected_lstm import ProjectedLSTM
from elmo_plugin.bilm.weight_source import WeightSource

logger = logging.getLogger(__name__)


class KernelRunner:
    """
    Runs layers on the kernel that fits where their inputs are, with weights that are packed once.

    # Parameters

    kernel, precision : `str`
        See `BiLM`.
    packed_folder : `str` or `PathLike`, optional
        See `BiLM`.

    # Raises

    `ConfigurationError` for a precision or kernel that there is not, or that this machine lacks.
    """

    def __init__(
        self, kernel: str, precision: str, packed_folder: Optional[Union[str, PathLike]] = None
    ) -> None:
        check_kernel(kernel, precision)
        self.kernel = kernel
        self.precision = precision
        self._folder = None if packed_folder is None else PackedFolder(packed_folder)
        self._packed_weights = PackedWeights(folder=self._folder)
        self._said: Set[str] = set()

    @property
    def num_packed(self) -> int:
        """Of how many modules packed weights are held."""
        return len(self._packed_weights)

    def read_from(self, source: WeightSource) -> None:
        """Pack weights from the file that they were loaded from, as long as they are the same."""
        self._packed_weights = PackedWeights(source, self._folder)

    def forget(self) -> None:
        """Let go of packed weights; they are packed again when they are needed."""
        self._packed_weights.clear()

    def distrust(self) -> None:
        """Let go of packed weights and of their source: weights have changed without a trace."""
        self._packed_weights.distrust()

    def run(
        self, names: Sequence[str], layers: Sequence[ProjectedLSTM], lstms: Sequence[PackedLSTM]
    ) -> List[Outcome]:
        """
        Run layers that do not depend on each other.

        # Parameters

        names : `Sequence[str]`
            Of the layers within the biLM.
        layers : `Sequence[ProjectedLSTM]`
            Frozen.
        lstms : `Sequence[PackedLSTM]`
            What they are to compute.
        """
        inputs = lstms[0].inputs
        kernel, precision = self._kernel_for(inputs)
        packed = [
            self._packed_weights.of(
                name,
                layer,
                (kernel.name, precision),
                lambda layer: kernel.pack(layer, precision),
                kernel.storable_types,
            )
            for name, layer in zip(names, layers)
        ]
        # Products are made in `precision`, whatever autocast says.
        with torch.autocast(inputs.device.type, enabled=False):
            return kernel.run(lstms, packed)

    def apply(self, name: str, linear: torch.nn.Linear, rows: Tensor) -> Tensor:
        """`linear(rows)`, of a frozen linear layer of that name within the biLM."""
        kernel, precision = self._kernel_for(rows)
        factor = self._packed_weights.of(
            name,
            linear,
            (kernel.name, precision),
            lambda linear: kernel.factor(linear.weight.detach(), precision),
            kernel.storable_types,
        )
        return factor.product(rows).add_(linear.bias)

    def precision_on(self, device: torch.device) -> str:
        """Return what products on `device` are made in: `precision`, or `float32` where that is faster."""
        return choose_precision(self.kernel, self.precision, device)

    def _kernel_for(self, inputs: Tensor) -> Tuple[LSTMKernel, str]:
        precision = choose_precision(self.kernel, self.precision, inputs.device, inputs.dtype)
        kernel = choose_kernel(self.kernel, precision, inputs.device, inputs.dtype)
        self._say_once(
            logging.INFO,
            f"The frozen biLM runs in {precision} on the {kernel.name} kernel ({inputs.device.type}).",
        )
        if self._folder is not None and not kernel.storable_types:
            self._say_once(
                logging.WARNING,
                f"packed_folder is not used: the {kernel.name} kernel's weights cannot be kept in files.",
            )
        return kernel, precision

    def _say_once(self, level: int, message: str) -> None:
        if message not in self._said:
            self._said.add(message)
            logger.log(level, "%s (Said once.)", message)
