"""Archives of trained models: opened by path or by name, and written as a folder."""

import errno
import re
import shutil
import tempfile
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Dict, List, Union

import torch
from allennlp.common import Params
from allennlp.common.meta import META_NAME
from allennlp.data import Vocabulary
from allennlp.models import Archive, archival, load_archive
from allennlp.models.archival import CONFIG_NAME
from allennlp.modules.token_embedders import Embedding
from torch import Tensor

from elmo_plugin.bilm.bilm import BiLM
from elmo_plugin.bilm.model_files import pretrained_files, pretrained_names
from elmo_plugin.bilm.processor import checked_device
from elmo_plugin.bilm.weights import in_type, weights_checksum
from elmo_plugin.compat.patches import prepare_allennlp
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.files.output import replaced_file
from elmo_plugin.files.tensors import save_tensors
from elmo_plugin.files.text import FileName
from elmo_plugin.modules.elmo import Elmo
from elmo_plugin.modules.elmo_archives import (
    ARCHIVED_WEIGHTS,
    BILM_PREFIX,
    CHECKSUM_KEY,
    SOURCE_KEY,
    as_bytes,
    from_bytes,
    referred_name,
)

VOCABULARY_FOLDER = "vocabulary"

_MAX_REASON = 300  # characters


def opened_archive(
    archive_file: FileName,
    overrides: Union[str, Dict[str, Any]] = "",
    cuda_device: int = -1,
) -> Archive:
    """
    Load an archive for inference: a `model.tar.gz`, the folder of a training run, or the name of a task model
    that comes with this package; with `overrides` of its config. No parameter requires a gradient, so that a
    biLM that was fine-tuned runs as a snapshot. The config of a fine-tuned model has its model itself, in
    place of the archive that it started from.

    # Raises

    `ConfigurationError` if it does not exist, if it is damaged, if its parts do not belong together, if it
    would write outside of its folder, or if the memory of the GPU or the temporary folder is full.
    """
    prepare_allennlp()
    checked_device(cuda_device)
    try:
        archive = load_archive(archive_file, cuda_device, overrides)
    except (ConfigurationError, MemoryError, ImportError):
        raise
    # For damaged files, and configs that do not fit their weights, errors are of nearly every class.
    except Exception as error:
        reason = f"{type(error).__name__}: {' '.join(str(error).split())[:_MAX_REASON]}"
        if isinstance(error, torch.OutOfMemoryError):
            raise ConfigurationError(
                f"{archive_file}: the memory of GPU {cuda_device} is full ({reason}). Free some, or give "
                "another cuda_device; -1 is the CPU."
            ) from error
        if isinstance(error, OSError) and error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise ConfigurationError(
                f"{archive_file}: this user may not read or write a file ({reason}). Change that. If it is "
                "in ~/.allennlp, name another folder by the environment variable ALLENNLP_CACHE_ROOT."
            ) from error
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise ConfigurationError(
                f"{archive_file}: there is no room to unpack it in {tempfile.gettempdir()} ({reason}). Make "
                "room, or name another folder by the environment variable TMPDIR."
            ) from error
        advice = "Correct the path, correct the config by overrides, or get another copy."
        if re.search("not a registered name|not in acceptable choices", str(error)):
            advice = "Import the package that registers it (--include-package), or correct the overrides."
        raise ConfigurationError(
            f"{archive_file}: cannot be loaded as an archive ({reason}), expected the model.tar.gz of a "
            f"training run, or its folder. {advice}"
        ) from error
    archive.model.requires_grad_(False)
    return archive._replace(config=_with_own_model(archive))


