"""Two processes that train one biLM, on the CPU over gloo."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Dict, List, Tuple

import pytest
import torch
from allennlp.commands.train import train_model_from_file
from torch import Tensor
from torch.nn.functional import embedding
from torch.nn.parallel import DistributedDataParallel

from elmo_plugin.bilm import BiLM
from elmo_plugin.pretraining import (
    BiLMReader,
    BiLMStateCallback,
    BiLMTrainingModel,
    LMWordVocabulary,
    SampledSoftmax,
    StreamDataLoader,
)
from elmo_plugin.pretraining.softmax import ExchangedRows
from tests.closeness import assert_close
from tests.conftest import TINY_OPTIONS
from tests.pretraining.conftest import CONFIG, FIXTURES, HELD_OUT, VOCABULARY_FILE
from tests.pretraining.workers import reports_of_workers

NUM_SAMPLES = 20
ROWS, STEPS = 2, 3
NUM_BATCHES = 4
# More than are summed on the way to a weight: over batches, layers, tokens, cells, words and filters.
TERMS = 10**6

# Rows to look up: other ones in each worker, and another number of them; one occurs twice, one in both.
WORDS = [[3, 0, 3, 7], [7, 2]]


def weights() -> Tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    vectors = torch.randn(9, 4, generator=generator, requires_grad=True)
    return vectors, torch.randn(9, 1, generator=generator, requires_grad=True)


def loss(vectors: Tensor, biases: Tensor, rank: int) -> Tensor:
    return (vectors.tanh() * (rank + 1)).sum() + (vectors * biases).sum()


def exchange(rank: int) -> Dict[str, Any]:
    vectors, biases = weights()
    rows = ExchangedRows.apply(torch.tensor(WORDS[rank]), vectors, biases)
    loss(*rows, rank=rank).backward()
    return {"rows": [row.detach() for row in rows], "gradients": [vectors.grad, biases.grad]}


def words_of_batches(shuffle: bool) -> List[int]:
    """Return the number of words in each batch of an epoch, which has the length that the loader gives."""
    loader = StreamDataLoader(
        BiLMReader(VOCABULARY_FILE), HELD_OUT, rows=1, unroll_steps=STEPS, shuffle=shuffle
    )
    words = [sum(batch["lengths"]) for batch in loader]
    assert len(words) == len(loader)  # of one row, exactly
    return words


def new_model() -> BiLMTrainingModel:
    """Return a model in float64, in which sums of another order differ little after some updates."""
    torch.manual_seed(0)  # AllenNLP gives all workers the same seed
    vocab = LMWordVocabulary.from_vocabulary_file(VOCABULARY_FILE)
    softmax = SampledSoftmax(
        vocab.get_vocab_size("lm_words"), TINY_OPTIONS.projection_dim, NUM_SAMPLES, True
    )
    bilm = BiLM(TINY_OPTIONS)
    return BiLMTrainingModel(vocab, bilm, softmax, state_reset=0.3, softmax_first=1).double()


def new_optimizer(model: BiLMTrainingModel) -> torch.optim.Optimizer:
    return torch.optim.Adagrad(model.parameters(), lr=0.2, initial_accumulator_value=1.0)


def work(rank: int) -> Dict[str, Any]:
    """Train for a few steps, and return a report on them."""
    reader = BiLMReader(VOCABULARY_FILE)
    corpus = str(FIXTURES / "lm" / "train-*.txt")
    loader = StreamDataLoader(reader, corpus, rows=ROWS, unroll_steps=STEPS)
    model = new_model()
    with torch.no_grad():
        model.softmax.word_vectors.weight += rank  # torch does not copy it, the callback does
    optimizer = new_optimizer(model)
    trainer = SimpleNamespace(model=model, optimizer=optimizer)
    BiLMStateCallback("").on_start(trainer, is_primary=rank == 0)
    random_state = torch.get_rng_state()  # of which words are drawn and units dropped
    parallel = DistributedDataParallel(model)
    batches: List[Dict[str, Any]] = []
    losses: List[float] = []
    words: List[int] = []
    rows_exchanged: List[int] = []
    for _, batch in zip(range(NUM_BATCHES), loader):
        batches.append(batch)
        words += batch["forward_targets"].flatten().tolist()
        optimizer.zero_grad()
        loss_of_batch = parallel(**batch)["loss"]
        loss_of_batch.backward()
        losses.append(loss_of_batch.item())
        gradient = model.softmax.word_vectors.weight.grad
        rows_exchanged.append(gradient._nnz() if gradient.is_sparse else -1)
        optimizer.step()
    return {
        "exchange": exchange(rank),
        "batches": batches,
        "losses": losses,
        "words": words,
        "words_of_batches": [words_of_batches(shuffle) for shuffle in (True, False)],
        "random_state": random_state,
        "rows_exchanged": rows_exchanged,
        "parameters": {name: value.detach() for name, value in model.named_parameters()},
        "steps": {
            name: int(optimizer.state[value]["step"]) for name, value in model.named_parameters()
        },
        "metrics_of_worker": model.get_metrics(),
        "metrics": model.get_metrics(reset=True),
    }


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> List[Dict[str, Any]]:
    return reports_of_workers(work, tmp_path_factory.mktemp("distributed"))


def test_they_reach_the_same_model(reports: List[Dict[str, Any]]) -> None:
    first, second = (report["parameters"] for report in reports)
    for name, parameter in first.items():
        # To the bit: both add the same two gradients, and else do the same.
        assert torch.equal(parameter, second[name]), name


def test_one_process_with_the_batches_of_both_reaches_it_too(
    reports: List[Dict[str, Any]],
) -> None:
    models = [new_model() for _ in reports]
    optimizers = [new_optimizer(model) for model in models]
    random_states = [report["random_state"] for report in reports]
    losses: List[List[float]] = [[] for _ in reports]
    for batches in zip(*(report["batches"] for report in reports), strict=True):
        for rank, (model, batch) in enumerate(zip(models, batches)):
            torch.set_rng_state(random_states[rank])
            model.zero_grad()
            loss_of_batch = model(**batch)["loss"]
            loss_of_batch.backward()
            losses[rank].append(loss_of_batch.item())
            random_states[rank] = torch.get_rng_state()
        for parameters in zip(*(model.parameters() for model in models)):
            gradients = [parameter.grad for parameter in parameters]
            if gradients[0] is not None:  # not of a frozen biLM
                mean = sum(gradient.to_dense() for gradient in gradients) / len(gradients)
                for parameter in parameters:
                    parameter.grad = mean.clone()
        for optimizer in optimizers:
            optimizer.step()
    assert_close(losses, [report["losses"] for report in reports], TERMS)
    for name, parameter in models[0].named_parameters():
        assert_close(reports[0]["parameters"][name], parameter, TERMS, scale=10.0)


def test_the_optimizer_does_not_count_the_steps_of_a_frozen_bilm(
    reports: List[Dict[str, Any]],
) -> None:
    for report in reports:
        for name, steps in report["steps"].items():
            assert steps == NUM_BATCHES - name.startswith("bilm."), name


def test_they_end_an_epoch_with_the_same_batch(reports: List[Dict[str, Any]]) -> None:
    shuffled, ordered = zip(*(report["words_of_batches"] for report in reports))
    # Shuffled, with the first worker that has no batch left.
    assert len(shuffled[0]) == len(shuffled[1])
    assert set(shuffled[0]) == set(shuffled[1]) == {STEPS}
    # Ordered, with the last one, so that all words are read; then the other one has nothing left.
    assert len(ordered[0]) == len(ordered[1])
    num_predictions = sum(len(line.split()) + 1 for line in Path(HELD_OUT).read_text().splitlines())
    assert sum(ordered[0]) + sum(ordered[1]) == num_predictions
    assert min(ordered[0][-1], ordered[1][-1]) == 0


def test_they_read_and_draw_and_drop_different_things(reports: List[Dict[str, Any]]) -> None:
    first, second = reports
    assert first["words"] != second["words"]
    assert not torch.equal(first["random_state"], second["random_state"])


def test_of_the_softmax_only_sampled_rows_are_exchanged(reports: List[Dict[str, Any]]) -> None:
    # Of both workers and both directions: drawn words and targets.
    most = 2 * 2 * (NUM_SAMPLES + ROWS * STEPS)
    num_words = len(Path(VOCABULARY_FILE).read_text().splitlines())
    assert most < num_words
    for report in reports:
        assert len(report["rows_exchanged"]) == NUM_BATCHES
        assert all(0 < rows <= most for rows in report["rows_exchanged"])


def test_perplexity_is_that_of_both_together(reports: List[Dict[str, Any]]) -> None:
    for direction in ("forward", "backward"):
        name = f"{direction}_perplexity"
        together = {report["metrics"][name] for report in reports}
        assert len(together) == 1
        each = torch.tensor([report["metrics_of_worker"][name] for report in reports])
        # Both sum the losses of all predictions of a worker; `each` is rounded to float32.
        predictions = NUM_BATCHES * ROWS * STEPS
        found = torch.tensor(together.pop()).log()
        assert_close(found, each.log().mean(), terms=predictions, dtype=torch.float32)


def test_each_worker_gets_its_rows_and_the_mean_of_all_gradients(
    reports: List[Dict[str, Any]],
) -> None:
    expected = weights()
    losses = [
        loss(*(embedding(torch.tensor(words), weight) for weight in expected), rank=rank)
        for rank, words in enumerate(WORDS)
    ]
    (sum(losses) / 2).backward()
    for words, report in zip(WORDS, reports):
        for weight, rows in zip(expected, report["exchange"]["rows"]):
            assert torch.equal(rows, weight[words])
        for gradient, weight in zip(report["exchange"]["gradients"], expected):
            # A word has two gradients at each of its places, of which there are at most three.
            assert_close(gradient.to_dense(), weight.grad, terms=2 * 3)
            # It holds only rows that a worker looked up.
            assert gradient.coalesce().indices().flatten().tolist() == [0, 2, 3, 7]


@pytest.mark.slow
@pytest.mark.usefixtures("quick_workers")
def test_allennlp_trains_it_with_its_distributed_key(tmp_path: Path) -> None:
    overrides = {
        "distributed": {"cuda_devices": [-1, -1]},
        "trainer.cuda_device": None,
        "trainer.num_epochs": 1,
        "trainer.callbacks": ["elmo_validate_first", "elmo_bilm_state"],
    }
    train_model_from_file(
        CONFIG,
        tmp_path / "run",
        overrides=json.dumps(overrides),
        include_package=["elmo_plugin"],
    )
    before = json.loads((tmp_path / "run" / "metrics_before.json").read_text())
    after = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert after["validation_perplexity"] < before["perplexity"]
