"""The figures of reports, drawn with matplotlib."""

import textwrap
from typing import TYPE_CHECKING, Any, Dict, List, Tuple

import numpy
import pandas

if TYPE_CHECKING:  # --include-package imports every module, also where matplotlib is not installed
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_ELMO_COLOR, _CONTROL_COLOR, _BASELINE_COLOR = "#c2410c", "#2563eb", "#6b7280"
_POINTS: Dict[str, Any] = {"alpha": 0.55, "linewidths": 0}  # of seeds
_COLUMN_WIDTH = 12  # of the heat map, in letters
_DARK = 0.6  # of the color map; letters on darker fields are white


def draw_variants(title: str, metric: str, scores: pandas.DataFrame) -> "Figure":
    """
    Draw a point for each seed and a bar at the mean, for each variant, and a line at the mean of the first
    variant, the baseline. `scores` has a row for each variant and a column for each seed.
    """
    figure, (axes,) = _figure(title, 7, 1.6 + 0.5 * len(scores))
    for row, (_, values) in enumerate(scores.iterrows()):
        color = _BASELINE_COLOR if row == 0 else _ELMO_COLOR
        axes.scatter(values, [row] * len(values), color=color, **_POINTS)
        axes.vlines(values.mean(), row - 0.3, row + 0.3, color=color, linewidth=2.5)
        if values.notna().any():
            _write_value(axes, values.mean(), (values.mean(), row - 0.3), 7, color)
    axes.axvline(scores.iloc[0].mean(), color=_BASELINE_COLOR, linewidth=1, linestyle=":", zorder=0)
    axes.set_yticks(range(len(scores)), list(scores.index))
    axes.set_ylim(len(scores) - 0.5, -0.8)  # the first on top
    axes.margins(x=0.1)
    axes.set_xlabel(f"dev {metric}; points: seeds, bars: means")
    axes.grid(axis="x", alpha=0.25)
    return figure


def draw_shares(title: str, metric: str, scores: pandas.DataFrame) -> "Figure":
    """
    Draw scores by share of the training data, on a logarithmic axis: means as a line, seeds as points.
    `scores` has rows of (share, label), the label of the baseline first, and a column for each seed.
    """
    figure, (axes,) = _figure(title, 7, 4.5)
    shares = list(scores.index.unique(0))
    for label, color in zip(scores.index.unique(1), (_BASELINE_COLOR, _ELMO_COLOR)):
        by_share = scores.xs(label, level=1)
        means = by_share.mean(axis=1).dropna()
        axes.plot(means.index, means, color=color, marker="_", markersize=12, label=label)
        for seed in by_share:
            axes.scatter(shares, by_share[seed], s=30, color=color, **_POINTS)
    axes.set_xscale("log")
    axes.set_xticks(shares, [f"{100 * share:g} %" for share in shares])
    axes.minorticks_off()
    axes.set_xlabel("share of the training data")
    axes.set_ylabel(f"dev {metric}; points: seeds, lines: means")
    axes.grid(alpha=0.25)
    axes.legend(frameon=False)
    return figure


