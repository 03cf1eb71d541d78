"""The pictures of a results folder."""

from os import PathLike
from pathlib import Path
from typing import Any, List, Union

from elmo_plugin.files import figure_file
from elmo_plugin.files.figure_file import SUFFIXES, save_figure


def figure_class() -> Any:
    """
    `matplotlib.figure.Figure`, imported when it is needed. Call this before long work: better no work than
    work without its picture.

    # Raises

    `ConfigurationError` if matplotlib is not installed.
    """
    return figure_file.figure_class("run this where it is installed")


def write_figure(figure: Any, folder: Union[str, PathLike], name: str) -> List[Path]:
    """
    Write NAME.png and NAME.svg into a folder, which is made if it is not there. Files that stand there are
    replaced.

    # Parameters

    figure : `matplotlib.figure.Figure`
        See `figure_class`.
    folder : `str` or `PathLike`
        Of results.
    name : `str`
        Stem of the files.

    # Returns

    The paths of the two files.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{name}{suffix}" for suffix in SUFFIXES]
    for path in paths:
        save_figure(figure, path)
    return paths
