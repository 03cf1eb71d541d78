"""Predict whether a hypothesis follows from a premise."""

from typing import List

from allennlp.common.util import JsonDict
from allennlp.data import Instance
from allennlp.predictors import Predictor

from elmo_plugin.files.json_input import find_key, get_text
from elmo_plugin.tasks.predicting import TaskPredictor

# Keys of the premise, each with the key of the hypothesis that goes with it.
_HYPOTHESIS_KEYS = {"premise": "hypothesis", "sentence1": "sentence2"}


@Predictor.register("elmo_snli")
class SnliPredictor(TaskPredictor):
    """
    Predicts from `{"premise": "A man sleeps outside.", "hypothesis": "A man sleeps."}`; `sentence1` and
    `sentence2` are the same, so lines of SNLI can be given unchanged. The output has

    - `label`, the most probable of `entailment`, `neutral` and `contradiction`;
    - `probabilities`, of each label by its name;
    - `premise_words` and `hypothesis_words`, the tokens that the model read.
    """

    example = '{"premise": "A man sleeps outside.", "hypothesis": "A man sleeps."}'

    def instances_from_json(self, inputs: JsonDict) -> List[Instance]:
        premise_key = find_key(inputs, list(_HYPOTHESIS_KEYS), self.example)
        keys = (premise_key, _HYPOTHESIS_KEYS[premise_key])
        texts = [get_text(inputs, key, self.example) for key in keys]
        return [self._dataset_reader.text_to_instance(*map(self.tokenizer.tokenize, texts))]

    def readable_output(self, instances: List[Instance], outputs: List[JsonDict]) -> JsonDict:
        [output] = outputs
        keys = ("label", "probabilities", "premise_words", "hypothesis_words")
        return {key: output[key] for key in keys}
