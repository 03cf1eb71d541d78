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
from elmo_plugin.pretraining.sampled_softmax import look_up_exchanged
from tests.closeness import assert_close
from tests.conftest import TINY_OPTIONS
from tests.pretraining.two_workers import reports_of_two_workers

FIXTURES = Path(__file__).parents[2] / "fixtures" / "lm"
NUM_SAMPLES = 20
ROWS, STEPS = 2, 3
NUM_BATCHES = 4


# Other words of each worker, and another number of them; one occurs twice, one at both.
WORDS = [[3, 0, 3, 7], [7, 2]]


def weights() -> Tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    vectors = torch.randn(9, 4, generator=generator, requires_grad=True)
    return vectors, torch.randn(9, 1, generator=generator, requires_grad=True)


def loss(vectors: Tensor, biases: Tensor, rank: int) -> Tensor:
    return (vectors.tanh() * (rank + 1)).sum() + (vectors * biases).sum()


def exchange(rank: int) -> Dict[str, Any]:
    vectors, biases = weights()
    rows = look_up_exchanged(torch.tensor(WORDS[rank]), vectors, biases)
    loss(*rows, rank=rank).backward()
    return {"rows": [row.detach() for row in rows], "gradients": [vectors.grad, biases.grad]}


def work(rank: int) -> Dict[str, Any]:
    """What each process does: a few steps, and a report on them."""
    vocabulary_file = str(FIXTURES / "vocab.txt")
    vocab = LMWordVocabulary.from_vocabulary_file(vocabulary_file)
    reader = BiLMReader(vocabulary_file=vocabulary_file)
    loader = StreamDataLoader(reader, str(FIXTURES / "train-*.txt"), rows=ROWS, unroll_steps=STEPS)
    torch.manual_seed(0)  # AllenNLP gives all workers the same seed
    softmax = SampledSoftmax(
        vocab.get_vocab_size("lm_words"), TINY_OPTIONS.projection_dim, NUM_SAMPLES, True
    )
    model = BiLMTrainingModel(vocab, BiLM(TINY_OPTIONS), softmax, softmax_first=1)
    with torch.no_grad():
        softmax.word_vectors.weight += rank  # what torch leaves alone, the callback makes common
    BiLMStateCallback("").on_start(SimpleNamespace(model=model), is_primary=rank == 0)
    draws: List[Tensor] = []
    draw_words = softmax.draw_words
    softmax.draw_words = lambda: draws.append(draw_words()) or draws[-1]
    parallel = DistributedDataParallel(model)
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.2, initial_accumulator_value=1.0)
    words: List[int] = []
    rows_exchanged: List[int] = []
    for _, batch in zip(range(NUM_BATCHES), loader):
        words += batch["forward_targets"].flatten().tolist()
        optimizer.zero_grad()
        parallel(**batch)["loss"].backward()
        gradient = model.softmax.word_vectors.weight.grad
        rows_exchanged.append(gradient._nnz() if gradient.is_sparse else -1)
        optimizer.step()
    return {
        "exchange": exchange(rank),
        "words": words,
        "draws": [drawn_words.tolist() for drawn_words, _ in draws],
        "dropout": torch.nn.functional.dropout(torch.ones(100)).tolist(),
        "rows_exchanged": rows_exchanged,
        "parameters": {name: value.detach() for name, value in model.named_parameters()},
        "metrics_of_worker": model.get_metrics(),
        "metrics": model.get_metrics(reset=True),
    }


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> List[Dict[str, Any]]:
    return reports_of_two_workers(work, tmp_path_factory.mktemp("distributed"))


def test_they_reach_the_same_model(reports: List[Dict[str, Any]]) -> None:
    first, second = (report["parameters"] for report in reports)
    for name, parameter in first.items():
        assert torch.equal(parameter, second[name]), name


def test_they_read_different_text(reports: List[Dict[str, Any]]) -> None:
    assert reports[0]["words"] != reports[1]["words"]


def test_they_draw_different_negatives_and_dropout_masks(reports: List[Dict[str, Any]]) -> None:
    first, second = reports
    assert len(first["draws"]) == 2 * NUM_BATCHES
    assert all(ours != theirs for ours, theirs in zip(first["draws"], second["draws"]))
    assert first["dropout"] != second["dropout"]


def test_of_the_softmax_only_sampled_rows_are_exchanged(reports: List[Dict[str, Any]]) -> None:
    # Of both workers and both directions: drawn words and targets.
    most = 2 * 2 * (NUM_SAMPLES + ROWS * STEPS)
    num_words = len((FIXTURES / "vocab.txt").read_text().splitlines())
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


def test_exchanged_rows_are_those_of_the_weights(reports: List[Dict[str, Any]]) -> None:
    for words, report in zip(WORDS, reports):
        for weight, rows in zip(weights(), report["exchange"]["rows"]):
            assert torch.equal(rows, weight[words])


def test_each_worker_gets_the_mean_of_all_gradients(reports: List[Dict[str, Any]]) -> None:
    expected = weights()
    losses = [
        loss(*(embedding(torch.tensor(words), weight) for weight in expected), rank=rank)
        for rank, words in enumerate(WORDS)
    ]
    (sum(losses) / 2).backward()
    for report in reports:
        for gradient, weight in zip(report["exchange"]["gradients"], expected):
            # A word has two gradients at each of its places, of which there are at most three.
            assert_close(gradient.to_dense(), weight.grad, terms=2 * 3)


def test_exchanged_gradients_hold_only_rows_that_a_worker_looked_up(
    reports: List[Dict[str, Any]],
) -> None:
    for report in reports:
        for gradient in report["exchange"]["gradients"]:
            assert gradient.is_sparse
            assert gradient.coalesce().indices().flatten().tolist() == [0, 2, 3, 7]


@pytest.mark.slow
def test_allennlp_trains_it_with_its_distributed_key(tmp_path: Path) -> None:
    overrides = {
        "distributed": {"cuda_devices": [-1, -1]},
        "trainer.cuda_device": None,
        "trainer.num_epochs": 1,
        "trainer.callbacks": ["elmo_validate_first", "elmo_bilm_state"],
    }
    train_model_from_file(
        FIXTURES / "experiment.jsonnet",
        tmp_path / "run",
        overrides=json.dumps(overrides),
        include_package=["elmo_plugin"],
    )
    before = json.loads((tmp_path / "run" / "metrics_before.json").read_text())
    after = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert after["validation_perplexity"] < before["perplexity"]
