"""The weight file behind the parameters of a biLM."""

import os
from os import PathLike
from typing import Any, Optional, Tuple, Union

import torch
from torch import Tensor

from elmo_plugin.bilm.options import BiLMOptions
from elmo_plugin.bilm.weight_file import mapped_parameters, read_parameter
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
        self._mapped = mapped_parameters(options, weight_file)
        # Of the modules that own them: to hold on to those takes no memory.
        owners = {parameter.rpartition(".")[0] for parameter in self._mapped}
        self._versions = {name: WeightsVersion(bilm.get_submodule(name)) for name in owners}
        self.identity = self._file_identity()
        """Tells this state of this file from all others."""

    def holds(self, name: str, module: torch.nn.Module) -> bool:
        """Whether the module of that name has mapped parameters, and all of its weights are the file's."""
        is_unchanged = self._versions.get(name) == WeightsVersion(module)
        return is_unchanged and self.identity == self._file_identity()

    def reopened(self, name: str, module: torch.nn.Module) -> Any:
        """
        What stands in for `module` to those who read its parameters: mapped ones are mapped anew each time
        they are asked for, and so are given back by those who forget them.
        """
        return _Reopened(self, name, module)

    def read(self, parameter: str) -> Optional[Tensor]:
        """A parameter, mapped anew; `None` if it is not mapped."""
        if parameter not in self._mapped:
            return None
        return read_parameter(self._options, self._weight_file, parameter)

    def _file_identity(self) -> Tuple[Any, ...]:
        try:
            found = os.stat(self._weight_file)
        except FileNotFoundError:
            return (self._weight_file, None)
        return (self._weight_file, found.st_ino, found.st_size, found.st_mtime_ns)


class _Reopened:
    def __init__(self, source: WeightSource, name: str, module: torch.nn.Module) -> None:
        self._source = source
        self._name = name
        self._module = module

    def __getattr__(self, name: str) -> Any:
        parameter = self._source.read(f"{self._name}.{name}")
        return getattr(self._module, name) if parameter is None else parameter
