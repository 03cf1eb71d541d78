"""Files of tensors, as torch writes them."""

from typing import Any, Dict

import torch

from elmo_plugin.errors import ConfigurationError
from elmo_plugin.files.compressed import check_zip
from elmo_plugin.files.fail_safe import FailSafeFile
from elmo_plugin.files.text import FileName


def save_tensors(content: Any, path: FileName) -> None:
    """
    Write what `torch.save` accepts to a new file, and sync it to the disk.

    # Raises

    `OSError` if it cannot be written.
    """
    # torch hides the reason of a failed write, and ends the process after an interrupt in one.
    with FailSafeFile(path, "w+") as file:
        torch.save(content, file)


def read_state_dict(path: FileName, advice: str) -> Dict[str, Any]:
    """
    Return a state dict that torch has saved, on the CPU. No code that the file may hold is run.

    # Raises

    `ConfigurationError`, which ends in `advice`, if the file cannot be read or holds something else; and if
    it or its tensors take far more memory than the file.
    """
    try:
        check_zip(path)
        state_dict = torch.load(path, map_location="cpu", weights_only=True)
    except (ConfigurationError, MemoryError):
        raise
    # In damaged files torch finds errors of nearly every class.
    except Exception as error:
        reason = str(error).partition("\n")[0]
        if "can't allocate memory" in reason:
            raise ConfigurationError(
                f"{path}: there is no memory for its weights ({reason}). Free some; or, if the file is "
                f"damaged, {advice}"
            ) from error
        raise ConfigurationError(
            f"{path}: cannot be read as weights ({reason}). The file is damaged or of another kind; {advice}"
        ) from error
    if not isinstance(state_dict, dict):
        raise ConfigurationError(
            f"{path}: found a {type(state_dict).__name__}, expected weights by name. The file is of another "
            f"kind; {advice}"
        )
    for name, value in state_dict.items():
        if isinstance(value, torch.Tensor) and not _is_stored(value):
            raise ConfigurationError(
                f"{path}: {name} is sparse, quantized, or repeats numbers, expected a tensor whose numbers "
                f"are all stored. The file is of another kind; {advice}"
            )
    return state_dict


def _is_stored(tensor: torch.Tensor) -> bool:
    """Return whether each number of a tensor is in memory. With strides of 0, one number can be a billion."""
    if tensor.layout != torch.strided or tensor.is_quantized or tensor.is_meta:
        return False
    return tensor.numel() * tensor.element_size() <= tensor.untyped_storage().nbytes()
