"""Training that starts from files or from an archive."""

import json
import shutil
from pathlib import Path
from typing import Any, Dict, List

import pytest
import torch
from allennlp.models import Model, load_archive

from elmo_plugin import BiLM
from elmo_plugin.bilm.lm_vocabulary import LMVocabulary
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.pretraining.starting_point import load_start, save_bilm
from tests.closeness import assert_close
from tests.conftest import BiLMFiles
from tests.pretraining.conftest import FIXTURES, HELD_OUT, VOCABULARY_FILE, num_terms, train

WORDS = LMVocabulary.from_file(VOCABULARY_FILE).words


def train_from(start: Dict[str, Any], folder: Path, **overrides: Any) -> Model:
    """Train with keys of the model in place of the sizes of a new biLM."""
    changes = {
        # Overrides merge: a removed key must be null.
        "model.options": None,
        **{f"model.{key}": value for key, value in start.items()},
        "trainer.num_epochs": 1,
        "trainer.callbacks": ["elmo_validate_first", "elmo_bilm_state"],
        "train_data_path": HELD_OUT,
    }
    return train(folder, **{**changes, **overrides})


def perplexities(folder: Path) -> List[float]:
    """Return those before training and after it."""
    before = json.loads((folder / "metrics_before.json").read_text())
    after = json.loads((folder / "metrics.json").read_text())
    return [before["perplexity"], after["validation_perplexity"]]


def assert_same_bilm(ours: BiLM, theirs: BiLM) -> None:
    for name, parameter in theirs.named_parameters():
        assert torch.equal(ours.get_parameter(name), parameter), name  # copied


def start_of(kind: str, pretrained: Path) -> Dict[str, str]:
    if kind == "archive":
        return {"archive_file": str(pretrained / "run" / "model.tar.gz")}
    names = {"options_file": "options.json", "weight_file": "weights.hdf5"}
    return {key: str(pretrained / "export" / name) for key, name in names.items()}


@pytest.mark.parametrize("kind", ["archive", "files"])
def test_a_start_that_is_saved_is_loaded_again(kind: str, pretrained: Path, tmp_path: Path) -> None:
    names = {"archive": "run/model.tar.gz", "files": "export"}
    start = load_start(str(pretrained / names[kind]))
    save_bilm(start, tmp_path)
    saved = load_start(str(tmp_path))
    assert_same_bilm(saved.bilm, start.bilm)
    assert saved.words == start.words == WORDS
    assert saved.softmax is not None and start.softmax is not None
    assert torch.equal(saved.softmax.weight, start.softmax.weight)
    assert torch.equal(saved.softmax.bias, start.softmax.bias)


# Of files: the tests of `load_start` above, and of other words below.
def test_training_continues_where_pretraining_ended(pretrained: Path, tmp_path: Path) -> None:
    shutil.copytree(pretrained, tmp_path / "pretrained")
    model = train_from(start_of("archive", tmp_path / "pretrained"), tmp_path / "run")
    pretraining = json.loads((pretrained / "run" / "metrics.json").read_text())
    before, after = perplexities(tmp_path / "run")
    # The same ten steps of windows of the same biLM. Outputs of a step are at most 1.
    terms = num_terms(steps=10, num_words=len(WORDS))
    logs = torch.tensor([before, pretraining["validation_perplexity"]]).double().log()
    assert_close(logs[0], logs[1], terms=terms, scale=1.0, dtype=torch.float32)
    assert after < before
    # The archive of the new model needs neither files nor archive.
    shutil.rmtree(tmp_path / "pretrained")
    loaded = load_archive(tmp_path / "run" / "model.tar.gz").model
    for name, tensor in model.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], tensor), name


