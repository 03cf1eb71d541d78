"""`perplexity`: training is faked but in the last test."""

import argparse
import json
import shlex
from pathlib import Path
from typing import Any, Dict, List

import pytest
from allennlp.commands.train import train_model_from_file
from allennlp.common.checks import ConfigurationError

from elmo_plugin.bilm.model_files import PRETRAINED_FOLDER
from elmo_plugin.report import perplexity
from elmo_plugin.report.perplexity import (
    Perplexity,
    PerplexityOptions,
    TaskText,
    compare_perplexities,
)
from elmo_plugin.report.perplexity_figure import draw_perplexities
from elmo_plugin.report.report_table import ReportTable
from elmo_plugin.report.variant_report import GridReport
from tests.report.conftest import FakeTraining

pytest.importorskip("matplotlib")

REPOSITORY = Path(__file__).parents[2]
CONFIG = str(REPOSITORY / "training_configs" / "bilm_finetune.jsonnet")
LM_FIXTURE = REPOSITORY / "fixtures" / "lm"

# What a run leaves: 200 before; after, 100 and its seed.
FAKE_RUN = """
import json, pathlib, sys
folder, config, fails = pathlib.Path(sys.argv[1]), json.loads(sys.argv[2]), json.loads(sys.argv[3])
folder.mkdir(parents=True, exist_ok=True)
(folder / "config.json").write_text(json.dumps(config))
if fails:
    sys.exit("ValueError: this run was to fail")
def perplexities(prefix, mean):
    names = ("perplexity", "forward_perplexity", "backward_perplexity")
    return {prefix + name: mean + offset for name, offset in zip(names, (0, -10, 10))}
after = 100.0 + config["random_seed"]
(folder / "metrics_before.json").write_text(json.dumps(perplexities("", 200.0)))
(folder / "metrics_epoch_0.json").write_text(json.dumps(perplexities("validation_", after)))
(folder / "metrics.json").write_text(json.dumps({
    **perplexities("best_validation_", after),
    "best_epoch": 0, "epoch": 0, "training_duration": "0:01:30.0", "peak_worker_0_memory_MB": 9.0,
}))
"""


class FakeFineTuning(FakeTraining):
    script = ["-c", FAKE_RUN]


@pytest.fixture
def training(monkeypatch: pytest.MonkeyPatch) -> FakeTraining:
    return FakeFineTuning().installed(monkeypatch)


@pytest.fixture
def texts(tmp_path: Path) -> List[TaskText]:
    (tmp_path / "train.txt").write_text("a film\nno film\n")
    (tmp_path / "heldout.txt").write_text("a film .\n")
    pair = {"sentence1": "A film.", "sentence2": "No film.", "gold_label": "neutral"}
    (tmp_path / "pairs.jsonl").write_text(json.dumps(pair) + "\n")
    lines = [str(tmp_path / name) for name in ("train.txt", "heldout.txt")]
    pairs = str(tmp_path / "pairs.jsonl")
    return [TaskText("mine", "lines", *lines), TaskText("snli", "pairs", pairs, pairs)]


@pytest.fixture
def options(texts: List[TaskText], tmp_path: Path) -> PerplexityOptions:
    return PerplexityOptions(texts, str(tmp_path / "results"), config_file=CONFIG, seeds=(1, 3))


def report_of(options: PerplexityOptions) -> GridReport:
    report = compare_perplexities(options)
    assert report is not None
    return report


def table_of(options: PerplexityOptions) -> ReportTable:
    (table,) = report_of(options).tables
    return table


def as_dicts(table: ReportTable) -> List[Dict[str, Any]]:
    return [dict(zip(table.columns, row)) for row in table.rows]


