from typing import Any, List

import pytest

from elmo_plugin.report.layer_scores import LayerKey, LayerScores, Measure, draw_layers

KEY = LayerKey("mine", "1")
BASELINE = LayerKey("most frequent", "")


def test_mean_and_deviation_are_over_all_scores() -> None:
    scores = LayerScores()
    for score in (50.0, 60.0, 70.003):
        scores.add(KEY, Measure("accuracy"), score)
    assert scores.mean(KEY, Measure("accuracy")) == pytest.approx(60.001)
    assert scores.cells(KEY, Measure("accuracy")) == [60.0, 10.0]
    assert scores.has(Measure("accuracy")) and not scores.has(Measure("accuracy", "line"))


def test_one_score_has_no_deviation_and_none_no_cells() -> None:
    scores = LayerScores()
    scores.add(KEY, Measure("accuracy", "line"), 12.345)
    assert scores.cells(KEY, Measure("accuracy", "line")) == [12.35, None]
    assert scores.cells(BASELINE, Measure("accuracy", "line")) == [None, None]
    assert not scores.has(Measure("accuracy"))


def test_asking_adds_nothing() -> None:
    scores = LayerScores()
    scores.cells(KEY, Measure("accuracy"))
    assert not scores.has(Measure("accuracy"))


class TestDrawLayers:
    @pytest.fixture
    def figure(self) -> Any:
        pytest.importorskip("matplotlib")
        scores = LayerScores()
        for measure, offset in ((Measure("accuracy"), 0.0), (Measure("other"), 5.0)):
            for name, base in (("mine", 70.0), ("random weights", 40.0)):
                for number, layer in enumerate(["0 (characters)", "1", "mean of all"]):
                    for noise in (-1.0, 1.0):
                        score = base + number + noise + offset
                        scores.add(LayerKey(name, layer), measure, score)
            scores.add(BASELINE, measure, 55.5 + offset)
        return draw_layers(
            "A title",
            scores,
            ["mine", "random weights"],
            ["0 (characters)", "1", "mean of all"],
            {"accuracy": Measure("accuracy"), "the other": Measure("other")},
            BASELINE,
        )

    def test_there_is_a_panel_for_each_measure(self, figure: Any) -> None:
        labels = [axes.get_ylabel() for axes in figure.axes]
        assert labels == ["accuracy (%)", "the other (%)"]
        for axes in figure.axes:
            ticks = [label.get_text() for label in axes.get_xticklabels()]
            assert ticks == ["0\n(characters)", "1", "mean of all"]

    def test_all_means_and_the_baseline_are_written(self, figure: Any) -> None:
        def numbers(axes: Any) -> List[str]:
            return sorted(text.get_text() for text in axes.texts)

        assert numbers(figure.axes[0]) == sorted(
            ["70.0", "71.0", "72.0", "40.0", "41.0", "42.0", "55.5"]
        )
        assert "60.5" in numbers(figure.axes[1])

    def test_no_line_leads_to_the_mean_of_all(self, figure: Any) -> None:
        lines = [line for line in figure.axes[0].lines if len(line.get_xdata()) == 2]
        joined = [list(line.get_xdata()) for line in lines if line.get_linestyle() == "-"]
        assert joined == [[0, 1], [0, 1]]

    def test_the_legend_names_all(self, figure: Any) -> None:
        (legend,) = figure.legends
        names = {text.get_text() for text in legend.get_texts()}
        assert names == {"mine", "random weights", "most frequent"}
