"""Packed weights in files, for all processes of a machine together."""

import hashlib
import logging
import pickle
from os import PathLike
from pathlib import Path
from typing import Any, Callable, Sequence, Union

import torch
from filelock import FileLock

from elmo_plugin.errors import ConfigurationError
from elmo_plugin.files.replaced_file import replaced_file

logger = logging.getLogger(__name__)

# To be raised when kernels read another form, so that files of the old one are left alone.
FORMAT = 4


class PackedFolder:
    """
    A folder in which what kernels make of weights is kept: made once, then mapped into memory, which all
    processes that map it share. Files are named by what they are made of, so a wrong one is never used, and
    appear complete or not at all; those that are no longer of use are for the user to delete.

    # Parameters

    folder : `str` or `PathLike`
        Made if it is not there.
    """

    def __init__(self, folder: Union[str, PathLike]) -> None:
        self.folder = Path(folder)

    def stored(
        self,
        module: Any,
        parameters: Sequence[str],
        settings: Any,
        pack: Callable[[Any], Any],
        types: Sequence[type],
    ) -> Any:
        """
        What `pack` makes of `module`, from its file, which is written first where there is none.

        # Parameters

        parameters : `Sequence[str]`
            The names of the module's parameters.
        settings : `Any`
            All that `pack` depends on beside the weights.
        types : `Sequence[type]`
            The classes that a result of `pack` consists of, beside tensors.

        # Raises

        `OSError` if the folder or the file cannot be written; `ConfigurationError` if the file is damaged.
        """
        path = self.folder / f"{_digest(module, parameters, settings)}.packed"
        if not path.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            # Processes that start together wait for the first of them: each would map its own file.
            with FileLock(self.folder / ".lock"):
                if not path.exists():
                    with replaced_file(path) as new:
                        torch.save(pack(module), new)
                    logger.info("Packed weights were written to %s.", path)
        torch.serialization.add_safe_globals(list(types))
        try:
            return torch.load(path, mmap=True, weights_only=True)
        except (RuntimeError, pickle.UnpicklingError) as error:
            raise ConfigurationError(
                f"{path}: cannot be read as packed weights ({error}). The file is damaged; delete it, and "
                "it will be made again."
            ) from error


def _digest(module: Any, parameters: Sequence[str], settings: Any) -> str:
    digest = hashlib.sha256(repr((FORMAT, settings)).encode())
    for name in parameters:
        tensor = module.get_parameter(name).detach()
        digest.update(repr((name, tensor.shape, tensor.stride())).encode())
        # A view of a weight file is the transpose of what lies there.
        array = (tensor if tensor.is_contiguous() else tensor.mT.contiguous()).numpy()
        digest.update(array.data)
    return digest.hexdigest()[:32]
