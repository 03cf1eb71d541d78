"""From the names that a user gives for options and weights to files on this machine."""

import zipfile
from os import PathLike
from pathlib import Path
from typing import List, Optional, Tuple, Union

from allennlp.common.checks import ConfigurationError
from allennlp.common.file_utils import cached_path

Name = Union[str, PathLike]


def resolve_model_files(options_file: Optional[Name], weight_file: Name) -> Tuple[Path, Path]:
    """
    Find or fetch the options and the weights of a biLM.

    # Parameters

    options_file, weight_file : `str` or `PathLike`
        Local path, URL, or `hf://owner/repository/file` name of each. `weight_file` may be a `.zip` that
        holds both (as NLPL's repository publishes them); `options_file` is then `None` or the same name.

    # Returns

    Local paths of the options and of the weights.

    # Raises

    `ConfigurationError` naming what could not be found, and where.
    """
    if str(weight_file).endswith(".zip"):
        if options_file is not None and str(options_file) != str(weight_file):
            raise ConfigurationError(
                f"weight_file {weight_file} is a zip with its own options, but options_file is "
                f"{options_file}. Leave options_file out, or unpack the zip."
            )
        return _files_in_zip(weight_file)
    if options_file is None:
        raise ConfigurationError(
            f"options_file is missing beside weight_file {weight_file}. Give the options.json of the same "
            "model (only a .zip with both needs none)."
        )
    return local_path("options_file", options_file), local_path("weight_file", weight_file)


def local_path(what: str, name: Name, extract_archive: bool = False) -> Path:
    """
    Find or fetch one file. `what` says in errors which it is, such as a key of a config.

    # Raises

    `ConfigurationError` if it is not there, or cannot be fetched.
    """
    try:
        return Path(cached_path(str(name), extract_archive=extract_archive))
    # Missing files, unreachable hosts and refused downloads are OSErrors; malformed names of hubs are
    # ValueErrors.
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"{what}: cannot find {name} ({error}). Give the path of an existing file, or a URL or hf:// "
            "name that this machine can reach."
        ) from error


def _files_in_zip(name: Name) -> Tuple[Path, Path]:
    if not zipfile.is_zipfile(local_path("weight_file", name)):
        raise ConfigurationError(
            f"weight_file: {name} is no zip file, or one cut short, expected a zip with options and "
            "weights. Get another copy."
        )
    folder = local_path("weight_file", name, extract_archive=True)
    return _only_file(folder, "options*.json", name), _only_file(folder, "*.hdf5", name)


def _only_file(folder: Path, pattern: str, name: Name) -> Path:
    found: List[Path] = sorted(folder.rglob(pattern))
    if len(found) != 1:
        listing = ", ".join(str(path.relative_to(folder)) for path in found) or "none"
        raise ConfigurationError(
            f"{name}: found {len(found)} files named {pattern} ({listing}), expected exactly one. "
            "Unpack the zip and give options_file and weight_file."
        )
    return found[0]
