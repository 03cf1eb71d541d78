"""The weight file behind the parameters of a biLM."""

import copy
import os
from os import PathLike
from typing import Any, Dict, Tuple, Union

import torch

from elmo_plugin.bilm.options import BiLMOptions
from elmo_plugin.bilm.weight_file import mapped_parameters, modules_with_maps
from elmo_plugin.bilm.weights_version import WeightsVersion


class WeightSource:
    """
    Knows which modules still have the weights that were loaded from a file, and reads them from there again.

    # Parameters

    bilm : `Module`
        Just loaded.
    options, weight_file
        From where.
    """

    def __init__(
        self, bilm: torch.nn.Module, options: BiLMOptions, weight_file: Union[str, PathLike]
    ) -> None:
        self._options = options
        self._weight_file = os.path.realpath(weight_file)
        # Of the modules with mapped parameters: to hold on to those takes no memory.
        self._versions: Dict[str, WeightsVersion] = {
            name: WeightsVersion(bilm.get_submodule(name))
            for name in modules_with_maps(options, weight_file)
        }
        self.identity = self._file_identity()
        """Tells this state of this file from all others."""

    def holds(self, name: str, module: torch.nn.Module) -> bool:
        """Whether the module of that name has mapped parameters, and all of its weights are the file's."""
        is_unchanged = self._versions.get(name) == WeightsVersion(module)
        return is_unchanged and self.identity == self._file_identity()

    def reopened(self, name: str, module: torch.nn.Module) -> torch.nn.Module:
        """
        A module like `module`, its large parameters mapped from the file anew: what is read through them is
        given back with them.
        """
        other = copy.copy(module)
        other._parameters = {
            **module._parameters,
            **mapped_parameters(self._options, self._weight_file, name),
        }
        return other

    def _file_identity(self) -> Tuple[Any, ...]:
        try:
            found = os.stat(self._weight_file)
        except FileNotFoundError:
            return (self._weight_file, None)
        return (self._weight_file, found.st_ino, found.st_size, found.st_mtime_ns)
