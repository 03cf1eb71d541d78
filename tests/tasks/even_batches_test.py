import json
from typing import Any, Dict, List

import pytest
from _jsonnet import evaluate_snippet
from allennlp.common import Params
from allennlp.data import BatchSampler, Instance
from allennlp.data.fields import TextField
from allennlp.data.tokenizers import Token

from elmo_plugin.errors import ConfigurationError
from elmo_plugin.tasks import EvenBatchSampler
from tests.pretraining.two_workers import reports_of_two_workers
from tests.tasks.task_testing import FIXTURES

LIBRARY = FIXTURES.parent / "training_configs" / "lib" / "data.libsonnet"
BATCH_SIZE = 2

# Lengths of the sentences of both workers, and the sizes of their batches.
CASES = {
    "one has a batch more": ([[3, 9, 1, 4, 7], [2, 8, 6]], [[1, 2, 2], [1, 1, 1]]),
    "one has fewer sentences than the other has batches": (
        [[3, 9, 1, 4, 7], [8, 2]],
        [[2, 3], [1, 1]],
    ),
    "both have the same": ([[1, 2, 3, 4], [5, 6, 7, 8]], [[2, 2], [2, 2]]),
}


def sampler() -> BatchSampler:
    """The one of the experiments' validation."""
    loaders = evaluate_snippet("", f"(import '{LIBRARY}').loaders({BATCH_SIZE}, ['tokens'])")
    params = Params(json.loads(loaders))["validation_data_loader"]["batch_sampler"]
    built = BatchSampler.from_params(params)
    assert isinstance(built, EvenBatchSampler)
    return built


def sentences(lengths: List[int]) -> List[Instance]:
    return [Instance({"tokens": TextField([Token("a")] * length)}) for length in lengths]


def batches_of(lengths: List[int]) -> List[List[int]]:
    """The batches of a worker, as lengths of sentences."""
    indices = sampler().get_batch_indices(sentences(lengths))
    return [[lengths[index] for index in batch] for batch in indices]


def work(rank: int) -> Dict[str, Any]:
    report: Dict[str, Any] = {name: batches_of(case[0][rank]) for name, case in CASES.items()}
    try:
        report["error"] = batches_of([[1, 2], []][rank])
    except ConfigurationError as error:
        report["error"] = str(error)
    return report


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> List[Dict[str, Any]]:
    return reports_of_two_workers(work, tmp_path_factory.mktemp("workers"))


@pytest.mark.parametrize("case", CASES)
def test_workers_have_the_same_number_of_batches_with_all_sentences(
    reports: List[Dict[str, Any]], case: str
) -> None:
    for report, lengths, sizes in zip(reports, *CASES[case]):
        batches = report[case]
        assert [len(batch) for batch in batches] == sizes
        assert [length for batch in batches for length in batch] == sorted(lengths)


def test_a_worker_without_sentences_is_an_error_of_all(reports: List[Dict[str, Any]]) -> None:
    for report in reports:
        assert "has no validation data, expected at least one instance for each" in report["error"]


def test_a_single_process_has_batches_of_similar_length() -> None:
    assert batches_of([3, 9, 1, 4, 7]) == [[1, 3], [4, 7], [9]]
    assert sampler().get_num_batches(sentences([3, 9, 1, 4, 7])) == 3
