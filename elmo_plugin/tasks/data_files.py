"""The files that the readers of tasks are given."""

from os import PathLike
from pathlib import Path
from typing import Iterator, List, Tuple, Union

from allennlp.common.checks import ConfigurationError

from elmo_plugin.bilm.model_files import local_path
from elmo_plugin.files.text_lines import decoded_lines


def data_file(file_path: Union[str, PathLike]) -> Path:
    """
    The file on this machine that a path, or a URL that `cached_path` can fetch, stands for.

    # Raises

    `ConfigurationError` if there is no such file, or it is a folder.
    """
    path = local_path("data file", file_path)
    if not path.is_file():
        raise ConfigurationError(
            f"data file: {file_path} is a folder, expected a file. Give the path of a data file."
        )
    return path


def data_files(path: Union[str, PathLike], suffix: str) -> List[Path]:
    """
    The file, or all files below a folder whose names end in `suffix`, in the order of their paths.

    # Raises

    `ConfigurationError` if there is no such file or folder, or the folder has no such file.
    """
    local = local_path("data file", path)
    if not local.is_dir():
        return [local]
    files = sorted(file for file in local.rglob(f"*{suffix}") if file.is_file())
    if not files:
        raise ConfigurationError(
            f"data files: the folder {path} holds no file whose name ends in {suffix}, expected at "
            "least one. Give the path of a file, or of a folder with such files."
        )
    return files


def numbered_lines(file_path: Union[str, PathLike], line_content: str) -> Iterator[Tuple[int, str]]:
    """
    The lines of a file that are not blank, without the white space around them, each with its number.
    White space is spaces and tabs: a no-break space belongs to a word.

    # Parameters

    file_path : `str` or `PathLike`
        As for `data_file`.
    line_content : `str`
        What errors say that a line should hold, such as `one tree`.

    # Raises

    `ConfigurationError` if there is no such file, if it has only blank lines, or if a line, which it
    names, is not UTF-8.
    """
    is_empty = True
    with open(data_file(file_path), "rb") as file:
        for line_number, line in enumerate(decoded_lines(file, file_path, line_content), start=1):
            line = line.strip(" \t\r")
            if line:
                is_empty = False
                yield line_number, line
    if is_empty:
        raise ConfigurationError(
            f"{file_path}: found nothing but blank lines, expected {line_content} on each line. Give the "
            "path of a file with data."
        )
