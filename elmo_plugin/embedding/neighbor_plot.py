"""Plot occurrences of a word, or sentences: two principal components of their vectors."""

import textwrap
from os import PathLike
from pathlib import Path
from typing import Any, Sequence, Union

import numpy

from elmo_plugin.embedding.neighbors import Cluster, Occurrence
from elmo_plugin.errors import ConfigurationError, needing
from elmo_plugin.files.output import FIGURE_SUFFIXES, check_output_file, save_figure

_WORDS_OF_CONTEXT = 4  # on each side of the word, in the legend
_CHARACTERS = 80  # of a line of the legend
_INCHES_PER_LINE = 0.22


def check_plot(path: str, overwrite: bool) -> None:
    """
    Raise `ConfigurationError` if the suffix is not one of `FIGURE_SUFFIXES`, the file cannot be written (see
    `check_output_file`), or matplotlib is not installed.
    """
    suffix = Path(path).suffix
    if suffix.lower() not in FIGURE_SUFFIXES:
        raise ConfigurationError(
            f"--plot: {path} has the suffix '{suffix}', expected one of {', '.join(FIGURE_SUFFIXES)}. "
            "Give another name."
        )
    check_output_file(path, overwrite, "--overwrite", "--plot")
    _figure_class()


def plot_occurrences(
    path: Union[str, PathLike],
    title: str,
    occurrences: Sequence[Occurrence],
    vectors: numpy.ndarray,
    clusters: Sequence[Cluster],
    queries: Sequence[Occurrence],
    query_vectors: numpy.ndarray,
) -> None:
    """
    Plot the first two principal components of the vectors of at least two occurrences. Members of a cluster
    have its number as their marker; queries are stars, and do not change the components.

    # Parameters

    path : `str` or `PathLike`
        The file to write, see `check_plot`. An existing file is replaced.
    occurrences, vectors, clusters
        The points; vectors are `(num_occurrences, dim)`. There may be no clusters.
    queries, query_vectors
        Vectors are `(num_queries, dim)`.
    """
    from sklearn.decomposition import PCA

    pca = PCA(n_components=2).fit(vectors)
    points = pca.transform(vectors)  # (num_occurrences, 2)
    num_lines = len(clusters) + len(queries)
    figure = _figure_class()(figsize=(8, 5.5 + _INCHES_PER_LINE * num_lines), layout="constrained")
    axes = figure.subplots()
    if not clusters:
        axes.scatter(*points.T, alpha=0.6)
    for number, cluster in enumerate(clusters, start=1):
        example = _context(occurrences[cluster.members[0]])
        label = f"cluster {number} ({len(cluster.members):,}), such as: {example}"
        axes.scatter(*points[cluster.members].T, marker=f"${number}$", alpha=0.6, label=label)
    for number, query in enumerate(queries, start=1):
        point = pca.transform(query_vectors[number - 1 : number])[0]
        label = f"sentence {number}: {_context(query)}"
        axes.scatter(*point, s=160, marker="*", edgecolors="black", label=label)
    for axis, name, share in zip(
        (axes.xaxis, axes.yaxis), ("first", "second"), pca.explained_variance_ratio_
    ):
        axis.set_label_text(f"{name} principal component ({share:.0%} of the variance)")
    legend = figure.legend(loc="outside lower left", fontsize="small", frameon=False)
    for text in (axes.set_title(title), *legend.get_texts()):
        text.set_parse_math(False)  # a dollar sign is a word, not math
    save_figure(figure, path)


def _context(occurrence: Occurrence) -> str:
    """Return the word with a few words before and after it, or the first words of a whole sentence."""
    position = occurrence.position or 0
    words = occurrence.tokens[
        max(0, position - _WORDS_OF_CONTEXT) : position + 1 + _WORDS_OF_CONTEXT
    ]
    return textwrap.shorten(" ".join(words), _CHARACTERS, placeholder=" …")


def _figure_class() -> Any:
    # Not pyplot, which keeps figures in memory and may need a display.
    with needing("Figures need matplotlib", "elmo-plugin[plots]", ", or omit --plot."):
        from matplotlib.figure import Figure
    return Figure
