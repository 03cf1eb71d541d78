"""
Processes that train one biLM together, over gloo, against one process that does the work of all in turn.
"""

import copy
import itertools
import logging
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any, Dict, List, NamedTuple

import torch
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from attacks import FIXTURES
from attacks.models import random_options
from attacks.trials import Attack, Trial, check
from elmo_plugin.bilm import BiLM
from elmo_plugin.pretraining import (
    BiLMReader,
    BiLMStateCallback,
    BiLMTrainingModel,
    FullSoftmax,
    LMWordVocabulary,
    SampledSoftmax,
    StreamDataLoader,
)
from tests.closeness import assert_close
from tests.pretraining.workers import reports_of_workers

VOCABULARY_FILE = str(FIXTURES / "lm" / "vocab.txt")
CORPUS = str(FIXTURES / "lm" / "train-*.txt")
LEARNING_RATE = 0.05
# More than are summed on the way to a number in a hundred steps: each over tokens, cells, words and filters.
TERMS = 10**8


class Training(NamedTuple):
    """A short training: what all workers share."""

    seed: int
    model: BiLMTrainingModel
    rows: int
    unroll_steps: int
    shuffle: bool
    num_batches: int

    @property
    def is_exact(self) -> bool:
        """Whether it is in float64. In float32, steps that build on one another enlarge what is rounded."""
        return self.model.softmax.weight.dtype == torch.float64


def random_training(random: Random) -> Training:
    seed = random.randrange(2**31)
    torch.manual_seed(seed)
    vocab = LMWordVocabulary.from_vocabulary_file(VOCABULARY_FILE)
    num_words, options = vocab.get_vocab_size("lm_words"), random_options(random)
    softmax: Any
    if random.random() < 0.3:
        softmax = FullSoftmax(num_words, options.projection_dim)
    else:
        softmax = SampledSoftmax(
            num_words, options.projection_dim, random.choice([1, 20]), random.random() < 0.7
        )
    model = BiLMTrainingModel(
        vocab,
        BiLM(options).requires_grad_(True),
        softmax,
        dropout=random.choice([0.0, 0.1, 0.5]),
        state_reset=random.choice([0.0, 0.3]),
        softmax_first=random.choice([0, 0, 2]),
    )
    sizes = random.randint(1, 3), random.randint(1, 5)
    num_batches = random.choice([1, 3, 10, 10, 100])
    model = model.double() if random.random() < 0.7 else model
    return Training(seed, model, *sizes, random.random() < 0.7, num_batches)


def optimizer_of(model: torch.nn.Module) -> torch.optim.Optimizer:
    # Its update is a sum, of which the error can be derived.
    return torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)


def work(training: Training, rank: int) -> Dict[str, Any]:
    """Train as a worker. Return what it read, its random numbers, and its weights at the end."""
    model = copy.deepcopy(training.model)
    torch.manual_seed(training.seed)  # AllenNLP gives all workers the same seed
    optimizer = optimizer_of(model)
    trainer = SimpleNamespace(model=model, optimizer=optimizer)
    BiLMStateCallback("").on_start(trainer, is_primary=rank == 0)
    random_numbers = torch.get_rng_state()
    loader = StreamDataLoader(
        BiLMReader(VOCABULARY_FILE),
        CORPUS,
        rows=training.rows,
        unroll_steps=training.unroll_steps,
        shuffle=training.shuffle,
    )
    parallel = DistributedDataParallel(model)
    batches, losses = [], []
    # To the same number of batches in all workers.
    for batch in itertools.islice(loader, training.num_batches):
        batches.append(batch)
        optimizer.zero_grad()
        loss = parallel(**batch)["loss"]
        loss.backward()
        losses.append(loss.item())
        optimizer.step()
    metrics = model.get_metrics(reset=True)
    return {
        "random_numbers": random_numbers,
        "batches": batches,
        "losses": losses,
        "weights": weights_of(model),
        "metrics": metrics,
    }


def weights_of(model: torch.nn.Module) -> Dict[str, Tensor]:
    return {name: parameter.detach() for name, parameter in model.named_parameters()}


def in_turn(training: Training, reports: List[Dict[str, Any]]) -> Any:
    """Do the work of all workers in one process. Return the losses of each, and the weights."""
    models = [copy.deepcopy(training.model) for _ in reports]
    optimizers = list(map(optimizer_of, models))
    random_numbers = [report["random_numbers"] for report in reports]
    losses: List[List[float]] = [[] for _ in reports]
    for batches in zip(*(report["batches"] for report in reports)):
        for rank, (model, optimizer, batch) in enumerate(zip(models, optimizers, batches)):
            torch.set_rng_state(random_numbers[rank])
            optimizer.zero_grad()
            loss = model(**batch)["loss"]
            loss.backward()
            losses[rank].append(loss.item())
            random_numbers[rank] = torch.get_rng_state()
        for parameters in zip(*(model.parameters() for model in models)):
            gradients = [parameter.grad for parameter in parameters]
            if gradients[0] is not None:
                mean = sum(gradient.to_dense() for gradient in gradients) / len(gradients)
                for parameter in parameters:
                    parameter.grad = mean.clone()
        for optimizer in optimizers:
            optimizer.step()
    return losses, weights_of(models[0])


def workers(folder: Path) -> Trial:
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)  # of processes that are forked

    def trial(random: Random) -> None:
        training = random_training(random)
        num_workers = random.randint(2, 4)
        with TemporaryDirectory(dir=folder) as place:
            reports = reports_of_workers(
                lambda rank: work(training, rank), Path(place), num_workers, "fork"
            )
        first = reports[0]
        for report in reports[1:]:
            check("the same number of batches", len(report["batches"]) == len(first["batches"]))
            for name, weight in first["weights"].items():
                check(f"the same {name}", torch.equal(weight, report["weights"][name]))
            for name in ("perplexity", "forward_perplexity", "backward_perplexity"):
                check(f"the same {name}", report["metrics"][name] == first["metrics"][name])
        if not training.is_exact:
            return
        losses, weights = in_turn(training, reports)
        for report, own in zip(reports, losses):
            assert_close(report["losses"], own, TERMS, dtype="float64")
        for name, weight in weights.items():
            assert_close(first["weights"][name], weight, TERMS, scale=10.0)

    return trial


ATTACKS = [
    Attack(
        "workers",
        "processes that train one biLM together do what one process would that has all their batches",
        workers,
        max_seconds=120.0,
    )
]
