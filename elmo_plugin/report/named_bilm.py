"""The biLM that a user names by one word or path, and one of random weights to compare it with."""

from pathlib import Path
from typing import Optional, Tuple

import torch
from allennlp.common.checks import ConfigurationError

from elmo_plugin.bilm import BiLM, BiLMOptions
from elmo_plugin.bilm.kernels import AUTO
from elmo_plugin.bilm.model_files import names_both_files, pretrained_names, resolve_model_files
from elmo_plugin.embedding.layers import frozen_copy
from elmo_plugin.pretraining.starting_point import bilm_in, opened_archive

DEFAULT_BILM = "elmo_mini"
OPTIONS_NAME, WEIGHTS_NAME = "options.json", "weights.hdf5"

_ARCHIVE_SUFFIX = ".tar.gz"


def load_named_bilm(
    name: Optional[str] = None,
    options_file: Optional[str] = None,
    weight_file: Optional[str] = None,
    precision: str = "float32",
    kernel: str = AUTO,
) -> BiLM:
    """
    Load a frozen biLM.

    # Parameters

    name : `str`, optional (default = `elmo_mini`, unless there are files)
        That of a biLM that comes with this package; a folder with `options.json` and `weights.hdf5`; a
        `.zip` that holds both; or the `model.tar.gz` of a biLM's training or of a task model that holds
        one.
    options_file, weight_file : `str`, optional
        In place of a name, see `BiLM.from_files`.
    precision, kernel : `str`, optional
        See `BiLM`.

    # Raises

    `ConfigurationError` for a name beside files, for a name that is none of these, and for whatever is
    wrong with what it names.
    """
    if options_file is not None or weight_file is not None:
        if name is not None:
            raise ConfigurationError(
                f"--bilm {name} stands for options and weights, but --options-file is {options_file} and "
                f"--weight-file is {weight_file}. Leave one or the other out."
            )
        return BiLM.from_files(options_file, weight_file, precision=precision, kernel=kernel)
    name = name or DEFAULT_BILM
    if is_archive(name):
        return frozen_copy(
            bilm_in(opened_archive(name).model, name), precision=precision, kernel=kernel
        )
    return BiLM.from_files(*bilm_files(name), precision=precision, kernel=kernel)


def is_archive(name: str) -> bool:
    """Whether a name is that of an archive of AllenNLP."""
    return name.endswith(_ARCHIVE_SUFFIX)


def bilm_files(name: str) -> Tuple[Path, Path]:
    """
    The options and the weights of a biLM whose name is not that of an archive.

    # Raises

    `ConfigurationError` if it is none of the names that `load_named_bilm` takes, or the folder lacks one of
    the two.
    """
    if names_both_files(name):
        return resolve_model_files(name, None)
    folder = Path(name)
    missing = [file for file in (OPTIONS_NAME, WEIGHTS_NAME) if not (folder / file).is_file()]
    if missing:
        found = (
            f"the folder holds no {' and no '.join(missing)}"
            if folder.is_dir()
            else "there is no such folder"
        )
        raise ConfigurationError(
            f"--bilm {name}: {found}, expected one of: {', '.join(pretrained_names())}, which come with "
            f"this package; a folder with {OPTIONS_NAME} and {WEIGHTS_NAME}; a .zip with both; an archive, "
            f"*{_ARCHIVE_SUFFIX}. Correct it, or give --options-file and --weight-file."
        )
    return folder / OPTIONS_NAME, folder / WEIGHTS_NAME


def random_bilm(
    options: BiLMOptions, seed: int, precision: str = "float32", kernel: str = AUTO
) -> BiLM:
    """
    A frozen biLM of these sizes with bilm-tf's initial values, for comparison: what it knows is what the
    spelling of words and the wiring of the layers give without training. The state of torch's random
    numbers is left as it was.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return BiLM(options, precision=precision, kernel=kernel).requires_grad_(False)
