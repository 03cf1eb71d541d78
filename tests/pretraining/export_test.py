"""Exports of biLMs. Those of task models, and facts of cards: tests/compat/archives_test.py."""

import shutil
from pathlib import Path
from typing import Any, Dict, List

import h5py
import pytest
import torch
import yaml
from allennlp.models import Model, load_archive
from allennlp.modules.elmo import Elmo as AllenNlpElmo

from elmo_plugin import BiLM, batch_to_ids
from elmo_plugin.bilm.character_encoder import Highway
from elmo_plugin.commands.main import main
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.pretraining.export import _validation, export_model
from elmo_plugin.pretraining.model import BiLMTrainingModel
from elmo_plugin.pretraining.starting_point import start_in
from tests.closeness import assert_accurate, assert_close
from tests.conftest import SENTENCES, TINY_OPTIONS
from tests.pretraining.conftest import FIXTURES, HELD_OUT, num_terms, train


def test_the_exported_bilm_is_the_trained_one(pretrained: Path) -> None:
    options_file, weight_file, vocabulary_file = (
        pretrained / "export" / name for name in ("options.json", "weights.hdf5", "vocab.txt")
    )
    trained = load_archive(pretrained / "run" / "model.tar.gz").model
    exported = BiLM.from_files(options_file, weight_file)
    character_ids = batch_to_ids(SENTENCES)
    with torch.no_grad():
        expected = trained.bilm(character_ids)["activations"]
    terms = num_terms(steps=max(map(len, SENTENCES)) + 2)
    for ours, theirs in zip(exported(character_ids)["activations"], expected, strict=True):
        assert_close(ours, theirs, terms=terms)
    # And for AllenNLP.
    elmo = AllenNlpElmo(str(options_file), str(weight_file), 1, dropout=0.0)
    (representation,) = elmo(character_ids)["elmo_representations"]
    assert_accurate(representation[0], torch.stack(expected).mean(dim=0)[0, 1:-1])
    assert vocabulary_file.read_text() == (FIXTURES / "lm" / "vocab.txt").read_text()
    with h5py.File(weight_file) as weights:
        assert torch.equal(torch.from_numpy(weights["softmax/W"][...]), trained.softmax.weight)
        assert torch.equal(torch.from_numpy(weights["softmax/b"][...]), trained.softmax.bias)


def test_the_command_writes_float16_and_prints_the_files(
    pretrained: Path, tmp_path: Path, capsys: Any
) -> None:
    # Metrics are known beside an archive only.
    archive_file = shutil.copy(pretrained / "run" / "model.tar.gz", tmp_path)
    output = tmp_path / "new" / "export"
    main(["export", str(archive_file), str(output), "--dtype", "float16"])
    assert str(output / "weights.hdf5") in capsys.readouterr().out
    with h5py.File(output / "weights.hdf5") as weights:
        assert weights["char_embed"].dtype == "float16"
    num_parameters = sum(weight.numel() for weight in BiLM.from_files(output).parameters())
    card = (output / "README.md").read_text()
    head = yaml.safe_load(card.split("---")[1])
    assert head == {"library_name": "allennlp", "tags": ["elmo", "elmo_bilm"]}
    facts = card.partition("## Config")[0]
    assert f"- {num_parameters:,} parameters\n" in facts and "perplexity" not in facts


