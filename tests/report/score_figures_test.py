"""What pictures of scores show, read from their parts."""

from typing import Any, List

import pytest

from elmo_plugin.report.score_figures import (
    Series,
    draw_curves,
    draw_shares,
    draw_variants,
    there,
)

pytest.importorskip("matplotlib")


def labels(ticks: List[Any]) -> List[str]:
    return [tick.get_text() for tick in ticks]


def points(axes: Any) -> List[List[float]]:
    return [offset for part in axes.collections for offset in part.get_offsets().tolist()]


def test_variants_have_a_point_for_each_seed_and_their_mean() -> None:
    figure = draw_variants(
        "Which layers", "f1 (%)", {"no ELMo": [30.0, 32.0], "last": [], "all": [50.0]}
    )
    (axes,) = figure.axes
    assert labels(axes.get_yticklabels()) == ["no ELMo", "last", "all"]
    assert points(axes) == [[30.0, 0.0], [32.0, 0.0], [50.0, 2.0]]
    assert [text.get_text() for text in axes.texts] == ["31.0", "50.0"]
    assert axes.get_ylim()[0] > axes.get_ylim()[1]  # the first on top
    assert axes.get_xlabel().startswith("dev f1 (%)")


def test_shares_are_on_a_logarithmic_axis() -> None:
    series = [
        Series("no ELMo", True, [[10.0, 14.0], []]),
        Series("ELMo", False, [[20.0], [50.0, 52.0]]),
    ]
    figure = draw_shares("How much data", "f1 (%)", [0.01, 1.0], series)
    (axes,) = figure.axes
    assert axes.get_xscale() == "log"
    assert labels(axes.get_xticklabels()) == ["1 %", "100 %"]
    lines = {line.get_label(): line.get_xydata().tolist() for line in axes.lines}
    assert lines == {"no ELMo": [[0.01, 12.0]], "ELMo": [[0.01, 20.0], [1.0, 51.0]]}
    assert sorted(points(axes)) == [
        *([0.01, 10.0], [0.01, 14.0], [0.01, 20.0], [1.0, 50.0], [1.0, 52.0])
    ]


@pytest.mark.parametrize("is_larger_better, best", [(True, [2.0, 30.0]), (False, [1.0, 20.0])])
def test_curves_have_a_panel_for_each_share_and_mark_the_best(
    is_larger_better: bool, best: List[float]
) -> None:
    panels = [
        [Series("no ELMo", True, [[20.0, 30.0, 25.0]]), Series("ELMo", False, [])],
        [Series("no ELMo", True, [[1.0], [2.0]]), Series("ELMo", False, [[3.0]])],
    ]
    figure = draw_curves("How many epochs", "f1 (%)", is_larger_better, [0.1, 1.0], panels)
    first, second = figure.axes
    assert first.get_title() == "10 % of the training data"
    assert first.lines[0].get_xydata().tolist() == [[1.0, 20.0], [2.0, 30.0], [3.0, 25.0]]
    assert points(first) == [best]
    assert len(second.lines) == 3
    # Each once, though there are two seeds; and of a panel that has all.
    assert labels(figure.legends[0].get_texts()) == ["no ELMo", "ELMo"]
    assert first.get_ylabel() == "dev f1 (%)"


def test_runs_that_failed_have_no_points() -> None:
    assert there([1.0, None, 2.0]) == [1.0, 2.0]
