"""`perplexity`: training is faked but in the slow test; and the text in the data of tasks."""

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
    TEXT_KINDS,
    PerplexityOptions,
    TaskText,
    TextFiles,
    compare_perplexities,
    write_task_text,
    write_vocabulary,
)
from tests.conftest import BiLMFiles
from tests.report.conftest import REPOSITORY, FakeTraining, tables_of

CONFIG = str(REPOSITORY / "training_configs" / "bilm_finetune.jsonnet")
LM_FIXTURE = REPOSITORY / "fixtures" / "lm"


@pytest.fixture
def options(tmp_path: Path) -> PerplexityOptions:
    (tmp_path / "train.txt").write_text("a film\nno film\n")
    (tmp_path / "heldout.txt").write_text("a film .\n")
    (tmp_path / "trees.txt").write_text("(2 (2 a) (2 film))\n")
    lines = [str(tmp_path / name) for name in ("train.txt", "heldout.txt")]
    texts = (
        TaskText("mine", "lines", *lines),
        TaskText("sst", "trees", *[str(tmp_path / "trees.txt")] * 2),
    )
    output = str(tmp_path / "results")
    return PerplexityOptions(text=texts, config=CONFIG, output=output, seeds=(1, 3), jobs=1)


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
    rows = rows_of(replace(options, bilm=("elmo_mini", "./other")))
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
    changes = {"bilm": ("my_bilm",), "overrides": {"trainer.num_epochs": 7}}
    assert compare_perplexities(replace(options, dry_run=True, **changes)) is None
    (config_file,) = options.runs_folder.glob("perplexity-mine-*-seed1.json")
    mine = json.loads(config_file.read_text())
    assert mine["model"]["options_file"] == "my_bilm"
    assert mine["trainer"]["num_epochs"] == 7
    (train,), (held_out,) = mine["train_data_path"], mine["validation_data_path"]
    assert Path(train).read_text() == "a film\nno film\n"
    assert Path(held_out).read_text() == "a film .\n"
    words = LMVocabulary.from_file(mine["vocabulary"]["vocabulary_file"]).words
    assert words == LMVocabulary.from_file("elmo_mini").words


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"text": ()}, "--text: found none, expected one or more"),
        ({"text": (TaskText("a", "lines", "b", "c"),) * 2}, "--text: found a, a, expected one or"),
        ({"text": (TaskText("a/b", "lines", "b", "c"),)}, "found the name 'a/b', expected let"),
        ({"bilm": ("a/b", "a_b")}, "--bilm: found a_b, a_b, expected one or more different"),
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
    held_out = str(LM_FIXTURE / "heldout.txt")
    overrides = {
        "model.softmax.num_samples": 64,
        "data_loader.rows": 4,
        "validation_data_loader.rows": 4,
    }
    options = PerplexityOptions(
        text=(TaskText("novel", "lines", held_out, held_out),),
        bilm=(str(tmp_path / "start" / "model.tar.gz"),),
        config=CONFIG,
        output=str(tmp_path / "results"),
        seeds=(1,),
        overrides=overrides,
    )
    (row,) = rows_of(options)
    metrics = json.loads((tmp_path / "start" / "metrics.json").read_text())
    # Not the same number: other rows end elsewhere in the streams.
    assert 0.9 < row["before"] / metrics["validation_perplexity"] < 1.1
    assert row["after"] < 0.99 * row["before"]


# A no-break space is a part of a word.
TREES = "(3 (2 8\u00a01\\/2) (4 (3 -LRB-) (2 film)))\n(1 Bad)\n(1 Bad)\n"
PAIRS = [
    {"sentence1": "A man sleeps.", "sentence2": "He's outside.", "gold_label": "neutral"},
    {"sentence1": "A man sleeps.", "sentence2": "A man\n sleeps.", "gold_label": "-"},
]
CONLL_2012 = """#begin document (d); part 000
d 0 0 The DT * - - - - * -
d 0 1 cat NN * - - - - * -

d 0 0 Yes UH * - - - - * -

#end document
"""
CONLL_2003 = "-DOCSTART- -X- O O\n\nAda -X- O I-PER\nslept -X- O O\n\nYes -X- O O\n"
QUESTIONS = [
    {"id": "1", "question": "Did it?", "answers": []},
    {"id": "2", "question": "Where?", "answers": []},
]
SQUAD = {"data": [{"paragraphs": [{"context": "It rained.  In Paris!", "qas": QUESTIONS}]}]}
# Of each kind: a file, and the text in it.
DATA: Dict[str, tuple] = {
    "lines": ("a  b\n\nc d\na b\n", ["a b", "c d"]),
    "trees": (TREES, ["8\u00a01/2 ( film", "Bad"]),
    "pairs": ("\n".join(map(json.dumps, PAIRS)), ["A man sleeps .", "He 's outside ."]),
    "conll2012": (CONLL_2012, ["The cat", "Yes"]),
    "conll2003": (CONLL_2003, ["Ada slept", "Yes"]),
    "squad-contexts": (json.dumps(SQUAD), ["It rained . In Paris !"]),
    "squad-questions": (json.dumps(SQUAD), ["Did it ?", "Where ?"]),
}


def text_files(kind: str, folder: Path, train: str, held_out: str) -> TextFiles:
    """Write the data of a task, and the text in them."""
    paths = [folder / "train", folder / "heldout"]
    for path, content in zip(paths, (train, held_out)):
        path.write_text(content, encoding="utf-8")
    return write_task_text(TaskText("name", kind, *map(str, paths)), folder / "texts")


@pytest.mark.parametrize("kind", TEXT_KINDS)
def test_each_sentence_of_the_data_is_written_once(kind: str, tmp_path: Path) -> None:
    content, expected = DATA[kind]
    files = text_files(kind, tmp_path, content, content)
    for text_file in (files.train, files.held_out):
        assert text_file.read_text(encoding="utf-8").splitlines() == expected
    num_words = sum(len(sentence.split(" ")) for sentence in expected)
    assert (files.num_train_words, files.num_held_out_words) == (num_words, num_words)


def test_other_text_has_another_folder_and_the_same_text_the_same(tmp_path: Path) -> None:
    texts = [("a b\n", "c\n"), ("a b\n", "c\n"), ("a b\n", "d\n"), ("a b\nc\n", "d\n")]
    folders = [text_files("lines", tmp_path, *text).train for text in texts]
    assert folders[0] == folders[1]
    assert len(set(folders)) == 3


@pytest.mark.parametrize(
    "kind, content, message",
    [
        *[(kind, "\n\n", "train") for kind in TEXT_KINDS],
        ("snli", "", "found the kind 'snli', expected one of lines, tr"),
        ("conll2003", "-DOCSTART- -X- O O\n", "train"),
        ("pairs", '{"sentence1": "A"}\n', r"train, line 1: .*'sentence2'.*Correct the line"),
        ("trees", "a film\n", "train, line 1"),
    ],
)
def test_what_is_no_text_of_this_kind_is_refused(
    kind: str, content: str, message: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        text_files(kind, tmp_path, content, content)