class TestComparePerplexities:
    def test_a_row_has_what_was_gained_on_a_text(
        self, training: FakeTraining, options: PerplexityOptions
    ) -> None:
        mine, snli = as_dicts(table_of(options))
        assert mine == {
            "text": "mine",
            "biLM": "elmo_mini",
            "training words": 4,
            "held-out words": 3,
            "before": 200.0,
            "after": 102.0,
            "std": 1.41,
            "after / before": 0.51,
            "forward before": 190.0,
            "forward after": 92.0,
            "backward before": 210.0,
            "backward after": 112.0,
            "minutes": 1.5,
            "paper's text": None,
            "paper before": None,
            "paper after": None,
        }
        paper = [snli["paper's text"], snli["paper before"], snli["paper after"]]
        assert paper == ["SNLI", 72.1, 16.8]
        assert training.started == [
            *("perplexity-mine-elmo_mini-seed1", "perplexity-mine-elmo_mini-seed3"),
            *("perplexity-snli-elmo_mini-seed1", "perplexity-snli-elmo_mini-seed3"),
        ]

    def test_table_and_picture_are_written(
        self, training: FakeTraining, options: PerplexityOptions
    ) -> None:
        report = report_of(options)
        suffixes = [".md", ".csv", ".json", ".png", ".svg"]
        assert [path.name for path in report.files] == [f"perplexity{end}" for end in suffixes]
        assert all(path.is_file() for path in report.files)
        assert report.failures == []

    def test_runs_that_are_done_are_not_trained_again(
        self, training: FakeTraining, options: PerplexityOptions
    ) -> None:
        first = table_of(options)
        training.started.clear()
        assert table_of(options) == first
        assert training.started == []

    def test_other_text_is_not_taken_for_a_run_of_the_old(
        self, training: FakeTraining, options: PerplexityOptions
    ) -> None:
        compare_perplexities(options)
        Path(options.texts[0].train).write_text("other words\n")
        with pytest.raises(ConfigurationError, match="is a run of another config: train_data_path"):
            compare_perplexities(options)
        training.started.clear()
        row = as_dicts(table_of(options._replace(overwrite=True)))[0]
        assert row["training words"] == 2
        assert [name.split("-")[1] for name in training.started] == ["mine", "mine"]

    def test_a_failed_run_is_told_and_the_others_are_kept(
        self, training: FakeTraining, options: PerplexityOptions
    ) -> None:
        training.failing = {
            "perplexity-mine-elmo_mini-seed1",
            "perplexity-snli-elmo_mini-seed1",
            "perplexity-snli-elmo_mini-seed3",
        }
        report = report_of(options)
        assert len(report.failures) == 3
        assert "seed1: ValueError: this run was to fail" in report.failures[0]
        mine, snli = as_dicts(report.tables[0])
        assert (mine["after"], mine["std"]) == (103.0, None)
        assert (snli["before"], snli["after"], snli["minutes"]) == ("failed", "failed", None)
        assert report.failures[0] in report.tables[0].notes

    def test_if_all_runs_fail_there_is_no_picture(
        self, training: FakeTraining, options: PerplexityOptions
    ) -> None:
        training.failing = {f"perplexity-mine-elmo_mini-seed{seed}" for seed in (1, 3)}
        report = report_of(options._replace(texts=options.texts[:1]))
        assert [path.suffix for path in report.files] == [".md", ".csv", ".json"]

    def test_a_dry_run_prints_commands_that_need_no_variables(
        self, options: PerplexityOptions, capsys: Any
    ) -> None:
        assert compare_perplexities(options._replace(dry_run=True)) is None
        lines = capsys.readouterr().out.splitlines()
        assert len(lines) == 4
        words = shlex.split(lines[0])
        config = words[words.index("train") + 1]
        assert json.loads(Path(config).read_text())["model"]["options_file"] == "elmo_mini"
        assert not any(word.startswith("LM_") for word in words)
        assert not list(Path(options.output).glob("perplexity*"))

    def test_several_bilms_are_set_apart(
        self,
        training: FakeTraining,
        options: PerplexityOptions,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        (tmp_path / "mine").symlink_to(PRETRAINED_FOLDER / "elmo_mini")
        monkeypatch.chdir(tmp_path)
        drawn: List[Any] = []

        def draw(title: str, texts: Any) -> Any:
            drawn.append(texts)
            return draw_perplexities(title, texts)

        monkeypatch.setattr(perplexity, "draw_perplexities", draw)
        table = table_of(options._replace(bilms=["elmo_mini", "./mine"], seeds=(1,)))
        assert [row[:2] for row in table.rows] == [
            *(["mine", "elmo_mini"], ["snli", "elmo_mini"], ["mine", "./mine"], ["snli", "./mine"])
        ]
        assert [text.label for text in drawn[0]][::3] == ["mine\nelmo_mini", "snli\n./mine"]
        assert [text.paper for text in drawn[0]] == [None, (72.1, 16.8)] * 2

    def test_the_settings_say_how_to_make_it_again(
        self, training: FakeTraining, options: PerplexityOptions
    ) -> None:
        given = options._replace(
            overrides={"trainer.num_epochs": 2}, include_packages=["json"], seeds=(3,)
        )
        settings = table_of(given).settings
        parser = argparse.ArgumentParser()
        Perplexity().add_arguments(parser)
        args = parser.parse_args(shlex.split(settings["command"])[3:])
        assert [TaskText(*text) for text in args.text] == given.texts
        assert (args.output, args.bilm, args.config) == (given.output, ["elmo_mini"], CONFIG)
        assert (args.seeds, args.include_package) == ([3], ["json"])
        assert args.overrides == given.overrides

    @pytest.mark.parametrize(
        "changes, message",
        [
            ({"jobs": 0}, "--jobs: found 0, expected a positive number"),
            ({"seeds": []}, r"--seeds: found \[\], expected one or more"),
            ({"texts": []}, "--text: found none, expected one or more"),
            ({"texts": [TaskText("a", "lines", "b", "c")] * 2}, "--text: found a, a, expected one"),
            ({"texts": [TaskText("a/b", "lines", "b", "c")]}, "found the name 'a/b', expected let"),
            ({"bilms": ["a/b", "a_b"]}, "--bilm: found a_b, a_b, expected one or more, each of a"),
            ({"texts": [TaskText("a", "poems", "b", "c")]}, "found the kind 'poems', expected one"),
        ],
    )
    def test_options_that_make_no_comparison_are_refused(
        self, changes: Dict[str, Any], message: str, options: PerplexityOptions
    ) -> None:
        with pytest.raises(ConfigurationError, match=message):
            compare_perplexities(options._replace(**changes))

    def test_the_last_text_is_checked_before_the_first_is_trained(
        self, training: FakeTraining, options: PerplexityOptions
    ) -> None:
        wrong = TaskText("wrong", "trees", options.texts[0].train, options.texts[0].held_out)
        with pytest.raises(ConfigurationError, match=r"train\.txt, line 1"):
            compare_perplexities(options._replace(texts=[*options.texts, wrong]))
        assert training.started == []


def parsed(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    Perplexity().add_arguments(parser)
    return parser.parse_args(arguments)


def test_the_command_prints_what_it_wrote(
    training: FakeTraining, options: PerplexityOptions, capsys: Any
) -> None:
    arguments = ["--text", *options.texts[1], "-s", options.output, "--config", CONFIG]
    Perplexity().run(parsed(*arguments, "--seeds", "1", "--jobs", "1"))
    assert f"{options.output}/perplexity.md" in capsys.readouterr().out.splitlines()
    assert training.started == ["perplexity-snli-elmo_mini-seed1"]


def test_the_command_fails_if_a_run_failed(
    training: FakeTraining, options: PerplexityOptions
) -> None:
    training.failing = {"perplexity-snli-elmo_mini-seed13"}
    arguments = ["--text", *options.texts[1], "-s", options.output, "--config", CONFIG]
    with pytest.raises(SystemExit, match="1 runs failed"):
        Perplexity().run(parsed(*arguments))
    assert (Path(options.output) / "perplexity.md").is_file()


def test_a_bilm_gains_on_the_text_that_it_is_trained_on(tmp_path: Path) -> None:
    pretraining = {"trainer.num_epochs": 1, "trainer.callbacks": []}
    train_model_from_file(
        LM_FIXTURE / "experiment.jsonnet", tmp_path / "start", overrides=json.dumps(pretraining)
    )
    held_out = str(LM_FIXTURE / "heldout.txt")
    options = PerplexityOptions(
        [TaskText("novel", "lines", held_out, held_out)],
        str(tmp_path / "results"),
        [str(tmp_path / "start" / "model.tar.gz")],
        CONFIG,
        seeds=(1,),
        overrides={
            "model.softmax.num_samples": 64,
            "data_loader.rows": 4,
            "validation_data_loader.rows": 4,
        },
    )
    (row,) = as_dicts(table_of(options))
    metrics = json.loads((tmp_path / "start" / "metrics.json").read_text())
    # Rows of other numbers end elsewhere in the streams.
    assert row["before"] == pytest.approx(metrics["validation_perplexity"], rel=0.1)
    assert row["after"] < 0.99 * row["before"]
