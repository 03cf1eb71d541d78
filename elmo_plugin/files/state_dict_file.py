"""Read a state dict that torch has saved."""

import pickle
from os import PathLike
from typing import Any, Dict, Union

import torch

from elmo_plugin.errors import ConfigurationError


def read_state_dict(path: Union[str, PathLike], advice: str) -> Dict[str, Any]:
    """
    Return a state dict on the CPU. No code that the file may hold is run.

    # Raises

    `ConfigurationError`, which ends in `advice`, if the file cannot be read or holds something else.
    """
    try:
        state_dict = torch.load(path, map_location="cpu", weights_only=True)
    # In damaged files torch finds errors of many classes.
    except (
        AttributeError,
        EOFError,
        IndexError,
        KeyError,
        OSError,
        RuntimeError,
        TypeError,
        ValueError,
        pickle.UnpicklingError,
    ) as error:
        reason = str(error).partition("\n")[0]
        raise ConfigurationError(
            f"{path}: cannot be read as weights ({reason}). The file is damaged or of another kind; {advice}"
        ) from error
    if not isinstance(state_dict, dict):
        raise ConfigurationError(
            f"{path}: found a {type(state_dict).__name__}, expected weights by name. The file is of another "
            f"kind; {advice}"
        )
    return state_dict
