"""Figures of matplotlib, which is an extra."""

from os import PathLike
from pathlib import Path
from typing import Any, Union

from elmo_plugin.errors import needing
from elmo_plugin.files.replaced_file import replaced_file

SUFFIXES = (".png", ".svg")

_DOTS_PER_INCH = 150


def figure_class(advice: str) -> Any:
    """
    Import and return `matplotlib.figure.Figure`. pyplot is not used: it keeps figures in memory and may need
    a display.

    # Parameters

    advice : `str`
        What the user can do without matplotlib, such as "leave --plot out".

    # Raises

    `ConfigurationError` if matplotlib is not installed.
    """
    with needing("Figures need matplotlib", "elmo-plugin[plots]", f", or {advice}."):
        from matplotlib.figure import Figure
    return Figure


def save_figure(figure: Any, path: Union[str, PathLike]) -> None:
    """
    Write a `matplotlib.figure.Figure` in the format of the path's suffix, one of `SUFFIXES`. An existing file
    is replaced.
    """
    with replaced_file(path) as partial_file:
        figure.savefig(
            partial_file, format=Path(path).suffix.lower().removeprefix("."), dpi=_DOTS_PER_INCH
        )
