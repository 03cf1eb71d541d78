import pickle

import pytest
from allennlp.common.checks import ConfigurationError
from allennlp.data import Instance, Vocabulary

from elmo_plugin.tasks.sst.sentiment_field import SentimentField

CLASSES = ("bad", "so_so", "good")


def field(label, place=None):
    return SentimentField(label, CLASSES, "labels", place)


def vocabulary_from(*labels):
    return Vocabulary.from_instances([Instance({"label": field(label)}) for label in labels])


@pytest.mark.parametrize("labels", [["good"], ["good", "good", "bad"], ["so_so", "good", "bad"]])
def test_the_vocabulary_has_all_classes_in_their_order_whatever_the_data(labels):
    vocab = vocabulary_from(*labels)
    assert vocab.get_index_to_token_vocabulary("labels") == {0: "bad", 1: "so_so", 2: "good"}


def test_the_tensor_is_the_id_of_the_class():
    so_so = field("so_so")
    so_so.index(vocabulary_from("good"))
    assert so_so.as_tensor(so_so.get_padding_lengths()).item() == 1


def test_a_field_can_be_sent_to_other_processes():
    sent = pickle.loads(pickle.dumps(field("bad", "a.txt, line 1")))
    assert (sent.label, sent.classes, sent.place) == ("bad", CLASSES, "a.txt, line 1")


def test_a_label_that_is_no_class_is_refused():
    message = r"^a\.txt, line 3: found the label 'great', expected one of: bad, so_so, good"
    with pytest.raises(ConfigurationError, match=message):
        field("great", "a.txt, line 3")


def test_a_label_that_the_model_does_not_know_is_refused():
    vocab = Vocabulary(tokens_to_add={"labels": ["bad", "good"]})
    message = (
        r"^a\.txt, line 3: found the label 'so_so', expected one in the namespace 'labels' of the "
        r"model's vocabulary: bad, good\. Give the reader the granularity"
    )
    with pytest.raises(ConfigurationError, match=message):
        field("so_so", "a.txt, line 3").index(vocab)
