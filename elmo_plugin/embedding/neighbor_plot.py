"""Plot the occurrences of a word: one point for each, colored by cluster."""

from os import PathLike
from pathlib import Path
from typing import Any, Optional, Sequence, Union

import numpy

from elmo_plugin.embedding.neighbors import Cluster, Occurrence
from elmo_plugin.errors import ConfigurationError, needing
from elmo_plugin.files.output import FIGURE_SUFFIXES, check_output_file, save_figure

# Clusters differ in marker and color, thus also in black and white: 9 markers and 10 colors make 90 pairs.
_MARKERS = "osD^vPX<>"
_NUM_COLORS = 10
_WORDS_OF_CONTEXT = 4  # on each side of the word, in the legend
_CHARACTERS_OF_WORD = 20  # in the legend
_INCHES_PER_ENTRY = 0.22  # height of a line of the legend


def check_plot(path: Union[str, PathLike], overwrite: bool = False) -> None:
    """
    Check that a plot can be written.

    # Raises

    `ConfigurationError` if the suffix is not one of `FIGURE_SUFFIXES`, the file cannot be written (see
    `check_output_file`), or matplotlib is not installed.
    """
    suffix = Path(path).suffix
    if suffix.lower() not in FIGURE_SUFFIXES:
        raise ConfigurationError(
            f"--plot: {path} has the suffix '{suffix}', expected one of {', '.join(FIGURE_SUFFIXES)}. "
            "Give another name."
        )
    check_output_file(path, overwrite, "--overwrite")
    _figure_class()


def plot_occurrences(
    path: Union[str, PathLike],
    word: Optional[str],
    occurrences: Sequence[Occurrence],
    vectors: numpy.ndarray,
    clusters: Sequence[Cluster],
    queries: Sequence[Occurrence],
    query_vectors: numpy.ndarray,
) -> None:
    """
    Plot the first two principal components of the vectors of occurrences. The number of a cluster is at the
    occurrence nearest to its mean, whose context is in the legend. Queries are numbered stars.

    # Parameters

    path : `str` or `PathLike`
        The file to write, see `check_plot`. An existing file is replaced.
    word : `str`, optional
        The word, for the title; `None` for whole sentences.
    occurrences, vectors, clusters
        The points; vectors are `(num_occurrences, dim)`, and every occurrence is in one cluster.
    queries, query_vectors
        More points, which the components do not depend on; vectors are `(num_queries, dim)`.
    """
    from sklearn.decomposition import PCA

    projection = PCA(n_components=2, svd_solver="full").fit(vectors)
    points = projection.transform(vectors)  # (num_occurrences, 2)
    query_points = projection.transform(query_vectors) if queries else []
    legend_height = _INCHES_PER_ENTRY * (len(clusters) + len(queries) + 1)
    figure = _figure_class()(figsize=(8, 5.5 + legend_height), layout="constrained")
    axes = figure.subplots()
    for number, cluster in enumerate(clusters):
        color = f"C{number % _NUM_COLORS}"  # of matplotlib's cycle
        axes.scatter(
            *points[cluster.members].T,
            s=26,
            color=color,
            marker=_MARKERS[number % len(_MARKERS)],
            alpha=0.65,
            linewidths=0,
            label=f"cluster {number + 1} ({len(cluster.members):,}), such as: "
            f"{_context(occurrences[cluster.members[0]])}",
        )
        axes.annotate(
            str(number + 1),
            points[cluster.members[0]],
            ha="center",
            va="center",
            weight="bold",
            color="white",
            zorder=5,
            bbox={"boxstyle": "circle", "facecolor": color, "edgecolor": "white"},
        )
    for number, (query, point) in enumerate(zip(queries, query_points), start=1):
        axes.scatter(
            *point,
            s=160,
            color="gold",
            marker="*",
            edgecolors="black",
            zorder=4,
            label=f"sentence {number}: {_context(query)}",
        )
        axes.annotate(
            str(number), point, (9, 5), textcoords="offset points", weight="bold", zorder=6
        )
    title = axes.set_title(
        f"{len(occurrences):,} sentences"
        if word is None
        else f"{len(occurrences):,} occurrences of “{word}” in context"
    )
    for axis, name, share in zip(
        (axes.xaxis, axes.yaxis), ("first", "second"), projection.explained_variance_ratio_
    ):
        axis.set_label_text(f"{name} principal component ({share:.0%} of the variance)")
    axes.grid(alpha=0.25)
    legend = figure.legend(loc="outside lower left", fontsize="small", frameon=False)
    for text in (title, *legend.get_texts()):
        text.set_parse_math(False)  # a dollar sign is a word, not math
    save_figure(figure, path)


def _context(occurrence: Occurrence) -> str:
    """Return the word with a few words before and after it, or the first words of a whole sentence."""
    position = occurrence.position or 0
    begin, end = max(0, position - _WORDS_OF_CONTEXT), position + 1 + _WORDS_OF_CONTEXT
    words = [
        word if len(word) <= _CHARACTERS_OF_WORD else f"{word[:_CHARACTERS_OF_WORD]}…"
        for word in occurrence.tokens[begin:end]
    ]
    return " ".join([*["…"] * (begin > 0), *words, *["…"] * (end < len(occurrence.tokens))])


def _figure_class() -> Any:
    # Not pyplot, which keeps figures in memory and may need a display.
    with needing("Figures need matplotlib", "elmo-plugin[plots]", ", or omit --plot."):
        from matplotlib.figure import Figure
    return Figure
