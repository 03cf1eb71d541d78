"""A picture of a word's occurrences: one point for each, coloured by cluster."""

from os import PathLike
from pathlib import Path
from typing import Any, List, Sequence, Union

import numpy

from elmo_plugin.embedding.neighbors import Cluster, Occurrence, project_occurrences
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.files.figure_file import SUFFIXES, figure_class, save_figure
from elmo_plugin.files.output_file import check_output_file

# With the colour, so that clusters differ in black and white too; nine, and ten colours, make 90 pairs.
_MARKERS = "osD^vPX<>"
_COLORS = "tab10"
_WORDS_OF_CONTEXT = 4  # on each side of the word, in the legend
_CHARACTERS_OF_CONTEXT = 30  # likewise, at most
_INCHES_PER_ENTRY = 0.22  # of the legend


def check_plot(path: Union[str, PathLike], overwrite: bool = False) -> None:
    """
    # Raises

    `ConfigurationError` if the suffix is none of `SUFFIXES`, the file cannot be written (see
    `check_output_file`), or matplotlib is not installed.
    """
    suffix = Path(path).suffix
    if suffix.lower() not in SUFFIXES:
        raise ConfigurationError(
            f"--plot: {path} has the suffix '{suffix}', expected one of {', '.join(SUFFIXES)}. Give another "
            "name."
        )
    check_output_file(path, overwrite, "--overwrite")
    _figure_class()


def plot_occurrences(
    path: Union[str, PathLike],
    word: str,
    occurrences: Sequence[Occurrence],
    vectors: numpy.ndarray,
    clusters: Sequence[Cluster],
    queries: Sequence[Occurrence] = (),
    query_vectors: Union[numpy.ndarray, Sequence[numpy.ndarray]] = (),
) -> None:
    """
    Draw the occurrences in the plane of `project_occurrences`. The number of a cluster stands at its most
    central occurrence, whose context is in the legend; queries are numbered stars.

    # Parameters

    path : `str` or `PathLike`
        The file to write, replaced if it is there; see `check_plot`.
    word : `str`
        For the title.
    occurrences, vectors
        The points; vectors are `(num_occurrences, dim)`.
    clusters : `Sequence[Cluster]`
        Every occurrence is in one.
    queries, query_vectors
        Further points; vectors are `(num_queries, dim)`.
    """
    projection = project_occurrences(vectors, numpy.asarray(query_vectors))
    legend_height = _INCHES_PER_ENTRY * (len(clusters) + len(queries) + 1)
    figure = _figure_class()(figsize=(8, 5.5 + legend_height), layout="constrained")
    axes = figure.subplots()
    colors = _colors(len(clusters))
    for number, cluster in enumerate(clusters):
        points = projection.points[cluster.members]  # (num_members, 2)
        axes.scatter(
            *points.T,
            s=26,
            color=colors[number],
            marker=_MARKERS[number % len(_MARKERS)],
            alpha=0.65,
            linewidths=0,
            label=f"cluster {number + 1} ({len(cluster.members):,}), such as: "
            f"{_context(occurrences[cluster.members[0]])}",
        )
    for number, cluster in enumerate(clusters):
        _write_number(axes, projection.points[cluster.members[0]], number + 1, colors[number])
    for number, query in enumerate(queries):
        point = projection.query_points[number]
        axes.scatter(
            *point,
            s=160,
            color="gold",
            marker="*",
            edgecolors="black",
            zorder=4,
            label=f"sentence {number + 1}: {_context(query)}",
        )
        axes.annotate(
            str(number + 1), point, (9, 5), textcoords="offset points", weight="bold", zorder=6
        )
    title = axes.set_title(f"{len(occurrences):,} occurrences of “{word}” in context")
    for axis, name, share in zip(
        (axes.xaxis, axes.yaxis), ("first", "second"), projection.explained_variance
    ):
        axis.set_label_text(f"{name} principal component ({share:.0%} of the variance)")
    axes.grid(alpha=0.25)
    legend = figure.legend(loc="outside lower left", fontsize="small", frameon=False)
    for text in (title, *legend.get_texts()):
        text.set_parse_math(False)  # dollar signs are words here
    save_figure(figure, path)


def _figure_class() -> Any:
    return figure_class("leave --plot out")


def _colors(number: int) -> List[Any]:
    from matplotlib import colormaps

    palette = colormaps[_COLORS]
    return [palette(index % palette.N) for index in range(number)]


def _write_number(axes: Any, point: numpy.ndarray, number: int, color: Any) -> None:
    axes.annotate(
        str(number),
        point,
        ha="center",
        va="center",
        weight="bold",
        color="white",
        zorder=5,
        bbox={"boxstyle": "circle", "facecolor": color, "edgecolor": "white"},
    )


def _context(occurrence: Occurrence) -> str:
    """The word with a few words before and after it."""
    tokens, position = occurrence.tokens, occurrence.position
    # Nearest first, so that far ones are left out.
    before = _short(tokens[:position][::-1])[::-1]
    after = _short(tokens[position + 1 :])
    return " ".join(
        [
            *["…"] * (len(before) < position),
            *before,
            occurrence.word[:_CHARACTERS_OF_CONTEXT],
            *after,
            *["…"] * (len(after) < len(tokens) - position - 1),
        ]
    )


def _short(tokens: Sequence[str]) -> List[str]:
    """The first of the tokens."""
    kept: List[str] = []
    for token in tokens[:_WORDS_OF_CONTEXT]:
        if len(" ".join([*kept, token])) > _CHARACTERS_OF_CONTEXT:
            break
        kept.append(token)
    return kept
