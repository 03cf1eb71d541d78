"""Telling whether weights have changed."""

from typing import Any, List, Tuple

import torch
from torch import Tensor


class WeightsVersion:
    """
    The state of a module's parameters. Another one is equal as long as none of them was written to, replaced,
    moved or cast in between.

    Writes through `parameter.data` escape it, as they escape autograd. It keeps the memory of the parameters
    from being given to others, which could then be taken for them.
    """

    def __init__(self, module: torch.nn.Module) -> None:
        self._parameters: List[Tensor] = [parameter.detach() for parameter in module.parameters()]
        self._key: Tuple[Any, ...] = tuple(
            (
                parameter.data_ptr(),
                0 if parameter.is_inference() else parameter._version,
                parameter.dtype,
                parameter.device,
            )
            for parameter in module.parameters()
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, WeightsVersion) and self._key == other._key

    __hash__ = None  # type: ignore[assignment]
