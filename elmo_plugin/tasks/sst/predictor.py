"""Predict the sentiment of sentences."""

from typing import List

from allennlp.common.util import JsonDict
from allennlp.data import Instance
from allennlp.predictors import Predictor

from elmo_plugin.tasks.predicting import SentencePredictor


@Predictor.register("elmo_sst")
class SstPredictor(SentencePredictor):
    """
    Predicts from a sentence or its tokens, see `SentencePredictor`. The output has `label`, the most probable
    class; `probabilities` of the classes, from negative to positive; and `tokens`, as the model read them.
    """

    example = '{"sentence": "A good film."} or {"tokens": ["A", "good", "film", "."]}'

    def readable_output(self, instances: List[Instance], outputs: List[JsonDict]) -> JsonDict:
        [output] = outputs
        return {
            "label": output["label"],
            "probabilities": output["probabilities"],
            "tokens": output["words"],
        }
