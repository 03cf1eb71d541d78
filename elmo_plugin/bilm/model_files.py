"""From the names that a user gives for options and weights to files on this machine."""

import zipfile
from os import PathLike
from pathlib import Path
from typing import List, Optional, Tuple, Union

from allennlp.common.checks import ConfigurationError
from allennlp.common.file_utils import cached_path

Name = Union[str, PathLike]

# The biLMs that come with this package: a folder each, whose name stands for both of its files.
PRETRAINED_FOLDER = Path(__file__).parents[1] / "pretrained"


def resolve_model_files(
    options_file: Optional[Name], weight_file: Optional[Name]
) -> Tuple[Path, Path]:
    """
    Find or fetch the options and the weights of a biLM.

    # Parameters

    options_file, weight_file : `str` or `PathLike`
        Local path, URL, or `hf://owner/repository/file` name of each. The name of a pretrained biLM that
        comes with this package, such as `elmo_mini`, stands for both files, and so does a `.zip` that holds
        both (as NLPL's repository publishes them): the other argument is then `None` or the same name.

    # Returns

    Local paths of the options and of the weights.

    # Raises

    `ConfigurationError` naming what could not be found, and where.
    """
    given = {"options_file": options_file, "weight_file": weight_file}
    names = [name for name in given.values() if name is not None]
    for name in names:
        if not names_both_files(name):
            continue
        if any(str(other) != str(name) for other in names):
            raise ConfigurationError(
                f"options_file is {options_file} and weight_file is {weight_file}, but {name} stands for "
                "both files. Leave the other one out."
            )
        if str(name) in pretrained_names():
            folder = PRETRAINED_FOLDER / str(name)
            return folder / "options.json", folder / "weights.hdf5"
        return _files_in_zip(name)
    if options_file is None or weight_file is None:
        raise ConfigurationError(
            f"Found {given}, expected the options (JSON) and the weights (HDF5) of one model. One name is "
            "enough where it is that of a .zip with both, or of a model that comes with this package: "
            f"{', '.join(pretrained_names())}."
        )
    return local_path("options_file", options_file), local_path("weight_file", weight_file)


def names_both_files(name: Optional[Name]) -> bool:
    """Whether this one name stands for options and weights: a `.zip`, or a model of this package."""
    return name is not None and (str(name).endswith(".zip") or str(name) in pretrained_names())


def pretrained_names() -> List[str]:
    """The names of the biLMs that come with this package."""
    return sorted(path.parent.name for path in PRETRAINED_FOLDER.glob("*/options.json"))


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
