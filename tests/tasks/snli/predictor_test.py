from typing import Any, Dict

import pytest
import torch

from elmo_plugin.errors import ConfigurationError
from elmo_plugin.tasks.snli import SnliPredictor
from tests.closeness import assert_close


def test_a_pair_is_split_and_labelled(predictor: SnliPredictor) -> None:
    premise = "Two women are reading in a park."
    output = predictor.predict_json({"premise": premise, "hypothesis": "Nobody reads."})
    assert list(output) == ["label", "probabilities", "premise_words", "hypothesis_words"]
    assert output["label"] == max(output["probabilities"], key=output["probabilities"].get)
    assert output["premise_words"] == ["Two", "women", "are", "reading", "in", "a", "park", "."]
    assert output["hypothesis_words"] == ["Nobody", "reads", "."]
    output = predictor.predict_json({"premise": premise, "hypothesis": "The women are sisters."})
    probabilities = output["probabilities"]
    assert set(probabilities) == {"entailment", "neutral", "contradiction"}
    assert_close(sum(probabilities.values()), 1.0, terms=3, dtype=torch.float32)
    assert output["label"] == max(probabilities, key=probabilities.get)


def test_the_keys_of_snli_are_accepted(predictor: SnliPredictor) -> None:
    pair = {"sentence1": "Rain", "sentence2": "Rain", "gold_label": "-", "pairID": 3}
    same = {"premise": "Rain", "hypothesis": "Rain"}
    assert predictor.predict_json(pair)["premise_words"] == ["Rain"]
    assert predictor.predict_json(pair)["label"] == predictor.predict_json(same)["label"]


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
