"""Pictures, drawn by matplotlib, which is an extra."""

from os import PathLike
from pathlib import Path
from typing import Any, Union

from elmo_plugin.errors import ConfigurationError
from elmo_plugin.files.replaced_file import replaced_file

SUFFIXES = (".png", ".svg")

_DOTS_PER_INCH = 150


def figure_class(advice: str) -> Any:
    """
    `matplotlib.figure.Figure`, imported when it is needed. Not pyplot, which keeps figures and may look for a
    screen: without it a figure is drawn by Agg, or the writer of the file's format.

    # Parameters

    advice : `str`
        What a user can do other than install matplotlib, such as "leave --plot out".

    # Raises

    `ConfigurationError` if matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ConfigurationError(
            f"matplotlib cannot be imported ({error}), and draws the picture. Install it with "
            f'`pip install "elmo_plugin[plots]"`, or {advice}.'
        ) from error
    return Figure


def save_figure(figure: Any, path: Union[str, PathLike]) -> None:
    """
    Write a `matplotlib.figure.Figure` in the format of the path's suffix, one of `SUFFIXES`. A file there is
    replaced.
    """
    with replaced_file(path) as partial_file:
        figure.savefig(
            partial_file, format=Path(path).suffix.lower().removeprefix("."), dpi=_DOTS_PER_INCH
        )
