import argparse
import shlex
from pathlib import Path
from typing import Any, Dict, List

import pytest
from allennlp.common.checks import ConfigurationError

from elmo_plugin.report import linear_probe
from elmo_plugin.report import pos as pos_module
from elmo_plugin.report.pos import POS, PosOptions, compare_tags
from elmo_plugin.report.probe_options import ProbeOptions
from elmo_plugin.report.report_table import ReportTable, read_table
from tests.conftest import BiLMFiles

pytest.importorskip("matplotlib")

LAYERS = ["0 (characters)", "1", "2", "mean of all"]
# "run" is a noun after "a" and a verb after "they": only its context tells.
TEMPLATES = [
    [("a", "DT"), ("run", "NN")],
    [("they", "PRP"), ("run", "VB")],
    [("a", "DT"), ("dog", "NN"), ("ate", "VB")],
]


def write(path: Path, num_sentences: int, first: int = 0) -> str:
    lines = ["#begin document (d); part 000"]
    for number in range(first, first + num_sentences):
        words = [*TEMPLATES[number % 3], (f"n{number}", "CD")]
        for position, (word, tag) in enumerate(words):
            lines.append(f"d 0 {position} {word} {tag} * - - - - * -")
        lines.append("")
    path.write_text("\n".join([*lines, "#end document", ""]))
    return str(path)


@pytest.fixture
def options(tmp_path: Path, bilm_files: BiLMFiles) -> PosOptions:
    return PosOptions(
        ProbeOptions(str(tmp_path / "results"), None, *bilm_files, seeds=(1, 2)),
        train=[write(tmp_path / "train.gold_conll", 120)],
        test=[write(tmp_path / "test.gold_conll", 30, first=200)],
        max_train_sentences=80,
        strengths=(1.0,),
    )


def table_of(options: PosOptions) -> ReportTable:
    return read_table(Path(options.probe.output) / "pos.json")


def column(table: ReportTable, name: str) -> List[Any]:
    return [row[table.columns.index(name)] for row in table.rows]


