"""Check that an output can be written, before the work that makes its content."""

import os
import shutil
from os import PathLike
from pathlib import Path
from typing import Union

from elmo_plugin.errors import ConfigurationError


def check_output_file(
    path: Union[str, PathLike], overwrite: bool, advice: str, what: str = "output"
) -> None:
    """
    Check that a file can be written.

    # Parameters

    path : `str` or `PathLike`
        The file.
    overwrite : `bool`
        Whether an existing file may be replaced.
    advice : `str`
        The option that allows it, for instance `"--overwrite"`.
    what : `str`, optional (default = `"output"`)
        Name of the file in errors, such as the name of an option.

    # Raises

    `ConfigurationError` if the path is a folder, the file exists and may not be replaced, or its folder does
    not exist or cannot be written.
    """
    path = Path(path)
    if path.is_dir():
        raise ConfigurationError(
            f"{what}: {path} is a folder, expected a file. Give the path of a file in it."
        )
    _check_place(path, overwrite, advice, what)


def check_output_folder(
    path: Union[str, PathLike], overwrite: bool, advice: str, what: str = "output"
) -> None:
    """Check that a folder can be made. The parameters are those of `check_output_file`."""
    path = Path(path)
    if path.exists() and not path.is_dir():
        raise ConfigurationError(
            f"{what}: {path} is a file, expected a new folder. Give another path."
        )
    _check_place(path, overwrite, advice, what)


def _check_place(path: Path, overwrite: bool, advice: str, what: str) -> None:
    if "\0" in str(path):
        raise ConfigurationError(
            f"{what}: {str(path)!r} has a null character, expected the path of a file. Correct it."
        )
    if path.exists() and not overwrite:
        raise ConfigurationError(
            f"{what}: {path} exists, expected a new path. Give another one, or {advice} to replace it."
        )
    if not path.parent.is_dir():
        raise ConfigurationError(
            f"{what}: there is no folder {path.parent} to write {path.name} in. Make it first, or give "
            "another path."
        )
    # The file is written beside its final place and renamed, so the permissions of the folder matter.
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise ConfigurationError(
            f"{what}: nothing may be written in the folder {path.parent}, expected one that this user may "
            "write in. Change its permissions, or give another path."
        )


def check_free_space(path: Union[str, PathLike], num_bytes: int, advice: str) -> None:
    """
    Check that the disk has room for a file.

    # Parameters

    path : `str` or `PathLike`
        The file.
    num_bytes : `int`
        Its minimum size.
    advice : `str`
        What would make it smaller.

    # Raises

    `ConfigurationError` if the disk has less room.
    """
    free = shutil.disk_usage(Path(path).parent).free
    if free < num_bytes:
        raise ConfigurationError(
            f"output: {path} needs at least {num_bytes / 1e9:,.1f} GB, and {free / 1e9:,.1f} GB are free. "
            f"Make room, give a path on another disk, or {advice}."
        )
