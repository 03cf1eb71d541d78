"""Figures show the numbers of their tables: points at the scores of seeds, bars and lines at means."""

import itertools
import math
from typing import Any, List, Tuple

import numpy
import pandas

from elmo_plugin.report.figures import draw_layers, draw_shares, draw_variants
from tests.closeness import assert_close

NAN = math.nan


def places(collection: Any) -> List[Tuple[float, float]]:
    """Return the places of the points that are drawn."""
    offsets = numpy.ma.filled(collection.get_offsets(), NAN).tolist()
    return [(x, y) for x, y in offsets if not math.isnan(x + y)]


def test_variants_have_a_point_for_each_seed_and_a_bar_at_the_mean() -> None:
    names = ["no ELMo", "ELMo", "failed"]
    scores = pandas.DataFrame([[50.0, 54.0], [60.0, NAN], [NAN, NAN]], names, columns=[1, 2])
    (axes,) = draw_variants("Variants", "F1", scores).axes
    assert [label.get_text() for label in axes.get_yticklabels()] == names
    points, bars = axes.collections[::2], axes.collections[1::2]
    assert [places(one) for one in points] == [[(50.0, 0.0), (54.0, 0.0)], [(60.0, 1.0)], []]
    at_means = [bar.get_segments()[0][:, 0].tolist() for bar in bars[:2]]
    assert at_means == [[52.0, 52.0], [60.0, 60.0]]
    (baseline,) = axes.lines
    assert list(baseline.get_xdata()) == [52.0, 52.0]
    assert [text.get_text() for text in axes.texts] == ["52.0", "60.0"]


def test_shares_have_lines_at_means_and_a_point_for_each_seed() -> None:
    rows = pandas.MultiIndex.from_product([[0.1, 1.0], ["no ELMo", "ELMo"]])
    scores = pandas.DataFrame([[10, 14], [20, NAN], [30, 34], [40, 44]], rows, [1, 2])
    (axes,) = draw_shares("Shares", "F1", scores).axes
    lines = {line.get_label(): line.get_xydata().tolist() for line in axes.lines}
    assert lines == {
        "no ELMo": [[0.1, 12.0], [1.0, 32.0]],
        "ELMo": [[0.1, 20.0], [1.0, 42.0]],
    }
    assert [places(one) for one in axes.collections] == [
        [(0.1, 10.0), (1.0, 30.0)],
        [(0.1, 14.0), (1.0, 34.0)],
        [(0.1, 20.0), (1.0, 40.0)],
        [(1.0, 44.0)],
    ]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["10 %", "100 %"]


def test_layers_have_means_with_their_standard_deviations_and_the_baseline() -> None:
    layers = ["0 (characters)", "1", "mean of all"]
    rows = [("frequent", "", seed) for seed in (1, 2)]
    bilms = itertools.product(("mini", "random"), layers, (1, 2))
    # Two seeds that differ by 2 have a standard deviation of sqrt(2).
    means = [50.0, 61.0, 62.0, 63.0, 71.0, 72.0, 73.0]
    values = [mean + difference for mean in means for difference in (-1.0, 1.0)]
    scores = pandas.DataFrame({"accuracy": values}, pandas.MultiIndex.from_tuples([*rows, *bilms]))
    (axes,) = draw_layers("Layers", scores, "frequent").axes
    assert axes.get_xlabel() == "layer; points: means, bars: std over seeds"
    bars = {one.get_label(): one.lines for one in axes.containers}
    assert list(bars) == ["mini", "random"]
    for name, first in (("mini", 61.0), ("random", 71.0)):
        data, _, (deviations,) = bars[name]
        assert data.get_xydata().tolist() == [[place, first + place] for place in range(3)]
        for place, segment in enumerate(deviations.get_segments()):
            ends = [first + place - math.sqrt(2), first + place + math.sqrt(2)]
            assert_close(segment[:, 1], ends, 2)
    # No line connects the mean of the layers.
    lines = {
        style: [one for one in axes.lines if one.get_linestyle() == style] for style in ("-", "--")
    }
    assert [list(line.get_ydata()) for line in lines["-"]] == [[61.0, 62.0], [71.0, 72.0]]
    (dashed,) = lines["--"]
    assert (dashed.get_label(), list(dashed.get_ydata())) == ("frequent", [50.0, 50.0])
