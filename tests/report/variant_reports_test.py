"""`layers` and `placement`: training is faked, its results are not."""

import json
import shlex
import sys
from pathlib import Path
from typing import Any, Callable, Dict, List

import pytest
from allennlp.common.checks import ConfigurationError

from elmo_plugin.report.experiment import ELMO_KEY
from elmo_plugin.report.grid import GridOptions
from elmo_plugin.report.layers import compare_layers
from elmo_plugin.report.placement import compare_placements
from elmo_plugin.report.report_table import ReportTable, read_table
from elmo_plugin.report.variant_report import GridReport
from tests.report.conftest import FakeTraining
from tests.report.fake_runs import FAILURE

Options = Callable[..., GridOptions]
pytest.importorskip("matplotlib")


def table_of(report: Any) -> ReportTable:
    assert isinstance(report, GridReport)
    (table,) = report.tables
    return table


def column(table: ReportTable, name: str) -> List[Any]:
    return [row[table.columns.index(name)] for row in table.rows]


class TestLayers:
    def test_the_table_has_every_seed_mean_and_deviation(
        self, training: FakeTraining, options: Options
    ) -> None:
        table = table_of(compare_layers(options()))
        assert (table.name, table.title) == ("layers-ner", "Which layers: ner")
        labels = ["no ELMo", "last layer only", "all layers, λ = 1", "all layers, λ = 0.001"]
        assert column(table, "ELMo") == labels
        assert column(table, "dev f1 (%), seed 1") == [31.0, 46.0, 51.0, 51.0]
        assert column(table, "dev f1 (%), seed 2") == [32.0, 47.0, 52.0, 52.0]
        assert column(table, "dev mean") == [31.5, 46.5, 51.5, 51.5]
        assert column(table, "dev std") == [0.71] * 4
        assert column(table, "test f1 (%), seed 2") == [30.0, 45.0, 50.0, 50.0]
        assert column(table, "test mean") == [29.5, 44.5, 49.5, 49.5]
        assert column(table, "epochs") == [3] * 4
        assert column(table, "minutes") == [1.51] * 4
        assert column(table, "peak GB") == [1.25] * 4
        assert not any("paper" in name for name in table.columns)

    def test_each_variant_is_its_own_run(self, training: FakeTraining, options: Options) -> None:
        compare_layers(options(seeds=[1]))
        assert training.started == [
            *("ner-none-seed1", "ner-input-last-seed1"),
            *("ner-input-l2_1-seed1", "ner-input-l2_0.001-seed1"),
        ]

    def test_table_and_picture_are_written(self, training: FakeTraining, options: Options) -> None:
        report = compare_layers(options())
        assert report is not None and report.failures == []
        folder = Path(options().output)
        assert sorted(report.files) == sorted(folder.glob("layers-ner.*"))
        assert [path.suffix for path in report.files] == [".md", ".csv", ".json", ".png", ".svg"]
        assert read_table(folder / "layers-ner.json") == table_of(report)

    def test_the_settings_say_how_to_make_it_again(
        self, training: FakeTraining, options: Options
    ) -> None:
        overrides = {"trainer.num_epochs": 2}
        given = options(overrides=overrides, name="wikigold", include_packages=["json"])
        table = table_of(compare_layers(given))
        assert table.name == "layers-wikigold"
        words = shlex.split(table.settings["command"])
        assert words[:7] == [
            *("ELMO=elmo_mini", "NER_DATA=data", "NER_SCHEME=IOB1"),
            *("allennlp", "elmo-report", "layers", given.config_file),
        ]
        assert words[7:] == [
            *("-s", given.output, "--name", "wikigold", "--seeds", "1", "2"),
            *("--overrides", json.dumps(overrides), "--include-package", "json"),
        ]
        assert table.settings["seeds"] == [1, 2]
        assert table.settings["train_data_path"] == "data/train.conll"
        assert set(table.settings["versions"]) == {"elmo_plugin", "allennlp", "torch", "python"}

    @pytest.mark.parametrize(
        "task, scores",
        [
            ("snli", [88.1, 89.1, 89.3, 89.5]),
            ("srl", [81.6, 84.1, 84.6, 84.8]),
            ("squad", [80.8, 84.7, 85.0, 85.2]),
        ],
    )
    def test_the_papers_scores_stand_beside(
        self, task: str, scores: List[float], training: FakeTraining, options: Options
    ) -> None:
        overrides = {"trainer.validation_metric": "+f1"}  # what the fake runs measure
        table = table_of(compare_layers(options(task, overrides=overrides)))
        metric = "accuracy" if task == "snli" else "F1"
        assert column(table, f"paper, dev {metric} (%)") == scores

    def test_a_failed_run_is_marked_and_the_others_are_kept(
        self, training: FakeTraining, options: Options
    ) -> None:
        training.failing = {"ner-none-seed1", "ner-input-last-seed1", "ner-input-last-seed2"}
        report = compare_layers(options())
        assert report is not None
        log = f"{options().output}/runs/ner-none-seed1.log"
        assert report.failures[0] == f"ner-none-seed1: {FAILURE} (log: {log})"
        assert len(report.failures) == 3
        table = table_of(report)
        assert column(table, "dev f1 (%), seed 1") == ["failed", "failed", 51.0, 51.0]
        assert column(table, "dev f1 (%), seed 2") == [32.0, "failed", 52.0, 52.0]
        assert column(table, "dev mean") == [32.0, None, 51.5, 51.5]
        assert column(table, "dev std") == [None, None, 0.71, 0.71]
        assert column(table, "test f1 (%), seed 1") == ["failed", "failed", 49.0, 49.0]
        assert column(table, "epochs") == [3, None, 3, 3]
        assert f"ner-none-seed1 failed: {FAILURE} (log: {log})" in table.notes

    def test_a_grid_that_fails_whole_is_a_table_too(
        self, training: FakeTraining, options: Options
    ) -> None:
        training.failing = {
            *("ner-none-seed1", "ner-input-last-seed1"),
            *("ner-input-l2_1-seed1", "ner-input-l2_0.001-seed1"),
        }
        report = compare_layers(options(seeds=[1]))
        assert report is not None and len(report.failures) == 4
        assert column(table_of(report), "dev f1 (%), seed 1") == ["failed"] * 4
        assert len(report.files) == 5

    def test_a_metric_that_is_no_share_stays_as_it_is(
        self, training: FakeTraining, options: Options
    ) -> None:
        # The fake runs measure f1 alone, whatever its sign; less is better here.
        overrides = {"trainer.validation_metric": "-f1"}
        table = table_of(compare_layers(options(overrides=overrides)))
        assert column(table, "dev f1, seed 1") == [0.31, 0.46, 0.51, 0.51]

    def test_a_dry_run_writes_nothing_and_needs_no_matplotlib(
        self, options: Options, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
        assert compare_layers(options(dry_run=True)) is None
        assert len(capsys.readouterr().out.splitlines()) == 8
        assert not Path(options().output).exists()

    def test_a_missing_matplotlib_is_said_before_anything_is_trained(
        self, training: FakeTraining, options: Options, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
        with pytest.raises(ConfigurationError, match="matplotlib cannot be imported"):
            compare_layers(options())
        assert training.started == []

    @pytest.mark.parametrize(
        "overrides, match",
        [
            ({f"{ELMO_KEY}.placement": "none"}, "placement is 'none', expected a config with ELMo"),
            ({f"{ELMO_KEY}.scalar_mix_parameters": [0, 1, 0]}, "fixes the weights of the layers"),
        ],
    )
    def test_a_config_whose_layers_cannot_be_compared_is_refused(
        self, overrides: Dict[str, Any], match: str, training: FakeTraining, options: Options
    ) -> None:
        with pytest.raises(ConfigurationError, match=match):
            compare_layers(options(overrides=overrides))
        assert training.started == []


class TestPlacement:
    def test_elmo_goes_to_each_place(self, training: FakeTraining, options: Options) -> None:
        table = table_of(compare_placements(options()))
        assert table.name == "placement-ner"
        assert column(table, "ELMo") == ["no ELMo", "input", "input and output", "output"]
        assert column(table, "dev mean") == [31.5, 51.5, 61.5, 41.5]
        assert "--placements" not in table.settings["command"]

    def test_some_places_are_enough_in_the_papers_order(
        self, training: FakeTraining, options: Options
    ) -> None:
        table = table_of(compare_placements(options(), ["output", "none"]))
        assert column(table, "ELMo") == ["no ELMo", "output"]
        assert table.settings["command"].endswith("--seeds 1 2 --placements none output")

    def test_the_papers_scores_stand_beside(self, training: FakeTraining, options: Options) -> None:
        table = table_of(compare_placements(options("srl")))
        assert column(table, "paper, dev F1 (%)") == [81.6, 84.7, 84.3, 80.9]

    def test_a_baseline_config_will_do(self, training: FakeTraining, options: Options) -> None:
        overrides = {f"{ELMO_KEY}.placement": "none"}
        assert len(table_of(compare_placements(options(overrides=overrides))).rows) == 4

    def test_runs_that_are_the_same_are_trained_once_for_both_reports(
        self, training: FakeTraining, options: Options
    ) -> None:
        # The config of SRL has lambda = 0.001 and ELMo at the input.
        compare_layers(options("srl", seeds=[1]))
        compare_placements(options("srl", seeds=[1]))
        assert training.started == [
            *("srl-none-seed1", "srl-input-last-seed1", "srl-input-l2_1-seed1", "srl-input-seed1"),
            *("srl-both-seed1", "srl-output-seed1"),
        ]

    @pytest.mark.parametrize("placements", [["inside"], ["none", "none"]])
    def test_other_places_are_refused(self, placements: List[str], options: Options) -> None:
        with pytest.raises(ConfigurationError, match=r"--placements: found .*, expected some of"):
            compare_placements(options(), placements)
