"""Sparse gradients of two workers, over gloo."""

from typing import Any, Dict, List, Tuple

import pytest
import torch
from torch import Tensor
from torch.nn.functional import embedding

from elmo_plugin.pretraining.exchanged_rows import look_up_exchanged
from tests.pretraining.two_workers import reports_of_two_workers

# Other words of each worker, and another number of them; one occurs twice, one at both.
WORDS = [[3, 0, 3, 7], [7, 2]]


def weights() -> Tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    vectors = torch.randn(9, 4, generator=generator, requires_grad=True)
    return vectors, torch.randn(9, 1, generator=generator, requires_grad=True)


def loss(vectors: Tensor, biases: Tensor, rank: int) -> Tensor:
    return (vectors.tanh() * (rank + 1)).sum() + (vectors * biases).sum()


def work(rank: int) -> Dict[str, Any]:
    vectors, biases = weights()
    rows = look_up_exchanged(torch.tensor(WORDS[rank]), vectors, biases)
    loss(*rows, rank=rank).backward()
    return {"rows": [row.detach() for row in rows], "gradients": [vectors.grad, biases.grad]}


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> List[Dict[str, Any]]:
    return reports_of_two_workers(work, tmp_path_factory.mktemp("exchange"))


def test_rows_are_those_of_the_weights(reports: List[Dict[str, Any]]) -> None:
    for words, report in zip(WORDS, reports):
        for weight, rows in zip(weights(), report["rows"]):
            assert torch.equal(rows, weight[words])


def test_each_worker_gets_the_mean_of_all_gradients(reports: List[Dict[str, Any]]) -> None:
    expected = weights()
    losses = [
        loss(*(embedding(torch.tensor(words), weight) for weight in expected), rank=rank)
        for rank, words in enumerate(WORDS)
    ]
    (sum(losses) / 2).backward()
    for report in reports:
        for gradient, weight in zip(report["gradients"], expected):
            assert torch.allclose(gradient.to_dense(), weight.grad, rtol=0, atol=1e-6)


def test_gradients_hold_only_rows_that_a_worker_looked_up(reports: List[Dict[str, Any]]) -> None:
    for report in reports:
        for gradient in report["gradients"]:
            assert gradient.is_sparse
            assert gradient.coalesce().indices().flatten().tolist() == [0, 2, 3, 7]
