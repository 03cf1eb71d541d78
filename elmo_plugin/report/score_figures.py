"""Pictures of the scores of training runs."""

import statistics
from typing import Any, Dict, List, NamedTuple, Optional, Sequence

from elmo_plugin.report.figures import figure_class

_BASELINE_COLOR = "#6b7280"
_ELMO_COLOR = "#c2410c"
_SEED_ALPHA = 0.55


class Series(NamedTuple):
    """
    What one setting scored.

    # Parameters

    label : `str`
        Of the setting.
    is_baseline : `bool`
        Without ELMo.
    scores : `Sequence[Sequence[float]]`
        Scores of each seed that is done.
    """

    label: str
    is_baseline: bool
    scores: Sequence[Sequence[float]]

    @property
    def color(self) -> str:
        return _BASELINE_COLOR if self.is_baseline else _ELMO_COLOR


def draw_variants(title: str, metric: str, variants: Dict[str, Sequence[float]]) -> Any:
    """
    A point for each seed and a bar at the mean, for each variant; the first is the baseline, whose mean is
    drawn through.

    # Returns

    A `matplotlib.figure.Figure`.
    """
    figure = figure_class()(figsize=(7, 1.6 + 0.5 * len(variants)), layout="constrained")
    axes = figure.subplots()
    for row, scores in enumerate(variants.values()):
        color = _BASELINE_COLOR if row == 0 else _ELMO_COLOR
        axes.scatter(
            scores, [row] * len(scores), s=36, color=color, alpha=_SEED_ALPHA, linewidths=0
        )
        if scores:
            mean = statistics.mean(scores)
            axes.plot([mean, mean], [row - 0.3, row + 0.3], color=color, linewidth=2.5)
            axes.annotate(
                f"{mean:.1f}",
                (mean, row - 0.3),
                (0, 3),
                textcoords="offset points",
                ha="center",
                bbox={"boxstyle": "square,pad=0.1", "facecolor": "white", "linewidth": 0},
            )
            if row == 0:
                axes.axvline(mean, color=color, linewidth=1, linestyle=":")
    axes.set_yticks(range(len(variants)), list(variants))
    axes.set_ylim(len(variants) - 0.5, -0.8)  # the first on top
    axes.margins(x=0.1)
    axes.set_xlabel(f"dev {metric}; points: seeds, bars: means")
    axes.set_title(title)
    axes.grid(axis="x", alpha=0.25)
    return figure


def draw_shares(title: str, metric: str, shares: Sequence[float], series: Sequence[Series]) -> Any:
    """
    Scores by share of the training data, on a logarithmic axis: the mean as a line, seeds as points.

    # Parameters

    shares : `Sequence[float]`
        Ascending.
    series : `Sequence[Series]`
        Scores of each share, of any number of seeds.

    # Returns

    A `matplotlib.figure.Figure`.
    """
    figure = figure_class()(figsize=(7, 4.5), layout="constrained")
    axes = figure.subplots()
    for one in series:
        there = [(share, scores) for share, scores in zip(shares, one.scores) if scores]
        axes.plot(
            [share for share, _ in there],
            [statistics.mean(scores) for _, scores in there],
            color=one.color,
            marker="_",
            markersize=12,
            label=one.label,
        )
        for share, scores in there:
            axes.scatter(
                [share] * len(scores),
                scores,
                s=30,
                color=one.color,
                alpha=_SEED_ALPHA,
                linewidths=0,
            )
    axes.set_xscale("log")
    axes.set_xticks(list(shares), [_percent(share) for share in shares])
    axes.minorticks_off()
    axes.set_xlabel("share of the training data")
    axes.set_ylabel(f"dev {metric}; points: seeds, lines: means")
    axes.set_title(title)
    axes.grid(alpha=0.25)
    axes.legend(frameon=False)
    return figure


def draw_curves(
    title: str,
    metric: str,
    is_larger_better: bool,
    shares: Sequence[float],
    panels: Sequence[Sequence[Series]],
) -> Any:
    """
    Scores by epoch, a panel for each share of the training data, a line for each seed; the best of each is
    marked.

    # Returns

    A `matplotlib.figure.Figure`.
    """
    figure = figure_class()(figsize=(3.2 * len(shares) + 0.8, 4.2), layout="constrained")
    all_axes = figure.subplots(1, len(shares), sharey=True, squeeze=False)[0]
    for axes, share, series in zip(all_axes, shares, panels):
        for one in series:
            label: Optional[str] = one.label
            for curve in one.scores:
                epochs = range(1, len(curve) + 1)
                axes.plot(epochs, curve, color=one.color, alpha=_SEED_ALPHA, label=label)
                best = (max if is_larger_better else min)(curve)
                axes.scatter([curve.index(best) + 1], [best], s=24, color=one.color, zorder=3)
                label = None  # once in the legend
        axes.set_title(f"{_percent(share)} of the training data", fontsize="medium")
        axes.set_xlabel("epoch")
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.grid(alpha=0.25)
    all_axes[0].set_ylabel(f"dev {metric}")
    handles = {
        text: handle for axes in all_axes for handle, text in zip(*axes.get_legend_handles_labels())
    }
    figure.legend(handles.values(), handles, loc="outside lower center", ncols=2, frameon=False)
    figure.suptitle(title)
    return figure


def _percent(share: float) -> str:
    return f"{100 * share:g} %"


def there(scores: Sequence[Optional[float]]) -> List[float]:
    """Without those of runs that failed."""
    return [score for score in scores if score is not None]
