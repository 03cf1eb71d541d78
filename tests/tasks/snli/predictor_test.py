from typing import Any, Dict

import pytest

from elmo_plugin.errors import ConfigurationError
from elmo_plugin.tasks.snli import SnliPredictor


def test_a_pair_is_split_and_labelled(predictor: SnliPredictor) -> None:
    output = predictor.predict_pair("Two women are reading in a park.", "Nobody reads.")
    assert list(output) == ["label", "probabilities", "premise_words", "hypothesis_words"]
    assert output["label"] == "contradiction"
    assert output["premise_words"] == ["Two", "women", "are", "reading", "in", "a", "park", "."]
    assert output["hypothesis_words"] == ["Nobody", "reads", "."]


def test_probabilities_have_the_names_of_labels_and_sum_to_1(predictor: SnliPredictor) -> None:
    output = predictor.predict_pair("Two women are reading in a park.", "The women are sisters.")
    probabilities = output["probabilities"]
    assert set(probabilities) == {"entailment", "neutral", "contradiction"}
    assert sum(probabilities.values()) == pytest.approx(1.0)
    assert output["label"] == max(probabilities, key=probabilities.get) == "neutral"


def test_the_keys_of_snli_are_accepted(predictor: SnliPredictor) -> None:
    pair = {"sentence1": "Rain", "sentence2": "Rain", "gold_label": "-", "pairID": 3}
    assert predictor.predict_json(pair) == predictor.predict_pair("Rain", "Rain")


@pytest.mark.parametrize(
    "inputs, message",
    [
        ({"hypothesis": "Rain"}, "Found the keys 'hypothesis' .* one of 'premise', 'sentence1'"),
        ({"premise": "Rain"}, "Found the keys 'premise' .* exactly one of 'hypothesis'"),
        ({"sentence1": "Rain", "hypothesis": "Rain"}, "exactly one of 'sentence2'"),
        ({"premise": "Rain", "sentence1": "Rain"}, "Found the keys 'premise', 'sentence1'"),
        ({"sentence1": "Rain", "sentence2": None}, "'sentence2' is null, expected a text"),
    ],
)
def test_wrong_input_is_refused_with_an_example(
    predictor: SnliPredictor, inputs: Dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message) as error:
        predictor.predict_json(inputs)
    assert SnliPredictor.example in str(error.value)
