"""What the tests of several tasks need: archives, and the predict command."""

import argparse
import json
import re
from pathlib import Path
from typing import Any, List, Tuple

import torch
from allennlp.commands.predict import Predict
from allennlp.common import Params
from allennlp.common.params import with_overrides
from allennlp.data import Batch, DatasetReader, Instance, TensorDict, Vocabulary
from allennlp.models import Model, archive_model

from tests.conftest import FIXTURES

TINY_BILM = [str(FIXTURES / "bilm" / "tiny" / name) for name in ("options.json", "weights.hdf5")]
TRAINING_CONFIGS = FIXTURES.parent / "training_configs"
TASKS = sorted(path.parent.parent.name for path in FIXTURES.glob("*/tiny/experiment_elmo.jsonnet"))
# Width of the word vectors that a task's configs expect.
WORD_DIMS = {"ner": 50, "srl": 100, "sst": 300, "snli": 300, "squad": 300, "coref": 300}
# The external variables that the head comments of the configs name.
EXT_VARS = {
    **{f"{task.upper()}_DATA": "data" for task in TASKS},
    "WORD_VECTORS": "vectors.txt",
    "ELMO": str(FIXTURES / "bilm" / "tiny"),
    "LM_TRAIN": "data",
    "LM_HELDOUT": "data",
    "LM_START": str(FIXTURES / "bilm" / "tiny"),
    "LM_VOCABULARY": str(FIXTURES / "lm" / "vocab.txt"),
}


def experiment_of(task: str, experiment: str = "experiment", **overrides: Any) -> Params:
    """A tiny experiment of a task, with some keys of its model changed."""
    changes = {f"model.{key}": value for key, value in overrides.items()}
    path = FIXTURES / task / "tiny" / f"{experiment}.jsonnet"
    return Params.from_file(path, params_overrides=json.dumps(changes))


def published_experiment(name: str, overrides: Any = "", **ext_vars: str) -> Params:
    """An experiment of `training_configs`, with some keys changed."""
    path = TRAINING_CONFIGS / f"{name}.jsonnet"
    return Params.from_file(path, overrides, {**EXT_VARS, **ext_vars})


def task_of(name: str) -> str:
    """The task of an experiment of `training_configs`."""
    return name.removeprefix("elmo_").partition("_")[0]


def small_experiment(name: str, folder: Path, **overrides: Any) -> Params:
    """An experiment of `training_configs` with the tiny biLM, and with word vectors written to a folder."""
    vectors = folder / "vectors.txt"
    word_dim = WORD_DIMS[task_of(name)]
    vectors.write_text("rain " + " ".join(["0.1"] * word_dim) + "\n")
    elmo = dict(zip(("options_file", "weight_file"), TINY_BILM))
    changes = {f"model.text_encoder.elmo.{key}": value for key, value in elmo.items()}
    return published_experiment(name, {**changes, **overrides}, WORD_VECTORS=str(vectors))


def read_tiny(task: str, experiment: str = "experiment") -> Tuple[List[Instance], Vocabulary]:
    """The instances on which a tiny experiment is validated, and their vocabulary."""
    params = experiment_of(task, experiment)
    reader_params = params.get("validation_dataset_reader") or params["dataset_reader"]
    reader = DatasetReader.from_params(reader_params)
    instances = list(reader.read(params["validation_data_path"]))
    for instance in instances:
        reader.apply_token_indexers(instance)
    return instances, Vocabulary.from_instances(instances)


def build_tiny(
    task: str, vocab: Vocabulary, experiment: str = "experiment", **overrides: Any
) -> Model:
    """The model of a tiny experiment, without dropout but for what the overrides ask for."""
    torch.manual_seed(13)
    params = _without_dropout(experiment_of(task, experiment)["model"].as_dict(quiet=True))
    changed = with_overrides(params, overrides)
    return Model.from_params(Params(changed), vocab=vocab)


def _without_dropout(params: Any) -> Any:
    if not isinstance(params, dict):
        return params
    return {
        key: 0.0 if "dropout" in key and isinstance(value, float) else _without_dropout(value)
        for key, value in params.items()
    }


def as_tensors(instances: List[Instance], vocab: Vocabulary) -> TensorDict:
    batch = Batch(instances)
    batch.index_instances(vocab)
    return batch.as_tensor_dict()


def num_terms(model: Model, num_steps: int) -> int:
    """
    Return the length of the chain of sums from the input to the output of a model, for `assert_close`.

    A number in the output of a matrix sums the columns of the matrix; those of an RNN are used once in each
    step. Both directions are counted, and so is a biLM that is trained; what attention sums is not.
    """
    terms = 0
    for name, parameter in model.named_parameters():
        if parameter.dim() > 1:
            recurrent = re.search(r"weight_[ih]h_l|input_linearity|state_linearity", name)
            terms += parameter[0].numel() * (num_steps if recurrent else 1)
    return terms


def overfit(
    model: Model, instances: List[Instance], num_steps: int = 60, lr: float = 0.02
) -> List[float]:
    """Train on one batch of indexed instances, over and over. Returns the losses."""
    tensors = as_tensors(instances, model.vocab)
    optimizer = torch.optim.Adam(
        [parameter for parameter in model.parameters() if parameter.requires_grad], lr=lr
    )
    losses = []
    model.train()
    for _ in range(num_steps):
        optimizer.zero_grad()
        loss = model(**tensors)["loss"]
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def overfitted_archive(
    experiment: Path, folder: Path, num_steps: int = 60, lr: float = 0.02
) -> Path:
    """The archive of an experiment whose model is overfitted to its training data."""
    params = Params.from_file(experiment)
    params.to_file(folder / "config.json")
    reader = DatasetReader.from_params(params["dataset_reader"])
    instances = list(reader.read(params["train_data_path"]))
    vocab = Vocabulary.from_instances(instances)
    vocab.save_to_files(folder / "vocabulary")
    torch.manual_seed(13)
    model = Model.from_params(params["model"], vocab=vocab)
    overfit(model, instances, num_steps, lr)
    torch.save(model.state_dict(), folder / "weights.th")
    archive_model(folder, weights="weights.th")
    return folder / "model.tar.gz"


def run_predict(*arguments: Any) -> None:
    """What `allennlp predict` does with the arguments."""
    parser = argparse.ArgumentParser()
    Predict().add_subparser(parser.add_subparsers())
    args = parser.parse_args(["predict", *map(str, arguments)])
    args.func(args)


def texts_and_numbers(value: Any) -> Tuple[Any, List[float]]:
    """Return a JSON value with `None` in place of its floats, and these."""
    numbers: List[float] = []
    # `append` returns None.
    texts = json.loads(json.dumps(value), parse_float=lambda text: numbers.append(float(text)))
    return texts, numbers