def test_a_missing_softmax_is_logged_and_learned_first(
    bilm_files: BiLMFiles, tmp_path: Path
) -> None:
    model = train_from(bilm_files._asdict(), tmp_path / "run")
    log = (tmp_path / "run" / "out.log").read_text()
    assert "weights.hdf5 has no softmax: a new softmax is learned; the biLM is frozen in" in log
    assert model.softmax_first == 500
    # Also when it is loaded again, as a recovered training does.
    assert load_archive(tmp_path / "run" / "model.tar.gz").model.softmax_first == 500
    # The epoch had fewer batches.
    assert_same_bilm(model.bilm, BiLM.from_files(*bilm_files))
    before, after = perplexities(tmp_path / "run")
    assert after < before


def test_after_the_softmax_the_bilm_trains(bilm_files: BiLMFiles, tmp_path: Path) -> None:
    model = train_from({**bilm_files._asdict(), "softmax_first": 3}, tmp_path / "run")
    for name, parameter in BiLM.from_files(*bilm_files).named_parameters():
        assert not torch.equal(model.bilm.get_parameter(name), parameter), name


def test_the_bilm_of_a_task_model_is_a_start(pretrained: Path, tmp_path: Path) -> None:
    overrides = {
        "model.text_encoder.elmo": {**start_of("files", pretrained), "requires_grad": True},
        "dataset_reader.token_indexers.elmo": {"type": "elmo_characters"},
        "trainer.num_epochs": 1,
    }
    config = FIXTURES / "ner" / "tiny" / "experiment.jsonnet"
    tagger = train(tmp_path / "tagger", config, **overrides)
    start = {"archive_file": str(tmp_path / "tagger" / "model.tar.gz")}
    model = train_from(start, tmp_path / "run")
    assert_same_bilm(model.bilm, tagger.text_encoder.elmo.elmo.bilm)


SWAPPED = [*WORDS[:10], WORDS[11], WORDS[10], *WORDS[12:]]


@pytest.mark.parametrize(
    "kind, words, message",
    [
        ("archive", SWAPPED, f"found '{WORDS[10]}' in line 11, expected '{WORDS[11]}'"),
        ("files", WORDS[:-1], f"found {len(WORDS)} words, expected"),
        ("files without words", WORDS, "has a softmax, but no vocab.txt beside its weights"),
        (
            "files with fewer words",
            WORDS,
            f"has {len(WORDS) - 1} words, expected the {len(WORDS)} ",
        ),
    ],
)
def test_other_words_are_refused(
    kind: str, words: List[str], message: str, pretrained: Path, tmp_path: Path
) -> None:
    vocabulary = tmp_path / "other.txt"
    LMVocabulary(words).to_file(vocabulary)
    keys = ("dataset_reader.vocabulary_file", "vocabulary.vocabulary_file")
    other = dict.fromkeys(keys, str(vocabulary))
    if kind.startswith("files with"):
        pretrained = shutil.copytree(pretrained, tmp_path / "pretrained")
        beside_weights = pretrained / "export" / "vocab.txt"
        beside_weights.unlink()
        if kind == "files with fewer words":
            LMVocabulary(WORDS[:-1]).to_file(beside_weights)
    with pytest.raises(ConfigurationError, match=message):
        train_from(start_of(kind, pretrained), tmp_path / "refused", **other)


@pytest.mark.parametrize(
    "model, message",
    [
        ({}, "found no options, options_file None"),
        ({"archive_file": "a", "weight_file": "b"}, "expected one of three"),
        ({"archive_file": "no/such.tar.gz"}, "no/such.tar.gz: cannot be loaded as an archive"),
        ({"options_file": "no/such.json"}, "no/such.json: no such model, expected elmo_mini"),
    ],
)
def test_an_unclear_start_is_refused(model: Dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=message):
        train_from(model, tmp_path)


def test_a_recovered_run_is_not_validated_first_again(pretrained: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    train_from(start_of("files", pretrained), folder)
    (folder / "metrics_before.json").unlink()
    config = json.loads((folder / "config.json").read_text())
    config["trainer"]["num_epochs"] = 2
    (folder / "config.json").write_text(json.dumps(config))
    train(folder, folder / "config.json", recover=True)
    assert (folder / "metrics_epoch_1.json").is_file()
    assert not (folder / "metrics_before.json").exists()