def draw_layers(title: str, scores: pandas.DataFrame, baseline: str) -> "Figure":
    """
    Draw mean scores by layer, with their standard deviations over seeds: a panel for each measure, a line
    for each biLM, the baseline dashed. `scores`, in percent, has a column for each measure, and rows of
    (vectors, layer, seed): the baseline, and biLMs with the same layers, of which the last is the mean of
    the others. No line connects it.
    """
    groups = scores.groupby(level=[0, 1], sort=False)
    all_means, all_stds = groups.mean(), groups.std().fillna(0.0)
    bilms = [name for name in scores.index.unique(0) if name != baseline]
    layers = list(all_means.loc[bilms[0]].index)
    places = range(len(layers))
    num_panels = len(scores.columns)
    figure, panels = _figure(title, 4.4 * num_panels + 0.6, 4.7, num_panels)
    for axes, measure in zip(panels, scores.columns):
        for bilm, color, side in zip(bilms, (_ELMO_COLOR, _CONTROL_COLOR), (1, -1)):
            means, stds = (list(table.loc[bilm, measure]) for table in (all_means, all_stds))
            axes.errorbar(places, means, stds, color=color, fmt="o", capsize=3, label=bilm)
            axes.plot(places[:-1], means[:-1], color=color)
            for place, mean, std in zip(places, means, stds):
                _write_value(axes, mean, (place, mean + side * std), 11 * side, color)
        mean = all_means.loc[baseline, measure].mean()
        axes.axhline(mean, color=_BASELINE_COLOR, linestyle="--", linewidth=1.2, label=baseline)
        _write_value(axes, mean, (len(layers) - 0.7, mean), 7, _BASELINE_COLOR)
        axes.set_xticks(places, [layer.replace(" (", "\n(") for layer in layers])
        axes.set_xlim(-0.5, len(layers) - 0.5)
        axes.margins(y=0.15)
        axes.set_xlabel("layer; points: means, bars: std over seeds")
        axes.set_ylabel(f"{measure} (%)")
        axes.grid(axis="y", alpha=0.25)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False)
    return figure


def draw_weights(title: str, weights: pandas.DataFrame) -> "Figure":
    """
    Draw the heat map of the paper's figure 2: the share of each layer, a panel for each place, a column for
    each task with gamma below. `weights` has rows of (task, place). Its last column is gamma, the others
    are the shares of the layers, missing where a biLM has fewer.
    """
    *layers, gamma = weights.columns
    tables = {place: weights.xs(place, level=1) for place in weights.index.unique(1)}
    widths = [len(table) for table in tables.values()]
    width, height = 1.6 + 1.1 * sum(widths) + 0.5 * len(tables), 1.7 + 0.65 * len(layers)
    figure, panels = _figure(title, width, height, len(tables), width_ratios=widths)
    largest = weights[layers].max().max()
    for axes, (place, table) in zip(panels, tables.items()):
        shares = table[layers].to_numpy(float).T  # (num_layers, num_tasks)
        image = axes.imshow(shares, cmap="Blues", vmin=0.0, vmax=largest, aspect="auto")
        for (layer, column), share in numpy.ndenumerate(shares):
            if not numpy.isnan(share):
                color = "white" if share > _DARK * largest else "black"
                axes.text(column, layer, f"{share:.2f}", ha="center", va="center", color=color)
        gammas = table[gamma].items()
        labels = [f"{textwrap.fill(task, _COLUMN_WIDTH)}\nγ {value:.2f}" for task, value in gammas]
        axes.set_xticks(range(len(table)), labels)
        axes.set_yticks(range(len(layers)), [layer.removeprefix("layer ") for layer in layers])
        axes.invert_yaxis()  # the last layer on top, as in the paper
        axes.tick_params(length=0)
        axes.set_title(place, fontsize="medium")
    panels[0].set_ylabel("layer")
    figure.colorbar(image, ax=list(panels), label="share of the layer")
    return figure


def _figure(
    title: str, width: float, height: float, num_panels: int = 1, **options: Any
) -> Tuple["Figure", List["Axes"]]:
    """Return a figure with this title and the panels side by side."""
    # Not pyplot, which keeps figures and may look for a screen.
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    figure.suptitle(title)
    return figure, list(figure.subplots(1, num_panels, squeeze=False, **options)[0])


def _write_value(
    axes: "Axes", value: float, position: Tuple[float, float], offset: float, color: str
) -> None:
    """Write a number above a point by an offset in points, on white."""
    axes.annotate(
        f"{value:.1f}",
        position,
        (0, offset),
        textcoords="offset points",
        ha="center",
        va="center",
        fontsize="small",
        color=color,
        bbox={"boxstyle": "square,pad=0.1", "facecolor": "white", "linewidth": 0},
    )