class TestCompareTags:
    def test_there_is_a_row_for_each_layer_and_the_baseline(self, options: PosOptions) -> None:
        compare_tags(options)
        table = table_of(options)
        mine = options.probe.bilm_name
        names = ["most frequent tag of the word", *[mine] * 4, *["random weights"] * 4]
        assert column(table, "vectors") == names
        assert column(table, "layer") == ["", *LAYERS, *LAYERS]
        paper = [None, None, 97.3, 96.8, None, *[None] * 4]
        assert column(table, "paper, WSJ (%)") == paper

    def test_the_baseline_knows_the_words_but_not_their_context(self, options: PosOptions) -> None:
        compare_tags(options)
        accuracy, _, unseen = table_of(options).rows[0][2:5]
        # 10 of each template: 100 words, of which 10 are "run" with its rarer tag. The 30 numbers are unseen,
        # and theirs is the most frequent tag.
        assert accuracy == 90.0
        assert unseen == 100.0

    def test_lstm_layers_read_the_context(self, options: PosOptions) -> None:
        compare_tags(options)
        table = table_of(options)
        accuracies = dict(zip(LAYERS, column(table, "accuracy (%)")[1:5]))
        # Characters tell numbers from words, but not one "run" from the other.
        assert accuracies["0 (characters)"] == 90.0
        assert accuracies["1"] > 95.0

    def test_table_and_picture_are_written(self, options: PosOptions) -> None:
        written = compare_tags(options)
        assert sorted(written) == sorted(Path(options.probe.output).iterdir())
        suffixes = [".md", ".csv", ".json", ".png", ".svg"]
        assert [path.name for path in written] == [f"pos{suffix}" for suffix in suffixes]

    def test_each_seed_chooses_its_regularization(self, options: PosOptions) -> None:
        compare_tags(options._replace(strengths=(0.001, 1.0)))
        chosen = column(table_of(options), "C")
        assert chosen[0] == "" and "1, 1" in chosen
        assert set(chosen[1:]) <= {"1, 1", "0.001, 1", "1, 0.001", "0.001, 0.001"}

    def test_the_same_command_gives_the_same_table(self, options: PosOptions) -> None:
        compare_tags(options)
        first = table_of(options)
        compare_tags(options)
        assert table_of(options) == first
        compare_tags(options._replace(probe=options.probe._replace(seeds=(3, 4))))
        assert table_of(options).rows != first.rows

    def test_the_settings_say_what_was_measured(self, options: PosOptions) -> None:
        compare_tags(options)
        settings = table_of(options).settings
        assert settings["sentences, first seed"] == {"training": 72, "held_out": 8, "test": 30}
        assert settings["words, first seed"]["test"] == 100
        parser = argparse.ArgumentParser()
        POS().add_arguments(parser)
        args = parser.parse_args(shlex.split(settings["command"])[3:])
        assert (args.train, args.test) == (options.train, options.test)
        assert (args.files, args.max_train_sentences) == ([], 80)
        assert args.strengths == list(options.strengths)

    def test_files_are_divided_by_the_seed(self, options: PosOptions, tmp_path: Path) -> None:
        path = write(tmp_path / "all.gold_conll", 100)
        compare_tags(options._replace(files=[path], train=[], test=[], test_share=0.3))
        settings = table_of(options).settings
        assert settings["sentences, first seed"] == {"training": 63, "held_out": 7, "test": 30}
        assert f"pos {path} --test-share 0.3" in settings["command"]

    def test_test_and_training_part_have_no_sentence_in_common(self, options: PosOptions) -> None:
        divided = options._replace(files=options.train, train=[], test=[])
        for division in pos_module._divisions(divided).values():
            # The last word of each is its own.
            parts = [{sentence.words[-1] for sentence in part} for part in division]
            assert [len(part) for part in parts] == [72, 8, 24]
            assert len(set.union(*parts)) == 72 + 8 + 24

    def test_without_unseen_words_there_is_no_score_of_them(
        self, options: PosOptions, tmp_path: Path
    ) -> None:
        lines = Path(options.train[0]).read_text().splitlines()
        known = [line for line in lines if " n" not in line]
        for name in ("train", "test"):
            (tmp_path / f"{name}_known.gold_conll").write_text("\n".join([*known, ""]))
        files = [[str(tmp_path / f"{name}_known.gold_conll")] for name in ("train", "test")]
        compare_tags(options._replace(train=files[0], test=files[1]))
        assert set(column(table_of(options), "unseen words (%)")) == {None}

    def test_classifiers_that_were_stopped_are_named(
        self, options: PosOptions, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(linear_probe, "LEAST_GAIN", -1.0)  # never
        monkeypatch.setattr(linear_probe, "_MAX_ITERATIONS", linear_probe.ITERATIONS)
        one = options.probe._replace(seeds=(5,), control=False)
        compare_tags(options._replace(probe=one))
        note = table_of(options).notes[-1]
        assert note.startswith("Stopped before they had converged: seed 5, ")
        assert note.endswith("layer mean of all.")

    @pytest.mark.parametrize(
        "changes, message",
        [
            ({"train": []}, r"Found FILE \[\], --train \[\], --test .*either files"),
            ({"test": []}, r"Found FILE \[\], --train .*, --test \[\], expected either"),
            ({"files": ["a"]}, r"Found FILE \['a'\], --train .*, expected either"),
            ({"train": [], "test": []}, r"Found FILE \[\], .*expected either"),
            ({"train": ["a", "b"], "test": ["b"]}, "--train and --test: b is given to both"),
            ({"test_share": 1.0}, "--test-share: found 1.0, expected"),
            ({"max_train_sentences": 9}, "--max-train-sentences: found 9, expected 10 or more"),
            ({"strengths": []}, r"--strengths: found \[\], expected one or more positive"),
            ({"strengths": [1.0, 0.0]}, "--strengths: found .* positive numbers"),
            ({"strengths": [float("nan")]}, "--strengths: found .* positive numbers"),
        ],
    )
    def test_options_that_make_no_comparison_are_refused(
        self, changes: Dict[str, Any], message: str, options: PosOptions
    ) -> None:
        with pytest.raises(ConfigurationError, match=message):
            compare_tags(options._replace(**changes))

    def test_too_few_sentences_are_refused_before_a_bilm_is_loaded(
        self, options: PosOptions, tmp_path: Path
    ) -> None:
        probe = options.probe._replace(weight_file="not there")
        path = write(tmp_path / "few.gold_conll", 9)
        message = (
            r"few\.gold_conll: found 9 training sentences, expected at least 10, and thousands"
        )
        with pytest.raises(ConfigurationError, match=message):
            compare_tags(options._replace(probe=probe, train=[path]))


def test_the_command_measures_and_prints_what_it_wrote(options: PosOptions, capsys: Any) -> None:
    parser = argparse.ArgumentParser()
    subreport = POS()
    subreport.add_arguments(parser)
    probe = options.probe
    assert probe.options_file is not None and probe.weight_file is not None
    arguments = ["--train", *options.train, "--test", *options.test, "-s", probe.output]
    files = ["--options-file", probe.options_file, "--weight-file", probe.weight_file]
    further = ["--seeds", "1", "--max-train-sentences", "40", "--strengths", "1", "--no-control"]
    subreport.run(parser.parse_args([*arguments, *files, *further]))
    assert f"{probe.output}/pos.md" in capsys.readouterr().out.splitlines()
    settings = table_of(options).settings
    assert settings["sentences, first seed"]["training"] == 36
    assert len(table_of(options).rows) == 5