def test_weights_and_the_words_of_another_model_are_never_together(
    pretrained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive_file = pretrained / "run" / "model.tar.gz"
    names = ("options.json", "weights.hdf5", "vocab.txt")
    for name in names:
        (tmp_path / name).write_text("old")

    def interrupted(*arguments: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as context, pytest.raises(KeyboardInterrupt):
        context.setattr(BiLM, "save", interrupted)
        export_model(archive_file, tmp_path, overwrite=True)
    assert {path.name for path in tmp_path.iterdir()} == set(names)
    assert all((tmp_path / name).read_text() == "old" for name in names)
    export_model(archive_file, tmp_path, overwrite=True)
    for name in names:
        assert (tmp_path / name).read_bytes() == (pretrained / "export" / name).read_bytes()


@Model.register("test_changed_bilm", constructor="from_partial_objects")
class ChangedBiLM(BiLMTrainingModel):
    """Trains a biLM whose highways are of a derived class, as CONTRIBUTING.md says."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for highway in self.bilm.character_encoder.highways:
            highway.__class__ = type("OtherHighway", (Highway,), {})


def test_a_changed_bilm_is_trained_and_not_exported(tmp_path: Path) -> None:
    overrides = {"train_data_path": HELD_OUT, "trainer.num_epochs": 1, "trainer.callbacks": []}
    settings = {"dropout": 0.3, "state_reset": 0.2, "softmax_first": 2}
    keys: Dict[str, Any] = {f"model.{name}": value for name, value in settings.items()}
    keys["model.regularizer"] = {"regexes": [["softmax", {"type": "l2", "alpha": 0.1}]]}
    train(tmp_path / "run", **overrides, **keys, **{"model.type": "test_changed_bilm"})
    archive_file = tmp_path / "run" / "model.tar.gz"
    trained = load_archive(archive_file).model
    assert {name: getattr(trained, name) for name in settings} == settings
    assert trained.get_regularization_penalty() > 0
    with pytest.raises(
        ConfigurationError, match=r"cannot be saved: its .*highways\.0 is of class Oth"
    ):
        export_model(archive_file, tmp_path / "export")
    assert not list((tmp_path / "export").iterdir())


def train_tagger(folder: Path, **overrides: Any) -> Any:
    experiment = FIXTURES / "ner" / "tiny" / "experiment_elmo.jsonnet"
    return train(folder, experiment, **{"trainer.num_epochs": 1, **overrides})


def test_a_task_archive_with_a_model_of_elmoformanylangs(tmp_path: Path) -> None:
    """Its biLM is not exported; the task model is, and needs no other files."""
    bilm = shutil.copytree(FIXTURES / "bilm" / "many_langs" / "both", tmp_path / "bilm")
    elmo = {"options_file": str(bilm), "weight_file": None}
    overrides = {f"model.text_encoder.elmo.{key}": value for key, value in elmo.items()}
    model = train_tagger(tmp_path / "run", **overrides)
    shutil.rmtree(bilm)
    with pytest.raises(ConfigurationError, match="its biLM is a model of ELMoForManyLangs, expec"):
        export_model(tmp_path / "run" / "model.tar.gz", tmp_path / "export")
    assert not (tmp_path / "export").exists()
    export_model(tmp_path / "run" / "model.tar.gz", tmp_path / "tagger", task_model=True)
    exported = load_archive(tmp_path / "tagger").model
    for mine, theirs in zip(exported.parameters(), model.parameters(), strict=True):
        assert torch.equal(mine, theirs)
    elmos = [one.text_encoder.elmo.elmo.eval() for one in (exported, model)]
    ours, expected = (one(batch_to_ids(SENTENCES))["elmo_representations"] for one in elmos)
    # The archive runs as a snapshot, the trained model as modules.
    assert_accurate(ours, expected)


def test_the_bilm_of_a_task_archive(tmp_path: Path) -> None:
    train_tagger(tmp_path / "run")
    (tmp_path / "export").mkdir()
    (tmp_path / "export" / "vocab.txt").write_text("of another model")
    files = export_model(tmp_path / "run" / "model.tar.gz", tmp_path / "export", overwrite=True)
    assert not (tmp_path / "export" / "vocab.txt").exists()
    assert [file.name for file in files] == ["options.json", "weights.hdf5", "README.md"]
    with pytest.raises(ConfigurationError, match=r"options\.json is a file, expected a folder"):
        export_model("not/loaded", files[0])
    original = BiLM.from_files(FIXTURES / "bilm" / "tiny")
    exported = BiLM.from_files(*files[:2])
    for mine, theirs in zip(exported.parameters(), original.parameters(), strict=True):
        assert torch.equal(mine, theirs)


def test_scores_are_not_those_of_a_file_in_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("metrics.json").write_text('{"best_epoch": 3, "best_validation_accuracy": 0.123}')
    *_, card = export_model("elmo_ner_small", "export", task_model=True)
    assert "best epoch" not in card.read_text()
    archive = tmp_path / "of_another" / "model.tar.gz"
    archive.parent.mkdir()
    archive.touch()
    (archive.parent / "metrics.json").write_text("[]")
    with pytest.raises(ConfigurationError, match=r"metrics\.json: found no JSON object"):
        _validation({}, archive)
    shutil.copy("metrics.json", archive.parent)
    found = _validation({"validation_data_path": "dev.txt"}, archive)
    assert found == ["- best epoch 4, on `dev.txt`: accuracy 0.123"]  # AllenNLP counts from 0


@pytest.mark.parametrize(
    "names, found", [([], r"0 biLMs \(none\)"), (["a", "b"], r"2 biLMs \(a, b\)")]
)
def test_a_model_without_one_bilm_is_refused(names: List[str], found: str) -> None:
    model = torch.nn.ModuleDict({name: BiLM(TINY_OPTIONS) for name in names})
    with pytest.raises(
        ConfigurationError, match=f"model.tar.gz: the model holds {found}, expected one"
    ):
        start_in(model, "model.tar.gz")
