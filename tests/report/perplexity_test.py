"""`perplexity`: training is faked but in the slow test."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any, Dict, List

import pytest
from allennlp.commands.train import train_model_from_file

from elmo_plugin.bilm.lm_vocabulary import LMVocabulary
from elmo_plugin.bilm.model_files import PRETRAINED_FOLDER
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.report.perplexity import (
    PerplexityOptions,
    TaskText,
    TextFiles,
    compare_perplexities,
    write_task_text,
    write_vocabulary,
)
from tests.conftest import BiLMFiles
from tests.report.conftest import REPOSITORY, FakeTraining, tables_of

LM_FIXTURE = REPOSITORY / "fixtures" / "lm"
HELD_OUT = str(LM_FIXTURE / "heldout.txt")


@pytest.fixture
def options(tmp_path: Path) -> PerplexityOptions:
    (tmp_path / "train.txt").write_text("a film\nno film\n")
    (tmp_path / "heldout.txt").write_text("a film .\n")
    files = [str(tmp_path / name) for name in ("train.txt", "heldout.txt")]
    texts = TaskText("mine", *files), TaskText("sst", *files)
    output = str(tmp_path / "results")
    return PerplexityOptions(model=("elmo_mini",), text=texts, output=output, seeds=(1, 3), jobs=1)


def rows_of(options: PerplexityOptions) -> List[Dict[str, Any]]:
    (table,) = tables_of(compare_perplexities(options))
    return [dict(zip(table.columns, row)) for row in table.rows]


def test_a_row_has_the_gain_of_a_bilm_on_a_text(
    training: FakeTraining,
    options: PerplexityOptions,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "other").symlink_to(PRETRAINED_FOLDER / "elmo_mini")
    monkeypatch.chdir(tmp_path)
    rows = rows_of(replace(options, model=("elmo_mini", "./other")))
    assert [(row["text"], row["biLM"]) for row in rows] == [
        *(("mine", "elmo_mini"), ("sst", "elmo_mini"), ("mine", "./other"), ("sst", "./other"))
    ]
    assert rows[0] == {
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
        "minutes": 1.51,
    }
    assert training.started == [
        *("perplexity-mine-elmo_mini-seed1", "perplexity-mine-elmo_mini-seed3"),
        *("perplexity-sst-elmo_mini-seed1", "perplexity-sst-elmo_mini-seed3"),
        *("perplexity-mine-other-seed1", "perplexity-mine-other-seed3"),
        *("perplexity-sst-other-seed1", "perplexity-sst-other-seed3"),
    ]
    suffixes = {path.suffix for path in Path(options.output).glob("perplexity.*")}
    assert suffixes == {".md", ".csv", ".json"}


def test_failed_runs_are_reported_and_the_others_are_kept(
    training: FakeTraining, options: PerplexityOptions
) -> None:
    names = ("mine-elmo_mini-seed1", "sst-elmo_mini-seed1", "sst-elmo_mini-seed3")
    training.failing = {f"perplexity-{name}" for name in names}
    report = compare_perplexities(options)
    assert report is not None and len(report.failures) == 3
    (table,) = tables_of(report)
    mine, sst = (dict(zip(table.columns, row)) for row in table.rows)
    assert (mine["after"], mine["std"]) == (103.0, None)
    assert (sst["before"], sst["after"], sst["minutes"]) == ("failed", "failed", None)
    assert "mine-elmo_mini-seed1 failed: allennlp.common" in table.notes[-3]
    training.failing.add("perplexity-mine-elmo_mini-seed3")
    shutil.rmtree(options.output)
    assert [row["after"] for row in rows_of(options)] == ["failed", "failed"]


def test_the_config_is_evaluated_for_the_bilm_and_the_text(
    options: PerplexityOptions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(PRETRAINED_FOLDER / "elmo_mini", tmp_path / "my_bilm")
    monkeypatch.chdir(tmp_path)
    changes = {"model": ("my_bilm",), "overrides": {"trainer.num_epochs": 7}}
    assert compare_perplexities(replace(options, dry_run=True, **changes)) is None
    (config_file,) = options.runs_folder.glob("perplexity-mine-*-seed1.json")
    mine = json.loads(config_file.read_text())
    assert mine["model"]["options_file"] == "my_bilm"
    assert mine["trainer"]["num_epochs"] == 7
    # Of the weights, and of the order of sentences.
    assert mine["pytorch_seed"] == mine["data_loader"]["seed"] == 1
    (train,), (held_out,) = mine["train_data_path"], mine["validation_data_path"]
    assert Path(train).read_text() == "a film\nno film\n"
    assert Path(held_out).read_text() == "a film .\n"
    words = LMVocabulary.from_file(mine["vocabulary"]["vocabulary_file"]).words
    assert words == LMVocabulary.from_file("elmo_mini").words


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"text": ()}, "--text: found none, expected one or more"),
        ({"text": (TaskText("a", "b", "c"),) * 2}, "--text: found a, a, expected one or"),
        ({"text": (TaskText("a/b", "b", "c"),)}, "found the name 'a/b', expected let"),
        ({"text": (TaskText("a", HELD_OUT, HELD_OUT),)}, "--text a: .*heldout.txt is held out, and"),
        ({"text": (TaskText("a", f"{LM_FIXTURE}/*.txt", HELD_OUT),)}, "--text a: .*heldout.txt is"),
        ({"model": ("a/b", "a_b")}, "--model: found a_b, a_b, expected one or more different"),
        ({"overrides": {"trainer.callbacks": ["elmo_bilm_state"]}},
         r"callbacks is \['elmo_bilm_state'\], expec"),
    ],
)  # fmt: skip
def test_options_that_make_no_comparison_are_refused(
    changes: Dict[str, Any], message: str, training: FakeTraining, options: PerplexityOptions
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        compare_perplexities(replace(options, **changes))
    assert training.started == []


@pytest.mark.parametrize(
    "kind, message",
    [
        ("published", "found no softmax, expected the"),
        ("no_words", r"found no vocab\.txt beside its weights, exp"),
    ],
)
def test_a_bilm_that_predicts_no_words_is_refused(
    kind: str, message: str, bilm_files: BiLMFiles, tmp_path: Path
) -> None:
    folder = tmp_path / kind
    shutil.copytree(PRETRAINED_FOLDER / "elmo_mini", folder)
    (folder / "vocab.txt").unlink()
    if kind == "published":
        shutil.copy(bilm_files.options_file, folder / "options.json")
        shutil.copy(bilm_files.weight_file, folder / "weights.hdf5")
    with pytest.raises(ConfigurationError, match=f"{kind}: {message}"):
        write_vocabulary(str(folder), tmp_path)


@pytest.mark.slow
def test_a_bilm_gains_on_the_text_that_it_is_trained_on(tmp_path: Path) -> None:
    pretraining = {"trainer.num_epochs": 1, "trainer.callbacks": []}
    train_model_from_file(
        LM_FIXTURE / "experiment.jsonnet", tmp_path / "start", overrides=json.dumps(pretraining)
    )
    overrides = {
        "model.softmax.num_samples": 64,
        "data_loader.rows": 4,
        # The streams of the pretraining.
        "validation_data_loader.rows": 4,
        "validation_data_loader.unroll_steps": 10,
    }
    options = PerplexityOptions(
        text=(TaskText("novel", str(LM_FIXTURE / "train-*.txt"), HELD_OUT),),
        model=(str(tmp_path / "start" / "model.tar.gz"),),
        output=str(tmp_path / "results"),
        seeds=(1,),
        overrides=overrides,
    )
    (row,) = rows_of(options)
    metrics = json.loads((tmp_path / "start" / "metrics.json").read_text())
    # The table rounds to one decimal.
    assert row["before"] == round(metrics["validation_perplexity"], 1)
    assert row["after"] < row["before"]


def text_files(folder: Path, train: str, held_out: str) -> TextFiles:
    """Write files of a task, and the text in them."""
    paths = [folder / "train", folder / "heldout"]
    for path, content in zip(paths, (train, held_out)):
        path.write_text(content, encoding="utf-8")
    return write_task_text(TaskText("name", *map(str, paths)), folder / "texts")


def test_each_sentence_is_written_once(tmp_path: Path) -> None:
    files = text_files(tmp_path, "a  b\n\nc d\na b\n", "b c d\n")
    assert files.train.read_text(encoding="utf-8") == "a b\nc d\n"
    assert files.held_out.read_text(encoding="utf-8") == "b c d\n"
    assert (files.num_train_words, files.num_held_out_words) == (4, 3)


def test_held_out_sentences_that_were_read_are_left_out(tmp_path: Path) -> None:
    files = text_files(tmp_path, "a b\nc\n", "c\nd e\na  b\n")
    assert files.held_out.read_text(encoding="utf-8") == "d e\n"
    assert files.num_held_out_words == 2
    with pytest.raises(ConfigurationError, match="--text name: all held-out sentences are in the"):
        text_files(tmp_path, "a b\nc\n", "c\n")


def test_other_text_has_another_folder_and_the_same_text_the_same(tmp_path: Path) -> None:
    texts = [("a b\n", "c\n"), ("a b\n", "c\n"), ("a b\n", "d\n"), ("a b\nc\n", "d\n")]
    folders = [text_files(tmp_path, *text).train for text in texts]
    assert folders[0] == folders[1]
    assert len(set(folders)) == 3


def test_files_without_text_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="train: found no sentence"):
        text_files(tmp_path, "\n\n", "a\n")
