"""What a biLM remembers of weights that do not change, and when it must forget it."""

import logging
from os import PathLike
from typing import Any, Dict, Optional, Sequence, Tuple, Union

import torch
from torch import Tensor

from elmo_plugin.bilm.kernels import KernelRunner
from elmo_plugin.bilm.word_type_cache import WordTypeCache

logger = logging.getLogger(__name__)


class FrozenInference:
    """
    Owns the vectors of words, the weights in the form that a kernel reads, and the choice of that kernel.

    # Parameters

    kernel, precision, packed_folder, word_cache_size
        See `BiLM`.

    # Raises

    `ConfigurationError` as `BiLM` does.
    """

    def __init__(
        self,
        kernel: str,
        precision: str,
        packed_folder: Optional[Union[str, PathLike]],
        word_cache_size: int,
    ) -> None:
        self.runner = KernelRunner(kernel, precision, packed_folder)
        self.word_cache = WordTypeCache(word_cache_size)
        # State of the weights that caches were made from; `None`: caches are empty.
        self._version: Optional[Tuple[Any, ...]] = None
        # Keeps the memory of those weights from being given to others, which could be taken for them.
        self._weights: Sequence[Tensor] = ()
        self._has_warned = False

    def __getstate__(self) -> Dict[str, Any]:
        # Copies and pickles start with empty caches.
        return {**self.__dict__, "_version": None, "_weights": ()}

    def invalidate(self) -> None:
        """Forget everything: the weights changed, or may change without a trace."""
        self._version = None
        self._weights = ()
        self.word_cache.clear()
        self.runner.distrust()

    def refresh(self, bilm: torch.nn.Module, num_backward_passes: int) -> bool:
        """
        Prepare for a pass: invalidate what was made from other weights.

        What is made from weights is kept while they rest: the biLM is frozen, or in `eval` mode with
        gradients off, and no parameter has a gradient. Optimizers change only parameters that have a
        gradient, but some do not raise `_version` (fused ones, and those that write to `parameter.data`).
        If gradients came and went between two passes, there was a backward pass, which is counted.

        # Returns

        Whether the weights rest. If not, what is kept during this pass is invalidated by the next.
        """
        parameters = list(bilm.parameters())
        is_frozen = not any(parameter.requires_grad for parameter in parameters)
        is_learning = not is_frozen and (bilm.training or torch.is_grad_enabled())
        has_gradients = any(parameter.grad is not None for parameter in parameters)
        # Tensors made in inference mode have no version.
        is_inference = any(parameter.is_inference() for parameter in parameters)
        if is_learning or has_gradients or is_inference:
            if is_frozen and not self._has_warned:
                self._has_warned = True
                reason = (
                    "gradients: call its zero_grad()"
                    if has_gradients
                    else "been moved or cast in inference mode: do that outside of it"
                )
                logger.warning(
                    "The frozen biLM is slow, because its parameters have %s. (Said once.)", reason
                )
            self.invalidate()
            return False
        version = (
            num_backward_passes,
            *((p.data_ptr(), p._version, p.dtype, p.device) for p in parameters),
        )
        if version != self._version:
            if self._version is not None:
                self.invalidate()
            self._version = version
            self._weights = [parameter.detach() for parameter in parameters]
        return True
