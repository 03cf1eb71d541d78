"""A pretrained biLM."""

import json
from pathlib import Path

import pytest
from allennlp.commands.train import train_model_from_file

from elmo_plugin.pretraining.export import export_model

FIXTURES = Path(__file__).parents[2] / "fixtures" / "lm"


@pytest.fixture(scope="session")
def pretrained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the training folder of a biLM that saw a few windows, `run`, and its export, `export`."""
    folder = tmp_path_factory.mktemp("pretrained")
    overrides = {
        "train_data_path": str(FIXTURES / "heldout.txt"),
        "trainer.num_epochs": 1,
        "trainer.callbacks": [],
        "trainer.cuda_device": -1,
    }
    config = FIXTURES / "experiment.jsonnet"
    train_model_from_file(config, folder / "run", overrides=json.dumps(overrides))
    export_model(folder / "run" / "model.tar.gz", folder / "export", license="cc0-1.0")
    return folder
