import pytest
import torch
from allennlp.data import Vocabulary

from elmo_plugin.errors import ConfigurationError
from elmo_plugin.tasks.models import Classifier, Tagger, attend
from tests.closeness import assert_close


class Echo(Classifier):
    """Takes logits as its input."""

    def forward(self, logits, label=None):
        return self._output(logits, label, None)


def logits_of(*predicted):
    """Scores that add up to 0, for which AllenNLP's metrics count no prediction."""
    return 3.0 * torch.nn.functional.one_hot(torch.tensor(predicted), num_classes=3) - 1.0


def test_metrics_equal_a_worked_example():
    model = Echo(Vocabulary(tokens_to_add={"labels": ["no", "maybe", "yes"]}))
    # Gold       no   no   no   no   maybe  yes  yes
    # Predicted  no   no   no   yes  no     yes  maybe
    model(logits_of(0, 0, 0, 2), torch.tensor([0, 0, 0, 0]))
    model(logits_of(0, 2, 1), torch.tensor([1, 2, 2]))
    expected = {
        "accuracy": 4 / 7,
        **dict.fromkeys(("_precision-no", "_recall-no", "_f1-no"), 3 / 4),
        **dict.fromkeys(("_precision-maybe", "_recall-maybe", "_f1-maybe"), 0.0),
        **dict.fromkeys(("_precision-yes", "_recall-yes", "_f1-yes"), 1 / 2),
    }
    measured = model.get_metrics(reset=True)
    assert list(measured) == list(expected)
    assert_close(list(measured.values()), list(expected.values()), dtype=torch.float32)
    assert model.get_metrics() == {"accuracy": 0.0}
    model(logits_of(0), torch.tensor([0]))
    assert model.get_metrics()["_precision-no"] == 1.0


def test_attention_ignores_padding_however_low_the_other_scores_are():
    # The exponentials of the first two are 0 in float32.
    scores = torch.tensor([[-1600.0, -800.0, 5.0]])
    vectors = torch.tensor([[[1.0], [2.0], [9.0]]])
    assert attend(scores, vectors, torch.tensor([[True, True, False]])).tolist() == [[2.0]]


@pytest.mark.parametrize(
    "tags, scheme, message",
    [
        ([], "BIO", "namespace 'labels' is empty, expected the labels of the training"),
        (["U-PER"], "BIOUL", "has no O, expected the tags of data in the BIOUL scheme"),
        (["O", "B-PER", "I-PER"], "BIOUL", "has no L-PER"),
        (["O", "L-PER"], "BIOUL", "has no B-PER"),
        (["O", "I-PER"], "BIO", "has no B-PER"),
        (["O", "S-PER", "PER"], "BIOUL", "has S-PER, PER, expected the tags of data in the BIOUL"),
    ],
)
def test_a_vocabulary_without_the_tags_of_the_scheme_is_refused(tags, scheme, message):
    class SomeTagger(Tagger):
        label_scheme = scheme

    with pytest.raises(ConfigurationError, match=message):
        SomeTagger(Vocabulary(tokens_to_add={"labels": tags}))
