"""A biLM out of a model archive, so that an archive needs no options and weight files beside it."""

import json
import pickle
from os import PathLike
from pathlib import Path
from typing import Any, Dict, Optional, Union

import numpy
import torch
from allennlp.common.checks import ConfigurationError
from torch import Tensor

from elmo_plugin.bilm.bilm import BiLM
from elmo_plugin.bilm.character_ids import sentence_marks
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


# Parameters made in inference mode have no version.
@torch.inference_mode(False)
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
        options = BiLMOptions.from_dict(source["options"], f"{folder}: {key}")
        # Without memory and initial values: they come from the state dict.
        with torch.device("meta"):
            bilm = BiLM(options, **settings)
        bilm._sentence_marks = sentence_marks()
        prefix = key[: -len(SOURCE_KEY)] + BILM_PREFIX
        bilm.load_state_dict(
            {
                name[len(prefix) :]: state_dict[name].float().contiguous()
                for name in state_dict
                if name.startswith(prefix) and not name.startswith(f"{prefix}word_embedding.")
            },
            assign=True,
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
            try:
                return torch.load(path, map_location="cpu", weights_only=True)
            # In damaged files torch finds errors of many classes.
            except (
                OSError,
                EOFError,
                RuntimeError,
                ValueError,
                KeyError,
                pickle.UnpicklingError,
            ) as error:
                raise ConfigurationError(
                    f"{path}: cannot be read as weights ({error}). The file is damaged or of another kind; "
                    "get another copy of the archive."
                ) from error
    return {}
