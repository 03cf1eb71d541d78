import argparse
import json
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any, Callable, Dict, List

import pytest
from allennlp.common.checks import ConfigurationError

from elmo_plugin.report import wsd as wsd_module
from elmo_plugin.report.probe_options import ProbeOptions
from elmo_plugin.report.report_table import ReportTable, read_table
from elmo_plugin.report.wsd import WSD, SenseOptions, compare_senses
from tests.conftest import TINY_OPTIONS, BiLMFiles

pytest.importorskip("matplotlib")

# Beside "bank" stands a word that says which one is meant.
CONTEXTS = {"money": "loan", "river": "water"}
LAYERS = ["0 (characters)", "1", "2", "mean of all"]


def bank_lines(num_sentences: int) -> List[Dict[str, Any]]:
    lines = []
    for number in range(num_sentences):
        sense = "river" if number % 3 == 0 else "money"
        tokens = [CONTEXTS[sense], "bank", f"x{number}"]
        lines.append({"tokens": tokens, "index": 1, "sense": sense})
    return lines


@pytest.fixture
def files(tmp_path: Path) -> List[str]:
    paths = []
    for name, count in (("bank", 30), ("shore", 24)):
        path = tmp_path / f"{name}.jsonl"
        path.write_text("".join(f"{json.dumps(line)}\n" for line in bank_lines(count)))
        paths.append(str(path))
    return paths


@pytest.fixture
def options(files: List[str], tmp_path: Path, bilm_files: BiLMFiles) -> SenseOptions:
    probe = ProbeOptions(str(tmp_path / "results"), None, *bilm_files, seeds=(1, 2))
    return SenseOptions(files, probe, folds=3)


def table_of(options: SenseOptions, name: str = "wsd") -> ReportTable:
    return read_table(Path(options.probe.output) / f"{name}.json")


def column(table: ReportTable, name: str) -> List[Any]:
    return [row[table.columns.index(name)] for row in table.rows]


