"""The heat map of the paper's figure 2."""

from typing import Any, Dict, List, Tuple

from elmo_plugin.report.figures import figure_class

_COLOR_MAP = "Blues"
_LONG_NAME = 12  # characters that a column has room for
_DARK = 0.6  # of the colour map; on darker fields letters are white


def draw_weights(
    weights: Dict[Tuple[str, str], List[float]], gammas: Dict[Tuple[str, str], float]
) -> Any:
    """
    Draw the share of each layer, a panel for each place, with a column for each task; gamma stands below.

    # Parameters

    weights : `Dict[Tuple[str, str], List[float]]`
        The shares, by task and place.
    gammas : `Dict[Tuple[str, str], float]`
        The scales, by the same keys.

    # Returns

    A `matplotlib.figure.Figure`.
    """
    places = list(dict.fromkeys(place for _, place in weights))
    tasks_at = {place: [task for task, at in weights if at == place] for place in places}
    num_layers = max(len(shares) for shares in weights.values())
    widths = [len(tasks_at[place]) for place in places]
    figure = figure_class()(
        figsize=(1.6 + 1.1 * sum(widths) + 0.5 * len(places), 1.7 + 0.65 * num_layers),
        layout="constrained",
    )
    all_axes = figure.subplots(1, len(places), squeeze=False, width_ratios=widths)[0]
    largest = max(max(shares) for shares in weights.values())
    for axes, place in zip(all_axes, places):
        columns = [weights[task, place] for task in tasks_at[place]]
        grid = [
            [column[layer] if layer < len(column) else float("nan") for column in columns]
            for layer in range(num_layers)
        ]
        image = axes.imshow(grid, cmap=_COLOR_MAP, vmin=0.0, vmax=largest, aspect="auto")
        for index, column in enumerate(columns):
            for layer, share in enumerate(column):
                color = "white" if share > _DARK * largest else "black"
                axes.text(index, layer, f"{share:.2f}", ha="center", va="center", color=color)
        labels = [f"{task}\nγ {gammas[task, place]:.2f}" for task in tasks_at[place]]
        is_long = max(len(task) for task in tasks_at[place]) > _LONG_NAME
        axes.set_xticks(
            range(len(columns)),
            labels,
            rotation=30 if is_long else 0,
            ha="right" if is_long else "center",
        )
        axes.set_yticks(range(num_layers), [str(layer) for layer in range(num_layers)])
        axes.invert_yaxis()  # the last layer on top, as in the paper
        axes.tick_params(length=0)
        axes.set_title(place, fontsize="medium")
    all_axes[0].set_ylabel("layer")
    figure.colorbar(image, ax=list(all_axes), label="share of the layer")
    figure.suptitle("Which layers tasks learn to use")
    return figure
