import pytest
from allennlp.common.testing import run_distributed_test
from allennlp.training.metrics import Metric

from elmo_plugin.tasks.coref import CoreferenceScores
from tests.tasks.coref.cluster_scores_test import clusters

# Pradhan et al. 2014; the parts are worked out in cluster_scores_test.py.
GOLD, PREDICTED = clusters("abc", "defg"), clusters("ab", "cd", "fghi")
CONSIDERED = list("abcdfghi")  # all gold mentions but e


def test_the_mean_of_the_three_f1_scores():
    scores = CoreferenceScores()
    scores([PREDICTED], [GOLD], [CONSIDERED])
    metrics = scores.get_metric(reset=True)
    b_cubed_recall = (5 / 3 + 5 / 4) / 7
    b_cubed_f1 = 2 * 0.5 * b_cubed_recall / (0.5 + b_cubed_recall)
    ceaf_f1 = 2 * 1.3 / 5
    assert metrics == pytest.approx(
        {
            "coref_precision": (0.4 + 0.5 + 1.3 / 3) / 3,
            "coref_recall": (0.4 + b_cubed_recall + 0.65) / 3,
            "coref_f1": (0.4 + b_cubed_f1 + ceaf_f1) / 3,
            "mention_recall": 6 / 7,
            "_muc_precision": 0.4,
            "_muc_recall": 0.4,
            "muc_f1": 0.4,
            "_b_cubed_precision": 0.5,
            "_b_cubed_recall": b_cubed_recall,
            "b_cubed_f1": b_cubed_f1,
            "_ceaf_precision": 1.3 / 3,
            "_ceaf_recall": 0.65,
            "ceaf_f1": ceaf_f1,
        }
    )
    assert set(scores.get_metric().values()) == {0.0}


def test_documents_are_summed_before_they_are_divided():
    # The same letters in two documents are not the same mentions.
    at_once, one_by_one = CoreferenceScores(), CoreferenceScores()
    other_predicted, other_gold = clusters("ab"), clusters("abcd")
    at_once([PREDICTED, other_predicted], [GOLD, other_gold], [CONSIDERED, list("ab")])
    one_by_one([PREDICTED], [GOLD], [CONSIDERED])
    one_by_one([other_predicted], [other_gold], [list("ab")])
    metrics = at_once.get_metric()
    assert metrics == pytest.approx(one_by_one.get_metric())
    # Recall: (2 + 1) of (5 + 3) links; precision: (2 + 1) of (5 + 1).
    assert (metrics["_muc_recall"], metrics["_muc_precision"]) == (3 / 8, 3 / 6)
    assert metrics["mention_recall"] == (6 + 2) / (7 + 4)


def test_no_clusters_at_all_score_nothing_and_divide_by_nothing():
    scores = CoreferenceScores()
    scores([[]], [[]], [[]])
    assert set(scores.get_metric().values()) == {0.0}


def test_it_is_a_registered_metric():
    assert Metric.by_name("elmo_coreference_scores") is CoreferenceScores


def _score_one_document_of_two(rank, world_size, gpu_id, expected):
    scores = CoreferenceScores()
    documents = [(PREDICTED, GOLD, CONSIDERED), (clusters("ab"), clusters("abcd"), list("ab"))]
    predicted, gold, considered = documents[rank]
    scores([predicted], [gold], [considered])
    assert scores.get_metric() == pytest.approx(expected)


def test_workers_that_share_the_documents_have_the_scores_of_all():
    scores = CoreferenceScores()
    scores([PREDICTED, clusters("ab")], [GOLD, clusters("abcd")], [CONSIDERED, list("ab")])
    run_distributed_test([-1, -1], _score_one_document_of_two, scores.get_metric())