class TestCompareSenses:
    def test_there_is_a_row_for_each_layer_and_the_baseline(self, options: SenseOptions) -> None:
        compare_senses(options)
        table = table_of(options)
        mine = options.probe.bilm_name
        names = ["most frequent sense", *[mine] * 4, *["random weights"] * 4]
        assert column(table, "vectors") == names
        assert column(table, "layer") == ["", *LAYERS, *LAYERS]
        *means, _, balanced, balanced_std, paper = table.rows[0][2:]
        assert means == pytest.approx([200 / 3] * 3, abs=1.0)  # folds are not all of one size
        assert (balanced, balanced_std, paper) == (50.0, 0.0, 65.9)

    def test_context_tells_senses_in_the_lstm_layers_alone(self, options: SenseOptions) -> None:
        compare_senses(options)
        table = table_of(options)
        accuracies = dict(zip(column(table, "layer")[1:5], column(table, "mean (%)")[1:5]))
        # Characters are the same everywhere, so that the most frequent sense is given.
        assert accuracies["0 (characters)"] == column(table, "mean (%)")[0]
        assert accuracies["1"] > 90 and accuracies["2"] > 90

    def test_the_mean_is_over_words_and_the_deviation_over_all_parts(
        self, options: SenseOptions
    ) -> None:
        compare_senses(options)
        table = table_of(options)
        for row in table.rows:
            assert row[4] == pytest.approx((row[2] + row[3]) / 2, abs=0.011)
        words = table_of(options, "wsd-words")
        assert [row[:3] for row in words.rows[::9]] == [["bank", 30, 2], ["shore", 24, 2]]
        assert column(words, "accuracy (%)")[:9] == column(table, "bank (%)")
        assert any(std > 0 for std in column(words, "std"))

    def test_everything_is_written_and_named(self, options: SenseOptions) -> None:
        written = compare_senses(options)
        output = Path(options.probe.output)
        assert sorted(written) == sorted(output.iterdir())
        names = {path.name for path in written}
        assert names == {
            *("wsd.md", "wsd.csv", "wsd.json", "wsd.png", "wsd.svg"),
            *("wsd-words.md", "wsd-words.csv", "wsd-words.json"),
        }

    def test_the_same_command_gives_the_same_table(self, options: SenseOptions) -> None:
        compare_senses(options)
        first = table_of(options)
        compare_senses(options)
        assert table_of(options) == first
        compare_senses(options._replace(probe=options.probe._replace(seeds=(3, 4))))
        assert table_of(options).rows != first.rows

    def test_the_settings_say_what_was_measured(self, options: SenseOptions) -> None:
        compare_senses(options)
        settings = table_of(options).settings
        assert settings["test parts"] == "3 folds"
        assert settings["data"][options.files[0]] == "30 occurrences, 2 senses"
        arguments = argparse.ArgumentParser()
        WSD().add_arguments(arguments)
        args = arguments.parse_args(shlex.split(settings["command"])[3:])
        assert (args.files, args.folds, args.seeds) == (options.files, 3, [1, 2])

    def test_a_test_share_is_measured_once_for_each_seed(self, options: SenseOptions) -> None:
        one_seed = options._replace(test_share=0.5, probe=options.probe._replace(seeds=(1,)))
        compare_senses(one_seed)
        table = table_of(options)
        assert set(column(table, "std")) == {None}
        assert table.settings["test parts"] == "a share of 0.5"
        assert "--test-share 0.5" in table.settings["command"]

    def test_without_control_there_are_no_random_weights(self, options: SenseOptions) -> None:
        compare_senses(options._replace(probe=options.probe._replace(control=False)))
        assert "random weights" not in column(table_of(options), "vectors")
        assert table_of(options).settings["command"].endswith("--no-control")

    def test_distance_and_centring_reach_the_measure(
        self, options: SenseOptions, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        calls = set()
        original = wsd_module.nearest_senses

        def spy(*arguments: Any) -> List[str]:
            calls.add(arguments[3:])
            return original(*arguments)

        monkeypatch.setattr(wsd_module, "nearest_senses", spy)
        compare_senses(options._replace(distance="euclidean", centre=True))
        assert calls == {("euclidean", True)}
        settings = table_of(options).settings
        assert (settings["distance"], settings["centred"]) == ("euclidean", True)
        assert "--distance euclidean --centre" in settings["command"]

    def test_rare_senses_that_are_left_out_are_named(
        self, options: SenseOptions, files: List[str]
    ) -> None:
        with open(files[0], "a") as file:
            file.write('{"tokens": ["bank"], "index": 0, "sense": "tilt"}\n')
        with pytest.raises(ConfigurationError, match=r"the sense 'tilt' has 1 different sentences"):
            compare_senses(options)
        compare_senses(options._replace(min_instances=2))
        table = table_of(options)
        assert "left out, with their occurrences: bank: tilt (1)." in table.notes[-1]
        assert "--min-instances 2" in table.settings["command"]

    @pytest.mark.parametrize("num_layers, paper", [(2, [65.9, 67.4, 69.0]), (1, [])])
    def test_the_papers_scores_stand_beside_two_lstm_layers(
        self,
        num_layers: int,
        paper: List[float],
        options: SenseOptions,
        write_bilm: Callable[..., BiLMFiles],
    ) -> None:
        sizes = replace(TINY_OPTIONS, num_layers=num_layers)
        files = write_bilm(sizes, name="other")._asdict()
        compare_senses(options._replace(probe=options.probe._replace(**files)))
        scores = column(table_of(options), "paper, F1 (%)")
        assert [score for score in scores if score is not None] == paper

    @pytest.mark.parametrize(
        "changes, message",
        [
            ({"folds": 1}, "--folds: found 1, expected 2 or more"),
            ({"test_share": 1.0}, "--test-share: found 1.0, expected a share"),
            ({"test_share": 0.0}, "--test-share: found 0.0, expected a share"),
            ({"min_instances": 0}, "--min-instances: found 0, expected 1 or more"),
            ({"distance": "manhattan"}, "--distance: found manhattan, expected one of cosine, eu"),
        ],
    )
    def test_options_that_make_no_comparison_are_refused(
        self, changes: Dict[str, Any], message: str, options: SenseOptions
    ) -> None:
        with pytest.raises(ConfigurationError, match=message):
            compare_senses(options._replace(**changes))

    def test_files_are_checked_before_a_bilm_is_loaded(self, options: SenseOptions) -> None:
        probe = options.probe._replace(weight_file="not there")
        same = options._replace(probe=probe, files=[options.files[0]] * 2)
        with pytest.raises(ConfigurationError, match="would be called 'bank'"):
            compare_senses(same)


def test_the_command_measures_and_prints_what_it_wrote(options: SenseOptions, capsys: Any) -> None:
    parser = argparse.ArgumentParser()
    subreport = WSD()
    subreport.add_arguments(parser)
    probe = options.probe
    assert probe.options_file is not None and probe.weight_file is not None
    arguments = [*options.files, "-s", probe.output, "--folds", "2", "--seeds", "1"]
    files = ["--options-file", probe.options_file, "--weight-file", probe.weight_file]
    subreport.run(parser.parse_args([*arguments, *files]))
    printed = capsys.readouterr().out.splitlines()
    assert f"{probe.output}/wsd.md" in printed and f"{probe.output}/wsd.svg" in printed
    assert table_of(options).settings["test parts"] == "2 folds"
