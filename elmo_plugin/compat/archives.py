"""Archives of trained models: opened by path or by name, and written as a folder."""

import pickle
import shutil
import tarfile
import zlib
from os import PathLike
from pathlib import Path
from typing import Any, Dict, List, Optional, Union

import torch
from allennlp.common import checks
from allennlp.common.meta import META_NAME
from allennlp.models import Archive, load_archive
from allennlp.models.archival import CONFIG_NAME
from torch import Tensor

from elmo_plugin.bilm.bilm import BiLM
from elmo_plugin.bilm.checkpoints import (
    BILM_PREFIX,
    CHECKSUM_KEY,
    SOURCE_KEY,
    WEIGHTS_NAMES,
    as_bytes,
    from_bytes,
    referred_name,
)
from elmo_plugin.bilm.model_files import pretrained_files, pretrained_names
from elmo_plugin.bilm.weights import weights_checksum
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.files.output import replaced_file
from elmo_plugin.modules.elmo import Elmo

VOCABULARY_FOLDER = "vocabulary"

# What AllenNLP, torch and Jsonnet raise for damaged files, and for a config that does not fit its weights.
_LOADING_ERRORS = (
    *(OSError, EOFError, ValueError, tarfile.TarError, zlib.error, pickle.UnpicklingError),
    *(checks.ConfigurationError, RuntimeError, AssertionError),
    *(KeyError, AttributeError, TypeError, IndexError),
)
_MAX_REASON = 300  # characters


def opened_archive(
    archive_file: Union[str, PathLike],
    overrides: Union[str, Dict[str, Any]] = "",
    cuda_device: int = -1,
    weights_file: Optional[str] = None,
) -> Archive:
    """
    Load an archive: `model.tar.gz`, the folder of a training run, or the name of a task model that comes with
    this package; with `overrides` of its config, and with `weights_file` in place of its own weights. No
    parameter of the model requires a gradient.

    # Raises

    `ConfigurationError` if it does not exist, if it is damaged, if its parts do not belong together, or if it
    would write outside of its folder.
    """
    try:
        checks.check_for_gpu(cuda_device)
    except checks.ConfigurationError as error:
        raise ConfigurationError(f"cuda_device is {cuda_device}: {error.message}") from error
    try:
        archive = load_archive(archive_file, cuda_device, overrides, weights_file)
        # It is opened to be used: a biLM that was fine-tuned runs as fast as any other then.
        archive.model.requires_grad_(False)
        return archive
    except ConfigurationError:
        raise
    except _LOADING_ERRORS as error:
        weights = "" if weights_file is None else f" with the weights {weights_file}"
        raise ConfigurationError(
            f"{archive_file}: cannot be loaded as an archive{weights} ({_reason(error)}), expected the "
            "model.tar.gz of a training run, or its folder. Correct the path, or get another copy."
        ) from error


def _reason(error: Exception) -> str:
    """Return the beginning of an error's message, with its class if the message needs it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    message = " ".join(lines[:2])[:_MAX_REASON]
    if isinstance(error, (KeyError, AttributeError, TypeError, IndexError, AssertionError)):
        return f"{type(error).__name__}: {message}"
    return message or type(error).__name__


def archive_files(folder: Union[str, PathLike]) -> List[Path]:
    """Return the paths that `save_archive` writes in a folder."""
    names = (CONFIG_NAME, WEIGHTS_NAMES[0], VOCABULARY_FOLDER, META_NAME)
    return [Path(folder) / name for name in names]


def save_archive(
    archive: Archive,
    folder: Union[str, PathLike],
    dtype: str = "float32",
    refers_to_bilm: bool = False,
) -> List[Path]:
    """
    Write an archive as a folder, which can be loaded in place of a `model.tar.gz`. Files of these names are
    replaced.

    # Parameters

    archive : `Archive`
        A loaded archive.
    folder : `str` or `PathLike`
        The folder, which is made if it does not exist.
    dtype : `str`, optional (default = `"float32"`)
        Data type of weights in the file, `float32` or `float16`.
    refers_to_bilm : `bool`, optional (default = `False`)
        Leave out the weights of a frozen biLM that comes with this package, see `small_state_dict`.

    # Returns

    What was written: files, and the folder of the vocabulary.
    """
    paths = config_file, weight_file, vocabulary_folder, meta_file = archive_files(folder)
    Path(folder).mkdir(parents=True, exist_ok=True)
    model = archive.model
    state_dict = small_state_dict(model) if refers_to_bilm else model.state_dict()
    for name, tensor in state_dict.items():
        tensor = tensor.cpu()
        state_dict[name] = (
            tensor.to(getattr(torch, dtype)) if tensor.is_floating_point() else tensor
        )
    with replaced_file(weight_file) as new_weights:
        torch.save(dict(state_dict), new_weights)
    archive.config.to_file(str(config_file))
    # A vocabulary of other namespaces would be mixed with this one.
    shutil.rmtree(vocabulary_folder, ignore_errors=True)
    model.vocab.save_to_files(str(vocabulary_folder))
    if archive.meta is None:
        paths.remove(meta_file)
    else:
        archive.meta.to_file(meta_file)
    return paths


def referable_bilms(model: torch.nn.Module) -> Dict[str, Dict[str, Any]]:
    """
    Return the biLMs in a model that come with this package and were not changed since: by the name of the
    `Elmo` in the model, the biLM's description for a state dict without its weights.
    """
    descriptions: Dict[str, Dict[str, Any]] = {}
    for elmo_name, elmo in model.named_modules():
        if not isinstance(elmo, Elmo) or getattr(elmo, SOURCE_KEY) is None:
            continue
        source = from_bytes(getattr(elmo, SOURCE_KEY))
        name = referred_name(source)
        if name in pretrained_names():
            checksum = weights_checksum(elmo.bilm)
            if checksum == weights_checksum(BiLM.from_files(*pretrained_files(name))):
                descriptions[elmo_name] = {**source, CHECKSUM_KEY: checksum}
    return descriptions


def small_state_dict(model: torch.nn.Module) -> Dict[str, Tensor]:
    """
    Return the state dict of a model without the weights of its `referable_bilms`: when it is loaded, they
    come from this package, and are compared with the checksum in their description.
    """
    state_dict = model.state_dict()
    for elmo_name, description in referable_bilms(model).items():
        prefix = f"{elmo_name}." if elmo_name else ""
        state_dict[prefix + SOURCE_KEY] = as_bytes(description)
        for key in [key for key in state_dict if key.startswith(prefix + BILM_PREFIX)]:
            del state_dict[key]
    return state_dict
