import pytest
from allennlp.common.testing import run_distributed_test

from elmo_plugin.tasks.metrics import SpanF1

LABELS = ["PER", "ORG", "LOC"]
# Predicted and gold spans of two sentences.
FIRST = [("PER", 0), ("ORG", 3)], [("PER", 0), ("PER", 3)]
SECOND = [("ORG", 1)], [("ORG", 1), ("ORG", 2), ("a label that is not predicted", 5)]
EXPECTED = {
    "precision": 2 / 3,
    "recall": 2 / 5,
    "f1": 4 / 8,
    "precision-ORG": 1 / 2,
    "recall-ORG": 1 / 2,
    "f1-ORG": 1 / 2,
    "precision-PER": 1.0,
    "recall-PER": 1 / 2,
    "f1-PER": 2 / 3,
}


def count_a_sentence(rank: int, world_size: int, gpu_id: int) -> None:
    metric = SpanF1(LABELS)
    metric(*(FIRST, SECOND)[rank])
    for reset in (False, True):
        measured = metric.get_metric(reset)
        assert list(measured) == list(EXPECTED)
        assert measured == pytest.approx(EXPECTED)
    assert metric.get_metric() == {"precision": 0.0, "recall": 0.0, "f1": 0.0}


def test_spans_of_all_workers_are_counted_before_anything_is_divided():
    run_distributed_test([-1, -1], func=count_a_sentence)
