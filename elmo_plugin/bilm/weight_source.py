"""The weight file that the parameters of a biLM were loaded from."""

from typing import Any, Tuple

import torch

from elmo_plugin.bilm.weights_version import WeightsVersion


class WeightSource:
    """
    Knows which modules still have the weights that were loaded from a file.

    # Parameters

    bilm : `Module`
        Just loaded.
    identity : `Tuple[Any, ...]`
        What `load_weights` returned.
    """

    def __init__(self, bilm: torch.nn.Module, identity: Tuple[Any, ...]) -> None:
        self._versions = {name: WeightsVersion(module) for name, module in bilm.named_modules()}
        self.identity = identity

    def holds(self, name: str, module: torch.nn.Module) -> bool:
        """Whether all weights of the module of that name are the file's."""
        return self._versions.get(name) == WeightsVersion(module)
