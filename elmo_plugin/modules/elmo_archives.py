"""The biLM of an `Elmo` in the state dicts of archives, ours and AllenNLP's."""

import json
import textwrap
from dataclasses import fields
from pathlib import Path
from typing import Any, Dict, Optional

import torch
from torch import Tensor

from elmo_plugin.bilm.batch import distinct_words
from elmo_plugin.bilm.bilm import BiLM
from elmo_plugin.bilm.model_files import pretrained_files, pretrained_names
from elmo_plugin.bilm.options import BiLMOptions
from elmo_plugin.bilm.weights import weights_checksum
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.files.tensors import read_state_dict
from elmo_plugin.files.text import FileName

# The key under which a state dict says what its biLM is, and the prefix of that biLM's parameters.
SOURCE_KEY = "bilm_source"
BILM_PREFIX = "_elmo_lstm."
# In the description of a biLM whose weights a state dict leaves out: their checksum, of `weights_checksum`.
CHECKSUM_KEY = "weights_sha256"

# What AllenNLP calls a state dict in an unpacked archive, and in a training folder.
ARCHIVED_WEIGHTS = "weights.th"
BEST_NAME = "best.th"
WEIGHTS_NAMES = (ARCHIVED_WEIGHTS, BEST_NAME)


def describe_source(
    options_file: Optional[FileName], weight_file: Optional[FileName], options: BiLMOptions
) -> Tensor:
    """
    Return the description of the biLM of a state dict: the names of its files, by which the config of an
    archive finds it again, and its options. It is a tensor of bytes, as state dicts hold only tensors.
    """
    return as_bytes({**_names(options_file, weight_file), "options": options.to_dict()})


def as_bytes(description: Dict[str, Any]) -> Tensor:
    """Return a description as a tensor: JSON in UTF-8, uint8."""
    return torch.frombuffer(bytearray(json.dumps(description).encode()), dtype=torch.uint8)


def from_bytes(description: Tensor) -> Dict[str, Any]:
    """
    Return what `as_bytes` was given; also of a state dict that was cast, as every type has the numbers of
    bytes, or averaged with others of the same biLM. Raise `ConfigurationError` if it is no description now.
    """
    try:
        return json.loads(description.cpu().double().round().to(torch.uint8).numpy().tobytes())
    except ValueError as error:
        raise ConfigurationError(
            f"The state dict's {SOURCE_KEY}, which describes its biLM in bytes, was changed ({error}), as it "
            "is if all tensors of state dicts are averaged, expected that of one of them. Copy it from there."
        ) from error


def archived_bilm(
    folder: Optional[FileName],
    options_file: Optional[FileName],
    weight_file: Optional[FileName],
    stateful: bool = False,
) -> Optional[BiLM]:
    """
    Return the biLM that a state dict in `folder` holds under these file names, in float32. `None` if `folder`
    holds no state dict or the state dict holds no such biLM, which is then loaded from its files: when a
    model is trained first, or when other names override those of the archive.

    # Raises

    `ConfigurationError` if the archive refers to a biLM that does not come with this package.
    """
    state_dict = state_dict_in(folder)
    names = _names(options_file, weight_file)
    for key in state_dict:
        if key.rpartition(".")[2] != SOURCE_KEY:
            continue
        source = from_bytes(state_dict[key])
        if {name: source[name] for name in names} != names:
            continue
        if CHECKSUM_KEY in source:
            # It is one of this package, whatever the current folder holds under its name.
            name = referred_name(source)
            if name not in pretrained_names():
                raise ConfigurationError(
                    f"The archive refers to the biLM {name} and does not hold it, expected one that comes "
                    f"with this version of elmo_plugin: {', '.join(pretrained_names())}. Install the version "
                    "that the archive was made with, or get the archive with its biLM."
                )
            return BiLM.from_files(*pretrained_files(name), stateful)
        prefix = key[: -len(SOURCE_KEY)] + BILM_PREFIX
        weights = {
            name[len(prefix) :]: state_dict[name].float().contiguous()
            for name in state_dict
            if name.startswith(prefix)
        }
        options = BiLMOptions.from_dict(source["options"], f"{folder}: {key}")
        return BiLM.from_state_dict(options, weights, stateful)
    return None


def referred_name(source: Dict[str, Any]) -> str:
    """Return the name of a biLM that names both files, from its description."""
    return str(source["options_file"] or source["weight_file"])


