import pytest
import torch
from allennlp.common.testing import run_distributed_test

from elmo_plugin.tasks.squad.answer_metrics import (
    AnswerMetrics,
    exact_match,
    normalized_answer,
    word_f1,
)
from tests.closeness import assert_close


@pytest.mark.parametrize(
    "text, normalized",
    [
        ("The Storm", "storm"),
        ("  an   apple a day\n", "apple day"),
        ("theory of anthems", "theory of anthems"),
        ("U.S.", "us"),
        ("$5.6-billion", "56billion"),
        ("São Paulo", "são paulo"),
        # Only ASCII punctuation goes, as in the official script.
        ("“The Storm”", "“ storm”"),
        ("The", ""),
    ],
)
def test_answers_are_normalized_as_in_the_official_script(text, normalized):
    assert normalized_answer(text) == normalized


@pytest.mark.parametrize(
    "predicted, answers, expected_match, expected_f1",
    [
        ("Paris", ["Paris"], 1, 1),
        ("the paris.", ["Paris"], 1, 1),
        ("Lyon", ["Paris"], 0, 0),
        # One of two words is right, and it is all of the answer: precision 1/2, recall 1.
        ("Paris Lyon", ["Paris"], 0, 2 / 3),
        # Words are counted as often as they occur: 1 in common, precision 1/3, recall 1/2.
        ("New New New", ["New York"], 0, 0.4),
        # Order does not matter for F1.
        ("York New", ["New York"], 0, 1),
        # The best answer counts, for each measure by itself.
        ("the big red dog", ["cat", "dog", "red dog"], 0, 0.8),
        ("red dog", ["big red dog", "Red dog"], 1, 1),
        ("", ["Paris"], 0, 0),
        # Nothing is left of either: a match, and yet no word in common.
        ("the", ["The"], 1, 0),
    ],
)
def test_worked_examples(predicted, answers, expected_match, expected_f1):
    assert exact_match(predicted, answers) == expected_match
    assert_close(word_f1(predicted, answers), expected_f1)


def test_metrics_are_means_over_questions():
    metrics = AnswerMetrics()
    metrics(["Paris", "Paris Lyon"], [["Paris"], ["Paris", "Rome"]])
    metrics(["Lyon"], [["Paris"]])
    expected = [1 / 3, (1 + 2 / 3) / 3]
    assert_close(list(metrics.get_metric().values()), expected, terms=3)
    assert_close(list(metrics.get_metric(reset=True).values()), expected, terms=3)
    assert metrics.get_metric() == {"em": 0.0, "f1": 0.0}


def measure_in_one_of_two_processes(rank, world_size, device):
    metrics = AnswerMetrics()
    # Of three questions the first process has one.
    share = [(["Paris"], [["Paris"]]), (["Lyon", "York"], [["Paris"], ["New York"]])][rank]
    metrics(*share)
    assert_close(
        list(metrics.get_metric().values()), [1 / 3, (1 + 2 / 3) / 3], terms=3, dtype=torch.float32
    )


def test_processes_of_distributed_training_measure_together():
    run_distributed_test([-1, -1], measure_in_one_of_two_processes)
