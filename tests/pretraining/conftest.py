"""Training on the fixtures, a pretrained biLM, and the number of its roundings."""

import json
from pathlib import Path
from typing import Any

import pytest
from allennlp.commands.train import train_model_from_file
from allennlp.models import Model

from elmo_plugin.pretraining.export import export_model
from tests.conftest import FIXTURES

CONFIG = FIXTURES / "lm" / "experiment.jsonnet"
VOCABULARY_FILE = str(FIXTURES / "lm" / "vocab.txt")
HELD_OUT = str(FIXTURES / "lm" / "heldout.txt")


def train(folder: Path, config: Path = CONFIG, recover: bool = False, **overrides: Any) -> Model:
    """Train on the CPU, by default a biLM, with some keys of the config changed."""
    changes = json.dumps({"trainer.cuda_device": -1, **overrides})
    return train_model_from_file(config, folder, changes, recover=recover)


def num_terms(steps: int, num_words: int = 0, cell_size: int = 24, projection_dim: int = 12) -> int:
    """
    Return the number of values that are summed on the way to an output of a biLM, by default the fixture's,
    after some steps, or to the logarithm of a probability among some words.
    """
    encoder = 3 * 4 + 2 * 24  # the widest filter; the highway layer and the projection
    lstms = steps * 2 * (2 * projection_dim + cell_size)  # gates and projections of two layers
    # A logit, and exponentials relative to their sum.
    softmax = projection_dim + 1 + num_words if num_words else 0
    return encoder + lstms + softmax


@pytest.fixture(scope="session")
def pretrained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the training folder of a biLM that saw a few windows, `run`, and its export, `export`."""
    folder = tmp_path_factory.mktemp("pretrained")
    overrides = {"train_data_path": HELD_OUT, "trainer.num_epochs": 1, "trainer.callbacks": []}
    train(folder / "run", **overrides)
    export_model(folder / "run" / "model.tar.gz", folder / "export", license="cc0-1.0")
    return folder
