"""`perplexity`: training is faked but in the last test."""

import json
import shlex
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any, Dict, List

import pytest
from allennlp.commands.train import train_model_from_file

from elmo_plugin.bilm.model_files import PRETRAINED_FOLDER
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.pretraining import LMVocabulary
from elmo_plugin.report import perplexity
from elmo_plugin.report.figures import draw_perplexities
from elmo_plugin.report.perplexity import (
    PerplexityOptions,
    Start,
    compare_perplexities,
    prepare_experiment,
    prepare_start,
)
from elmo_plugin.report.runs import RunOptions
from elmo_plugin.report.tables import Report, ReportTable
from elmo_plugin.report.task_text import TaskText, TextFiles
from elmo_plugin.report.variants import Experiment
from tests.conftest import BiLMFiles
from tests.report.conftest import FakeTraining

REPOSITORY = Path(__file__).parents[2]
CONFIG = str(REPOSITORY / "training_configs" / "bilm_finetune.jsonnet")
LM_FIXTURE = REPOSITORY / "fixtures" / "lm"

# What a run leaves: 200 before; after, 100 and its seed.
FAKE_RUN = """
import json, pathlib, sys
folder, fails = pathlib.Path(sys.argv[1]), json.loads(sys.argv[3])
config = json.loads(pathlib.Path(sys.argv[2]).read_text())
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
    (tmp_path / "trees.txt").write_text("(2 (2 a) (2 film))\n")
    lines = [str(tmp_path / name) for name in ("train.txt", "heldout.txt")]
    trees = str(tmp_path / "trees.txt")
    return [TaskText("mine", "lines", *lines), TaskText("sst", "trees", trees, trees)]


@pytest.fixture
def options(texts: List[TaskText], tmp_path: Path) -> PerplexityOptions:
    runs = RunOptions(output=str(tmp_path / "results"), seeds=(1, 3), jobs=1)
    return PerplexityOptions(text=tuple(texts), config=CONFIG, runs=runs)


def changed(options: PerplexityOptions, **changes: Any) -> PerplexityOptions:
    """With other values of the report's options or of its runs'."""
    own = {name: changes.pop(name) for name in ("text", "bilm", "config") if name in changes}
    return replace(options, runs=replace(options.runs, **changes), **own)


def report_of(options: PerplexityOptions) -> Report:
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
        report = report_of(options)
        suffixes = [".md", ".csv", ".json", ".png", ".svg"]
        assert [path.name for path in report.files] == [f"perplexity{end}" for end in suffixes]
        assert all(path.is_file() for path in report.files)
        mine, sst = as_dicts(report.tables[0])
        assert mine == {
            "text": "mine",
            "biLM": "elmo_mini",
            "training words": 4,
            "held-out words": 3,
            "seeds": 2,
            "before": 200.0,
            "after": 102.0,
            "std": 1.41,
            "after / before": 0.51,
            "forward before": 190.0,
            "forward after": 92.0,
            "backward before": 210.0,
            "backward after": 112.0,
            "minutes": 1.5,
        }
        assert sst["text"] == "sst"
        assert training.started == [
            *("perplexity-mine-elmo_mini-seed1", "perplexity-mine-elmo_mini-seed3"),
            *("perplexity-sst-elmo_mini-seed1", "perplexity-sst-elmo_mini-seed3"),
        ]

    def test_other_text_is_not_taken_for_a_run_of_the_old(
        self, training: FakeTraining, options: PerplexityOptions
    ) -> None:
        compare_perplexities(options)
        Path(options.text[0].train).write_text("other words\n")
        with pytest.raises(ConfigurationError, match="on other data: train_data_path"):
            compare_perplexities(options)
        training.started.clear()
        row = as_dicts(table_of(changed(options, overwrite=True)))[0]
        assert row["training words"] == 2
        assert [name.split("-")[1] for name in training.started] == ["mine", "mine"]

    def test_a_failed_run_is_reported_and_the_others_are_kept(
        self, training: FakeTraining, options: PerplexityOptions
    ) -> None:
        training.failing = {
            "perplexity-mine-elmo_mini-seed1",
            "perplexity-sst-elmo_mini-seed1",
            "perplexity-sst-elmo_mini-seed3",
        }
        report = report_of(options)
        assert len(report.failures) == 3
        assert "seed1: ValueError: this run was to fail" in report.failures[0]
        mine, sst = as_dicts(report.tables[0])
        assert (mine["after"], mine["std"]) == (103.0, None)
        assert (sst["before"], sst["after"], sst["minutes"]) == ("failed", "failed", None)
        assert "mine-elmo_mini-seed1: ValueError: this run" in report.tables[0].notes[-3]

    def test_if_all_runs_fail_there_is_no_picture(
        self, training: FakeTraining, options: PerplexityOptions
    ) -> None:
        training.failing = {f"perplexity-mine-elmo_mini-seed{seed}" for seed in (1, 3)}
        report = report_of(changed(options, text=options.text[:1]))
        assert [path.suffix for path in report.files] == [".md", ".csv", ".json"]

    def test_a_dry_run_prints_the_commands_of_written_configs(
        self, options: PerplexityOptions, capsys: Any
    ) -> None:
        assert compare_perplexities(changed(options, dry_run=True)) is None
        lines = capsys.readouterr().out.splitlines()
        assert len(lines) == 4
        words = shlex.split(lines[0])
        config = words[words.index("train") + 1]
        assert json.loads(Path(config).read_text())["model"]["options_file"] == "elmo_mini"
        assert not list(Path(options.runs.output).glob("perplexity*"))

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

        def draw(*arguments: Any) -> Any:
            drawn.append(draw_perplexities(*arguments))
            return drawn[-1]

        monkeypatch.setattr(perplexity, "draw_perplexities", draw)
        table = table_of(changed(options, bilm=("elmo_mini", "./mine"), seeds=(1,)))
        assert [row[:2] for row in table.rows] == [
            *(["mine", "elmo_mini"], ["sst", "elmo_mini"], ["mine", "./mine"], ["sst", "./mine"])
        ]
        (axes,) = drawn[0].axes
        labels = [label.get_text() for label in axes.get_yticklabels()]
        assert labels[::3] == ["mine\nelmo_mini", "sst\n./mine"]
        assert [line.get_label() for line in axes.lines] == ["here"]

    def test_the_papers_figures_are_shown_for_pairs(
        self, training: FakeTraining, options: PerplexityOptions, tmp_path: Path
    ) -> None:
        (tmp_path / "snli.jsonl").write_text('{"sentence1": "A man .", "sentence2": "Men ."}\n')
        text = TaskText("snli", "pairs", *[str(tmp_path / "snli.jsonl")] * 2)
        snli, mine = as_dicts(table_of(changed(options, text=(text, options.text[0]), seeds=(1,))))
        names = ("paper's text", "paper before", "paper after")
        assert [snli[name] for name in names] == ["SNLI", 72.1, 16.8]
        assert [mine[name] for name in names] == [None] * 3

    @pytest.mark.parametrize(
        "changes, message",
        [
            ({"text": ()}, "--text: found none, expected one or more"),
            ({"text": (TaskText("a", "lines", "b", "c"),) * 2}, "--text: found a, expected one"),
            ({"text": (TaskText("a/b", "lines", "b", "c"),)}, "found the name 'a/b', expected let"),
            ({"bilm": ("a/b", "a_b")}, "--bilm: found a_b, expected one or more, each of a"),
            ({"text": (TaskText("a", "poems", "b", "c"),)}, "found the kind 'poems', expected one"),
        ],
    )
    def test_options_that_make_no_comparison_are_refused(
        self, changes: Dict[str, Any], message: str, options: PerplexityOptions
    ) -> None:
        with pytest.raises(ConfigurationError, match=message):
            compare_perplexities(changed(options, **changes))

    def test_the_last_text_is_checked_before_the_first_is_trained(
        self, training: FakeTraining, options: PerplexityOptions
    ) -> None:
        wrong = TaskText("wrong", "trees", options.text[0].train, options.text[0].heldout)
        with pytest.raises(ConfigurationError, match=r"train\.txt, line 1"):
            compare_perplexities(changed(options, text=(*options.text, wrong)))
        assert training.started == []


class TestPrepareStart:
    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        """A biLM with its softmax, as `elmo-export` writes it."""
        return Path(shutil.copytree(PRETRAINED_FOLDER / "elmo_mini", tmp_path / "my_bilm"))

    def test_a_name_stays_a_name(self, tmp_path: Path) -> None:
        start = prepare_start("elmo_mini", tmp_path)
        assert start == Start("elmo_mini", "elmo_mini", tmp_path / "elmo_mini-vocab.txt")
        expected = LMVocabulary.from_file("elmo_mini").words
        assert LMVocabulary.from_file(start.vocabulary_file).words == expected

    def test_a_slash_distinguishes_a_folder_from_a_name(
        self, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(folder.parent)
        assert prepare_start("my_bilm", tmp_path).variable == "./my_bilm"
        assert prepare_start(f"{folder}/", tmp_path).variable == str(folder)

    def test_without_a_softmax_nothing_is_predicted(
        self, bilm_files: BiLMFiles, tmp_path: Path
    ) -> None:
        folder = tmp_path / "published"
        folder.mkdir()
        shutil.copy(bilm_files.options_file, folder / "options.json")
        shutil.copy(bilm_files.weight_file, folder / "weights.hdf5")
        with pytest.raises(ConfigurationError, match="published: found no softmax, expected the"):
            prepare_start(str(folder), tmp_path)

    def test_a_softmax_without_words_is_refused(self, folder: Path, tmp_path: Path) -> None:
        (folder / "vocab.txt").unlink()
        with pytest.raises(
            ConfigurationError, match=r"found no vocab\.txt beside its weights, exp"
        ):
            prepare_start(str(folder), tmp_path)


class TestPrepareExperiment:
    def prepare(self, options: PerplexityOptions, **changes: Any) -> Experiment:
        folder = options.runs.runs_folder
        folder.mkdir(parents=True, exist_ok=True)
        start = Start("mine", changes.pop("variable", "elmo_mini"), Path("vocab.txt"))
        files = TextFiles(Path("texts/train.txt"), Path("texts/heldout.txt"), 2, 1)
        return prepare_experiment(changed(options, **changes), start, options.text[0], files)

    def test_the_config_is_evaluated_for_the_bilm_and_the_text(
        self, options: PerplexityOptions
    ) -> None:
        experiment = self.prepare(options, overrides={"trainer.num_epochs": 7})
        config = experiment.config
        assert config["train_data_path"] == ["texts/train.txt"]
        assert config["validation_data_path"] == ["texts/heldout.txt"]
        assert config["model"]["options_file"] == "elmo_mini"
        assert config["vocabulary"]["vocabulary_file"] == "vocab.txt"
        assert config["trainer"]["num_epochs"] == 7
        assert experiment.metric == "perplexity" and not experiment.is_larger_better
        archive = self.prepare(options, variable="run/model.tar.gz")
        assert archive.config["model"]["archive_file"] == "run/model.tar.gz"

    def test_a_config_that_does_not_measure_before_is_refused(
        self, options: PerplexityOptions
    ) -> None:
        overrides = {"trainer.callbacks": ["elmo_bilm_state"]}
        with pytest.raises(ConfigurationError, match=r"callbacks is \['elmo_bilm_state'\], expec"):
            self.prepare(options, overrides=overrides)


@pytest.mark.slow
def test_a_bilm_gains_on_the_text_that_it_is_trained_on(tmp_path: Path) -> None:
    pretraining = {"trainer.num_epochs": 1, "trainer.callbacks": []}
    train_model_from_file(
        LM_FIXTURE / "experiment.jsonnet", tmp_path / "start", overrides=json.dumps(pretraining)
    )
    held_out = str(LM_FIXTURE / "heldout.txt")
    runs = RunOptions(
        output=str(tmp_path / "results"),
        seeds=(1,),
        overrides={
            "model.softmax.num_samples": 64,
            "data_loader.rows": 4,
            "validation_data_loader.rows": 4,
        },
    )
    options = PerplexityOptions(
        text=(TaskText("novel", "lines", held_out, held_out),),
        bilm=(str(tmp_path / "start" / "model.tar.gz"),),
        config=CONFIG,
        runs=runs,
    )
    (row,) = as_dicts(table_of(options))
    metrics = json.loads((tmp_path / "start" / "metrics.json").read_text())
    # Rows of other numbers end elsewhere in the streams.
    assert row["before"] == pytest.approx(metrics["validation_perplexity"], rel=0.1)
    assert row["after"] < 0.99 * row["before"]
