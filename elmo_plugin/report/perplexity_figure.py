"""The picture of perplexities before and after a biLM was adapted."""

from typing import Any, NamedTuple, Optional, Sequence, Tuple

from elmo_plugin.report.figures import figure_class

_COLOR, _PAPER_COLOR = "#c2410c", "#6b7280"
_PAPER_OFFSET = 0.26  # below ours, in rows


class DrawnText(NamedTuple):
    """
    A row of the picture.

    # Parameters

    label : `str`
        Of the text.
    before, after : `float`
        Perplexities.
    paper : `Tuple[float, float]`, optional
        The paper's, of its text.
    """

    label: str
    before: float
    after: float
    paper: Optional[Tuple[float, float]]


def draw_perplexities(title: str, texts: Sequence[DrawnText]) -> Any:
    """
    An arrow for each text, from the perplexity before to that after, on a logarithmic axis; below it the
    paper's, if it has one.

    # Returns

    A `matplotlib.figure.Figure`.
    """
    figure = figure_class()(figsize=(7, 1.7 + 0.7 * len(texts)), layout="constrained")
    axes = figure.subplots()
    labels = {"here": _COLOR, "the paper, on its text": _PAPER_COLOR}
    for row, text in enumerate(texts):
        _draw_arrow(axes, row, (text.before, text.after), _COLOR)
        if text.paper is not None:
            _draw_arrow(axes, row + _PAPER_OFFSET, text.paper, _PAPER_COLOR)
    for label, color in labels.items():
        axes.plot([], [], color=color, marker="o", label=label)
    axes.set_xscale("log")
    axes.margins(x=0.12)
    axes.set_ylim(len(texts) - 0.4, -0.5)  # the first on top
    axes.set_yticks(range(len(texts)), [text.label for text in texts])
    ticks = [10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000]
    low, high = axes.get_xlim()
    axes.set_xticks([tick for tick in ticks if low <= tick <= high])
    axes.set_xticklabels([str(tick) for tick in ticks if low <= tick <= high])
    axes.minorticks_off()
    axes.set_xlabel("held-out perplexity; from before (hollow) to after (full)")
    axes.set_title(title)
    axes.grid(axis="x", alpha=0.25)
    figure.legend(loc="outside lower center", ncols=2, frameon=False)
    return figure


def _draw_arrow(axes: Any, row: float, ends: Tuple[float, float], color: str) -> None:
    before, after = ends
    arrow = {"arrowstyle": "->", "color": color, "shrinkA": 6, "shrinkB": 6, "linewidth": 1.5}
    axes.annotate("", (after, row), (before, row), arrowprops=arrow)
    axes.scatter([before], [row], s=36, facecolors="none", edgecolors=color, zorder=3)
    axes.scatter([after], [row], s=36, color=color, zorder=3)
    for value, is_left in ((before, before <= after), (after, after < before)):
        axes.annotate(
            f"{value:.1f}",
            (value, row),
            (-8 if is_left else 8, 0),
            textcoords="offset points",
            ha="right" if is_left else "left",
            va="center",
            fontsize="small",
            color=color,
        )