def keep_own_bilm(elmo: Any, state_dict: Dict[str, Tensor], prefix: str, *unused: Any) -> None:
    """
    Keep the description of the biLM of an `Elmo` when a state dict is loaded (a `load_state_dict` pre-hook),
    and the biLM itself if the state dict only refers to it.

    The description in the state dict may have another length, which torch would refuse. State dicts of
    AllenNLP's `Elmo` have none.

    # Raises

    `ConfigurationError` if the biLM has other options than the one that the state dict describes, or other
    weights than the one that it refers to.
    """
    if prefix + SOURCE_KEY in state_dict:
        saved_source = from_bytes(state_dict[prefix + SOURCE_KEY])
        _check_options(elmo.bilm, saved_source["options"])
        if CHECKSUM_KEY in saved_source:
            found, expected = weights_checksum(elmo.bilm), saved_source[CHECKSUM_KEY]
            if found != expected:
                raise ConfigurationError(
                    f"The archive refers to the biLM {referred_name(saved_source)} and does not hold it: "
                    f"found weights of the SHA-256 {found}, expected {expected}. Install the version of "
                    "elmo_plugin that the archive was made with, or get the archive with its biLM."
                )
            for name, tensor in elmo.bilm.state_dict().items():
                state_dict[prefix + BILM_PREFIX + name] = tensor
    if elmo._source is not None:
        state_dict[prefix + SOURCE_KEY] = elmo._source.clone()
    else:
        # The biLM was given as `module`, and has no description.
        state_dict.pop(prefix + SOURCE_KEY, None)


def _check_options(bilm: Any, saved: Dict[str, Any]) -> None:
    """Raise `ConfigurationError` if a biLM would run the weights of a state dict by other options."""
    expected = BiLMOptions.from_dict(saved)
    options = getattr(bilm, "options", expected)
    for field in fields(expected):
        values = getattr(options, field.name), getattr(expected, field.name)
        if field.compare and values[0] != values[1]:
            # Dictionaries have many words.
            found, wanted = (textwrap.shorten(str(value), 400) for value in values)
            raise ConfigurationError(
                f"The biLM has {field.name} {found}, expected {wanted}, as the biLM of the archive. "
                "Give the files with which the archive was made."
            )


def set_word_vectors_aside(
    elmo: Any, state_dict: Dict[str, Tensor], prefix: str, *unused: Any
) -> None:
    """Take the vectors of a cached vocabulary from a state dict of AllenNLP's `Elmo`."""
    elmo._word_vectors_aside = state_dict.pop(f"{prefix}{BILM_PREFIX}_word_embedding.weight", None)


def check_word_vectors(elmo: Any, unused: Any) -> None:
    """
    Compare those vectors with what the loaded biLM computes for the words.

    # Raises

    `ConfigurationError` if they differ: AllenNLP trained them, with `requires_grad`.
    """
    vectors, elmo._word_vectors_aside = elmo._word_vectors_aside, None
    if vectors is None or elmo._spellings is None:
        return
    # On a GPU cuDNN would round to TF32.
    with torch.no_grad(), torch.backends.cudnn.flags(enabled=False):
        encoder = elmo._elmo_lstm.character_encoder
        device = next(encoder.parameters()).device
        distinct, index = distinct_words(elmo._spellings[1:].to(device))
        expected = encoder(distinct)[index]
        found = vectors[1:].to(expected)
    # AllenNLP's own differ by rounding, at values of about 1.
    if found.shape != expected.shape or not torch.allclose(found, expected, rtol=0, atol=1e-3):
        raise ConfigurationError(
            "The archive holds vectors of the cached vocabulary that were trained (requires_grad with "
            f"vocab_to_cache or namespace_to_cache): {tuple(vectors.shape)}, expected those of the character "
            "encoder. Train the model again with this package. If it never used them (the indexers of "
            "AllenNLP 1 and 2 give no ids of words), override vocab_to_cache with null."
        )


def state_dict_in(folder: Optional[FileName]) -> Dict[str, Any]:
    """
    Return the weights in the folder of an archive or of a training run; empty if there are none.

    # Raises

    `ConfigurationError` if the file cannot be read.
    """
    for name in WEIGHTS_NAMES:
        if folder is not None and (Path(folder) / name).is_file():
            path = Path(folder) / name
            return read_state_dict(path, "get another copy of the archive.")
    return {}


def _names(
    options_file: Optional[FileName], weight_file: Optional[FileName]
) -> Dict[str, Optional[str]]:
    return {
        "options_file": None if options_file is None else str(options_file),
        "weight_file": None if weight_file is None else str(weight_file),
    }
