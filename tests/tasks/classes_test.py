import pytest
import torch
from allennlp.common.testing import run_distributed_test
from allennlp.data import Vocabulary

from elmo_plugin.errors import ConfigurationError
from elmo_plugin.tasks.classes import ClassMetrics

CLASSES = ["no", "maybe", "yes"]
NOTHING = {f"_{metric}-{name}": 0.0 for name in CLASSES for metric in ("precision", "recall", "f1")}


def vocabulary_of(*classes, namespace="labels"):
    return Vocabulary(tokens_to_add={namespace: list(classes)})


def scores_for(*predicted):
    """Scores of any sign, highest for the classes that should be predicted."""
    scores = torch.tensor([[-3.0, -2.0, -4.0]]).repeat(len(predicted), 1)
    scores[range(len(predicted)), list(predicted)] = -1.0
    return scores


def test_metrics_equal_a_worked_example():
    metrics = ClassMetrics(vocabulary_of(*CLASSES))
    # Gold       no   no   no   no   maybe  yes  yes
    # Predicted  no   no   no   yes  no     yes  maybe
    metrics(scores_for(0, 0, 0, 2), torch.tensor([0, 0, 0, 0]))
    metrics(scores_for(0, 2, 1), torch.tensor([1, 2, 2]))
    expected = {
        "accuracy": 4 / 7,
        "_precision-no": 3 / 4,
        "_recall-no": 3 / 4,
        "_f1-no": 3 / 4,
        "_precision-maybe": 0.0,
        "_recall-maybe": 0.0,
        "_f1-maybe": 0.0,
        "_precision-yes": 1 / 2,
        "_recall-yes": 1 / 2,
        "_f1-yes": 1 / 2,
    }
    measured = metrics.get_metric()
    assert measured == pytest.approx(expected)
    assert list(measured) == list(expected)
    assert all(type(value) is float for value in measured.values())


def test_before_the_first_batch_and_after_a_reset_all_is_0():
    metrics = ClassMetrics(vocabulary_of(*CLASSES))
    assert metrics.get_metric() == {"accuracy": 0.0, **NOTHING}
    metrics(scores_for(0, 1), torch.tensor([0, 1]))
    assert metrics.get_metric(reset=True)["accuracy"] == 1.0
    assert metrics.get_metric(reset=True) == {"accuracy": 0.0, **NOTHING}


def test_scores_that_add_up_to_0_are_a_prediction():
    metrics = ClassMetrics(vocabulary_of(*CLASSES))
    metrics(torch.tensor([[1.0, 1.0, -2.0], [0.0, 0.0, 0.0]]), torch.tensor([0, 0]))
    measured = metrics.get_metric()
    assert measured["accuracy"] == measured["_recall-no"] == measured["_precision-no"] == 1.0


def test_verbose_shows_the_metrics_of_classes():
    metrics = ClassMetrics(vocabulary_of(*CLASSES, namespace="nli_labels"), "nli_labels", True)
    metrics(scores_for(2), torch.tensor([2]))
    measured = metrics.get_metric()
    assert measured["recall-yes"] == 1.0
    assert not any(name.startswith("_") for name in measured)


def count_on_two_workers(global_rank, world_size, gpu_id):
    metrics = ClassMetrics(vocabulary_of(*CLASSES))
    predicted, gold = [([0, 0, 2], [0, 0, 0]), ([1, 2, 2], [0, 2, 1])][global_rank]
    metrics(scores_for(*predicted), torch.tensor(gold))
    measured = metrics.get_metric()
    assert measured["accuracy"] == pytest.approx(3 / 6)
    assert measured["_recall-no"] == pytest.approx(2 / 4)
    assert measured["_precision-yes"] == pytest.approx(1 / 3)
    assert measured["_recall-maybe"] == 0.0


def test_workers_count_together():
    run_distributed_test([-1, -1], func=count_on_two_workers)


def test_a_class_that_the_vocabulary_got_later_is_refused():
    vocab = vocabulary_of(*CLASSES)
    metrics = ClassMetrics(vocab)
    later = vocab.add_token_to_namespace("never", "labels")
    with pytest.raises(
        ConfigurationError, match=r"gold label 'never', expected one of those .*: no, maybe, yes"
    ):
        metrics(scores_for(0, 0), torch.tensor([0, later]))
    assert metrics.get_metric()["accuracy"] == 0.0


@pytest.mark.parametrize(
    "namespace, message",
    [
        ("nli_labels", "namespace 'nli_labels' is empty"),
        ("classes", "namespace 'classes' has an entry for padding"),
    ],
)
def test_a_namespace_without_classes_or_with_padding_is_refused(namespace, message):
    with pytest.raises(ConfigurationError, match=message):
        ClassMetrics(vocabulary_of(*CLASSES, namespace="classes"), namespace)
