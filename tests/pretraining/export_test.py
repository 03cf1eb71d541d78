import json
import shutil
import sys
from pathlib import Path
from typing import Any, Dict

import h5py
import pytest
import torch
import yaml
from allennlp.commands import main
from allennlp.commands.train import train_model_from_file
from allennlp.models import load_archive
from allennlp.modules.elmo import Elmo as AllenNlpElmo

from elmo_plugin import BiLM, batch_to_ids
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.pretraining.export import export_model
from tests.closeness import assert_close
from tests.conftest import SENTENCES

FIXTURES = Path(__file__).parents[2] / "fixtures"
# To AllenNLP's `Elmo`, as README.md says.
DOCUMENTED_ACCURACY = 1e-5


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The training folder of a biLM that saw a few windows."""
    folder = tmp_path_factory.mktemp("pretrained") / "run"
    overrides: Dict[str, Any] = {
        "train_data_path": str(FIXTURES / "lm" / "heldout.txt"),
        "trainer.num_epochs": 1,
        "trainer.cuda_device": -1,
    }
    train_model_from_file(
        FIXTURES / "lm" / "experiment.jsonnet", folder, overrides=json.dumps(overrides)
    )
    return folder


def test_the_exported_bilm_is_the_trained_one(pretrained: Path, tmp_path: Path) -> None:
    files = export_model(pretrained / "model.tar.gz", tmp_path / "new" / "export")
    assert [file.name for file in files] == [
        "options.json",
        "weights.hdf5",
        "vocab.txt",
        "README.md",
    ]
    trained = load_archive(pretrained / "model.tar.gz").model
    exported = BiLM.from_files(*files[:2])
    character_ids = batch_to_ids(SENTENCES)
    with torch.no_grad():
        expected = trained.bilm(character_ids)["activations"]
    # The widest filter, the highway layer and the projection; for each step of the longest sentence, two
    # layers of an LSTM with 24 cells and 12 outputs.
    steps = max(map(len, SENTENCES)) + 2
    terms = 3 * 4 + 2 * 24 + steps * 2 * (2 * 12 + 24)
    for ours, theirs in zip(exported(character_ids)["activations"], expected):
        assert_close(ours, theirs, terms=terms)
    # And for AllenNLP.
    representation = AllenNlpElmo(*map(str, files[:2]), 1, dropout=0.0)(character_ids)
    mixed = torch.stack(expected).mean(dim=0)[0, 1:-1]
    difference = representation["elmo_representations"][0][0] - mixed
    assert difference.abs().max() < DOCUMENTED_ACCURACY
    assert files[2].read_text() == (FIXTURES / "lm" / "vocab.txt").read_text()
    with h5py.File(files[1]) as weights:
        assert torch.equal(torch.from_numpy(weights["softmax/W"][...]), trained.softmax.weight)
        assert torch.equal(torch.from_numpy(weights["softmax/b"][...]), trained.softmax.bias)


def test_the_card_has_the_known_facts(pretrained: Path, tmp_path: Path) -> None:
    files = export_model(pretrained / "model.tar.gz", tmp_path / "my_model", license="cc0-1.0")
    card = files[-1].read_text()
    head = yaml.safe_load(card.split("---")[1])
    tags = ["elmo", "elmo_bilm"]
    assert head == {"library_name": "allennlp", "license": "cc0-1.0", "tags": tags}
    assert "\n# my_model\n" in card
    num_parameters = sum(weight.numel() for weight in BiLM.from_files(*files[:2]).parameters())
    assert f"- {num_parameters:,} parameters\n" in card
    assert f"- trained on `{FIXTURES / 'lm' / 'heldout.txt'}`" in card
    metrics = json.loads((pretrained / "metrics.json").read_text())
    assert f" perplexity {metrics['best_validation_perplexity']:.4g}, " in card
    # Metrics are known beside an archive only.
    shutil.copy(pretrained / "model.tar.gz", tmp_path / "moved.tar.gz")
    moved_card = export_model(tmp_path / "moved.tar.gz", tmp_path / "moved")[-1].read_text()
    assert "license" not in yaml.safe_load(moved_card.split("---")[1])
    assert "perplexity" not in moved_card.partition("## Config")[0]
    config = json.loads(card.partition("```json")[2].partition("```")[0])
    assert config["model"]["type"] == "elmo_bilm"


def test_the_command_writes_float16_and_prints_the_files(
    pretrained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr(
        sys,
        "argv",
        ["allennlp", "elmo-export", str(pretrained), str(tmp_path), "--dtype", "float16"],
    )
    main()
    assert str(tmp_path / "weights.hdf5") in capsys.readouterr().out
    with h5py.File(tmp_path / "weights.hdf5") as weights:
        assert weights["char_embed"].dtype == "float16"
    BiLM.from_files(tmp_path / "options.json", tmp_path / "weights.hdf5")


def test_existing_files_are_replaced_only_on_request(pretrained: Path, tmp_path: Path) -> None:
    (tmp_path / "options.json").write_text("mine")
    with pytest.raises(
        ConfigurationError, match=r"options\.json exists, expected a new path.*--overwrite"
    ):
        export_model(pretrained, tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["options.json"]
    export_model(pretrained, tmp_path, overwrite=True)
    assert json.loads((tmp_path / "options.json").read_text())["lstm"]["dim"] == 24


def test_a_task_archive_with_a_model_of_elmoformanylangs(tmp_path: Path) -> None:
    """Its biLM is not exported; the task model is, and needs no other files."""
    bilm = shutil.copytree(FIXTURES / "bilm" / "many_langs" / "both", tmp_path / "bilm")
    overrides = {
        "trainer.num_epochs": 1,
        "trainer.cuda_device": -1,
        "model.text_encoder.elmo.options_file": str(bilm),
        "model.text_encoder.elmo.weight_file": None,
    }
    experiment = FIXTURES / "ner" / "tiny" / "experiment_elmo.jsonnet"
    model = train_model_from_file(experiment, tmp_path / "run", overrides=json.dumps(overrides))
    shutil.rmtree(bilm)
    with pytest.raises(ConfigurationError, match="its biLM is a model of ELMoForManyLangs, expec"):
        export_model(tmp_path / "run" / "model.tar.gz", tmp_path / "export")
    assert not (tmp_path / "export").exists()
    export_model(tmp_path / "run" / "model.tar.gz", tmp_path / "tagger", task_model=True)
    exported = load_archive(tmp_path / "tagger").model
    for mine, theirs in zip(exported.parameters(), model.parameters()):
        assert torch.equal(mine, theirs)
    character_ids = batch_to_ids(SENTENCES)
    elmos = [one.text_encoder.elmo.elmo.eval() for one in (exported, model)]
    for mine, theirs in zip(*(elmo(character_ids)["elmo_representations"] for elmo in elmos)):
        # The archive runs as a snapshot, the trained model as modules: 1e-5, as docs/from_allennlp.md says.
        torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-5)


@pytest.mark.parametrize("with_elmo", [True, False])
def test_task_archives(with_elmo: bool, tmp_path: Path) -> None:
    """Their biLM is exported, where they have one."""
    name = "experiment_elmo.jsonnet" if with_elmo else "experiment.jsonnet"
    overrides = json.dumps({"trainer.num_epochs": 1, "trainer.cuda_device": -1})
    train_model_from_file(FIXTURES / "ner" / "tiny" / name, tmp_path / "run", overrides=overrides)
    archive_file = tmp_path / "run" / "model.tar.gz"
    if not with_elmo:
        with pytest.raises(ConfigurationError, match=r"holds 0 biLMs \(none\), expected one"):
            export_model(archive_file, tmp_path / "export")
        assert not (tmp_path / "export").exists()
        return
    files = export_model(archive_file, tmp_path / "export")
    assert [file.name for file in files] == ["options.json", "weights.hdf5", "README.md"]
    original = BiLM.from_files(*(FIXTURES / "bilm" / "tiny" / file.name for file in files[:2]))
    for mine, theirs in zip(BiLM.from_files(*files[:2]).parameters(), original.parameters()):
        assert torch.equal(mine, theirs)
