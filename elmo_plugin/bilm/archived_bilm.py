"""A biLM out of a model archive, so that an archive needs no options and weight files beside it."""

import json
import zipfile
from os import PathLike
from pathlib import Path
from typing import Any, Dict, Optional, Union

import numpy
import torch
from torch import Tensor

from elmo_plugin.bilm.bilm import BiLM
from elmo_plugin.bilm.options import BiLMOptions

# The key under which a state dict says what its biLM is, and the prefix of that biLM's parameters.
SOURCE_KEY = "bilm_source"
BILM_PREFIX = "_elmo_lstm."

# What AllenNLP calls a state dict in an unpacked archive, and in a training folder.
WEIGHTS_NAMES = ("weights.th", "best.th")

FileName = Optional[Union[str, PathLike]]


def describe_source(options_file: FileName, weight_file: FileName, options: BiLMOptions) -> Tensor:
    """
    What a state dict must say about its biLM, as bytes (uint8), because state dicts hold only tensors.

    The names are kept to find the same biLM again when the archive's config asks for them.
    """
    return as_bytes({**_names(options_file, weight_file), "options": options.to_dict()})


def as_bytes(description: Dict[str, Any]) -> Tensor:
    """A description as a state dict can hold it: JSON, uint8."""
    return torch.frombuffer(bytearray(json.dumps(description).encode()), dtype=torch.uint8)


def from_bytes(description: Tensor) -> Dict[str, Any]:
    """What `as_bytes` was given."""
    return json.loads(bytes(description.numpy().astype(numpy.uint8)))


def load_archived_bilm(
    folder: Optional[Union[str, PathLike]],
    options_file: FileName,
    weight_file: FileName,
    **settings: Any,
) -> Optional[BiLM]:
    """
    Rebuild, frozen, the biLM that a state dict in `folder` holds under these file names; `settings` are those
    of `BiLM` beside its options.

    # Returns

    The biLM, or `None` if `folder` holds no state dict or that holds no such biLM (it comes from files
    then: while a model is trained first, or where other names override those of the archive).
    """
    state_dict = state_dict_in(folder)
    names = _names(options_file, weight_file)
    for key in state_dict:
        if key.rpartition(".")[2] != SOURCE_KEY:
            continue
        source = from_bytes(state_dict[key])
        if {name: source[name] for name in names} != names:
            continue
        bilm = BiLM(BiLMOptions.from_dict(source["options"], f"{folder}: {key}"), **settings)
        prefix = key[: -len(SOURCE_KEY)] + BILM_PREFIX
        bilm.load_state_dict(
            {
                name[len(prefix) :]: state_dict[name]
                for name in state_dict
                if name.startswith(prefix) and not name.startswith(f"{prefix}word_embedding.")
            }
        )
        return bilm.requires_grad_(False)
    return None


def _names(options_file: FileName, weight_file: FileName) -> Dict[str, Optional[str]]:
    return {
        "options_file": None if options_file is None else str(options_file),
        "weight_file": None if weight_file is None else str(weight_file),
    }


def state_dict_in(folder: Optional[Union[str, PathLike]]) -> Dict[str, Any]:
    """The weights in the folder of an archive or of a training run; empty if there are none."""
    for name in WEIGHTS_NAMES:
        if folder is not None and (Path(folder) / name).is_file():
            path = Path(folder) / name
            # Mapped, not read: of a large model only the biLM is touched. Files of torch before 1.6, as
            # in old archives, are no zip files and cannot be mapped.
            mmap = zipfile.is_zipfile(path)
            return torch.load(path, map_location="cpu", mmap=mmap, weights_only=True)
    return {}
