"""What the tests of several tasks need: archives, and the predict command."""

import argparse
from pathlib import Path
from typing import Any, List

import torch
from allennlp.commands.predict import Predict
from allennlp.common import Params
from allennlp.data import Batch, DatasetReader, Instance, Vocabulary
from allennlp.models import Model, archive_model

FIXTURES = Path(__file__).parents[2] / "fixtures"


def overfit(
    model: Model, instances: List[Instance], num_steps: int = 60, lr: float = 0.02
) -> List[float]:
    """Train on one batch of indexed instances, over and over. Returns the losses."""
    batch = Batch(instances)
    batch.index_instances(model.vocab)
    optimizer = torch.optim.Adam(
        [parameter for parameter in model.parameters() if parameter.requires_grad], lr=lr
    )
    losses = []
    model.train()
    for _ in range(num_steps):
        optimizer.zero_grad()
        loss = model(**batch.as_tensor_dict())["loss"]
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def overfitted_archive(
    experiment: Path, folder: Path, num_steps: int = 60, lr: float = 0.02
) -> Path:
    """The archive of an experiment whose model knows its training data by heart."""
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
