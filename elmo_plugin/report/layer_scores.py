"""Scores of the layers of biLMs, measured several times; as cells of a table, and as a picture."""

import statistics
from collections import defaultdict
from typing import Any, DefaultDict, Dict, List, NamedTuple, Optional, Sequence, Tuple

from elmo_plugin.report.figures import figure_class

_DIGITS = 2

_BASELINE_COLOR = "#6b7280"


class _Style(NamedTuple):
    color: str
    marker: str
    label_offset: int  # of numbers from the bars of their points, upwards, in points


_STYLES = (_Style("#c2410c", "o", 11), _Style("#2563eb", "s", -11))


class LayerKey(NamedTuple):
    """A layer of a biLM; of a baseline `layer` is empty."""

    bilm: str
    layer: str


class Measure(NamedTuple):
    """What was measured, and on which word if on one."""

    name: str
    word: Optional[str] = None


class LayerScores:
    """Scores, in percent, of layers: several for each measure, if it was measured several times."""

    def __init__(self) -> None:
        self._scores: DefaultDict[Tuple[LayerKey, Measure], List[float]] = defaultdict(list)

    def add(self, layer: LayerKey, measure: Measure, score: float) -> None:
        """One more."""
        self._scores[layer, measure].append(score)

    def has(self, measure: Measure) -> bool:
        """Whether there is a score."""
        return any(key[1] == measure for key in self._scores)

    def mean(self, layer: LayerKey, measure: Measure) -> float:
        """Of all scores, of which there is one at least."""
        return statistics.mean(self._scores[layer, measure])

    def std(self, layer: LayerKey, measure: Measure) -> Optional[float]:
        """Of the sample; `None` if there is one score."""
        scores = self._scores[layer, measure]
        return statistics.stdev(scores) if len(scores) > 1 else None

    def cells(self, layer: LayerKey, measure: Measure) -> List[Optional[float]]:
        """Mean and standard deviation, rounded for a table; empty if there is none."""
        if (layer, measure) not in self._scores:
            return [None, None]
        std = self.std(layer, measure)
        return [
            round(self.mean(layer, measure), _DIGITS),
            None if std is None else round(std, _DIGITS),
        ]


def draw_layers(
    title: str,
    scores: LayerScores,
    bilms: Sequence[str],
    layers: Sequence[str],
    measures: Dict[str, Measure],
    baseline: LayerKey,
) -> Any:
    """
    Mean scores by layer, with their standard deviations: a line for each biLM, a panel for each measure.

    # Parameters

    title : `str`
        Of the whole.
    scores : `LayerScores`
        Of all of these.
    bilms : `Sequence[str]`
        The first is the one that is looked at, a second one its control.
    layers : `Sequence[str]`
        The last is the mean of the others, to which no line leads.
    measures : `Dict[str, Measure]`
        From left to right, by what readers should call them.
    baseline : `LayerKey`
        What is known without vectors.

    # Returns

    A `matplotlib.figure.Figure`.
    """
    figure = figure_class()(figsize=(4.4 * len(measures) + 0.6, 4.7), layout="constrained")
    all_axes = figure.subplots(1, len(measures), squeeze=False)[0]
    for axes, (name, measure) in zip(all_axes, measures.items()):
        for bilm, style in zip(bilms, _STYLES):
            keys = [LayerKey(bilm, layer) for layer in layers]
            _draw_bilm(axes, scores, keys, measure, style)
        axes.axhline(
            scores.mean(baseline, measure),
            color=_BASELINE_COLOR,
            linestyle="--",
            linewidth=1.2,
            label=baseline.bilm,
        )
        axes.annotate(
            f"{scores.mean(baseline, measure):.1f}",
            (1, scores.mean(baseline, measure)),
            (-3, 3),
            xycoords=("axes fraction", "data"),
            textcoords="offset points",
            ha="right",
            fontsize="small",
            color=_BASELINE_COLOR,
        )
        axes.set_xticks(range(len(layers)), [layer.replace(" (", "\n(") for layer in layers])
        axes.set_xlim(-0.5, len(layers) - 0.5)
        axes.margins(y=0.15)
        axes.set_xlabel("layer")
        axes.set_ylabel(f"{name} (%)")
        axes.grid(axis="y", alpha=0.25)
    figure.suptitle(title)
    figure.legend(
        *all_axes[0].get_legend_handles_labels(),
        loc="outside lower center",
        ncols=len(bilms) + 1,
        frameon=False,
    )
    return figure


def _draw_bilm(
    axes: Any, scores: LayerScores, layers: Sequence[LayerKey], measure: Measure, style: _Style
) -> None:
    means = [scores.mean(layer, measure) for layer in layers]
    stds = [scores.std(layer, measure) or 0.0 for layer in layers]
    shared: Dict[str, Any] = {"color": style.color, "marker": style.marker, "capsize": 3}
    axes.errorbar(range(len(layers) - 1), means[:-1], stds[:-1], label=layers[0].bilm, **shared)
    axes.errorbar([len(layers) - 1], means[-1:], stds[-1:], linestyle="none", **shared)
    side = 1 if style.label_offset > 0 else -1
    for place, (mean, std) in enumerate(zip(means, stds)):
        axes.annotate(
            f"{mean:.1f}",
            (place, mean + side * std),  # beyond the bar
            (0, style.label_offset),
            textcoords="offset points",
            ha="center",
            va="center",
            fontsize="small",
            color=style.color,
        )