def _with_own_model(archive: Archive) -> Params:
    """
    Return the config with the model of the archive that it was fine-tuned from (`from_archive`), if any. If
    the new data had other labels, which that model does not have, the config stays as it is.
    """
    config, vocab = archive.config.as_dict(quiet=True), archive.model.vocab
    if config["model"].get("type") != "from_archive":
        return archive.config
    embeddings = (one for one in archive.model.modules() if isinstance(one, Embedding))
    extended = {embedding._vocab_namespace for embedding in embeddings}
    while config["model"].get("type") == "from_archive":
        path = archival.cached_path(config["model"]["archive_file"])
        with (
            nullcontext(path) if Path(path).is_dir() else archival.extracted_archive(path) as folder
        ):
            base = Params.from_file(str(Path(folder, CONFIG_NAME))).as_dict(quiet=True)
            base_vocab = Vocabulary.from_files(str(Path(folder, VOCABULARY_FOLDER)))
        if any(
            vocab.get_vocab_size(name) != base_vocab.get_vocab_size(name)
            for name in vocab.get_namespaces() - extended
        ):
            return archive.config
        config["model"] = base["model"]
    return Params(config)


def keep_only_snapshots(model: torch.nn.Module) -> None:
    """Release the biLMs of a model that only predicts from now on, see `Elmo.keep_only_snapshot`."""
    for module in list(model.modules()):
        if isinstance(module, Elmo):
            module.keep_only_snapshot()


def archive_files(folder: FileName) -> List[Path]:
    """Return the paths that `save_archive` writes in a folder."""
    names = (CONFIG_NAME, ARCHIVED_WEIGHTS, VOCABULARY_FOLDER, META_NAME)
    return [Path(folder) / name for name in names]


def save_archive(archive: Archive, folder: FileName, dtype: str = "float32") -> List[Path]:
    """
    Write an archive as a folder, which is made if missing, and can be loaded in place of a `model.tar.gz`.
    Files of these names are replaced; a process that is killed leaves the previous archive, the new one, or
    no config. The weights of a frozen biLM that comes with this package are left out: when the archive is
    loaded, they come from this package, and are compared with a checksum in the archive.

    `dtype` is that of the weights in the file, `float32` or `float16`; tensors with numbers beyond those of
    float16 stay as they are. Return what was written: files, and the folder of the vocabulary.
    """
    paths = config_file, weight_file, vocabulary_folder, meta_file = archive_files(folder)
    Path(folder).mkdir(parents=True, exist_ok=True)
    state_dict = {
        name: in_type(tensor.cpu(), dtype)
        for name, tensor in _small_state_dict(archive.model).items()
    }
    with replaced_file(weight_file) as new_weights:
        save_tensors(state_dict, new_weights)
        # Written again at the end: without it, a folder of old and new files cannot be loaded.
        config_file.unlink(missing_ok=True)
    # A vocabulary of other namespaces would be mixed with this one.
    shutil.rmtree(vocabulary_folder, ignore_errors=True)
    archive.model.vocab.save_to_files(str(vocabulary_folder))
    if archive.meta is None:
        paths.remove(meta_file)
    else:
        archive.meta.to_file(meta_file)
    archive.config.to_file(str(config_file))
    return paths


def _small_state_dict(model: torch.nn.Module) -> Dict[str, Tensor]:
    """
    Return the state dict of a model, with a description in place of the weights of each biLM that comes with
    this package and was not changed since.
    """
    state_dict = model.state_dict()
    for elmo_name, elmo in model.named_modules():
        if not isinstance(elmo, Elmo) or getattr(elmo, SOURCE_KEY) is None:
            continue
        source = from_bytes(getattr(elmo, SOURCE_KEY))
        name = referred_name(source)
        if name not in pretrained_names():
            continue
        checksum = weights_checksum(elmo.bilm)
        if checksum == weights_checksum(BiLM.from_files(*pretrained_files(name))):
            prefix = f"{elmo_name}." if elmo_name else ""
            state_dict[prefix + SOURCE_KEY] = as_bytes({**source, CHECKSUM_KEY: checksum})
            for key in [key for key in state_dict if key.startswith(prefix + BILM_PREFIX)]:
                del state_dict[key]
    return state_dict
