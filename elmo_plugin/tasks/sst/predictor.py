"""Says how positive or negative sentences are."""

from typing import List

from allennlp.common.util import JsonDict
from allennlp.data import Instance
from allennlp.data.tokenizers import Token
from allennlp.predictors import Predictor

from elmo_plugin.tasks.json_input import find_key, get_text, get_words
from elmo_plugin.tasks.task_predictor import TaskPredictor

EXAMPLE = '{"sentence": "A good film."} or {"tokens": ["A", "good", "film", "."]}'


@Predictor.register("elmo_sst")
class SstPredictor(TaskPredictor):
    """
    Predicts from `{"sentence": "A good film."}`, or from `{"tokens": ["A", "good", "film", "."]}` (`words` is
    the same). The output has

    - `label`, the most probable class;
    - `probabilities`, of each class, from negative to positive;
    - `tokens`, as the model read them;
    - for a sentence also `sentence` as given.

    Registered as a `Predictor` with name `elmo_sst`; its arguments are those of `TaskPredictor`.
    """

    example = EXAMPLE

    def predict_sentence(self, sentence: str) -> JsonDict:
        """The sentiment of a sentence."""
        return self.predict_json({"sentence": sentence})

    def predict_tokens(self, tokens: List[str]) -> JsonDict:
        """The sentiment of a sentence that is split into tokens."""
        return self.predict_json({"tokens": tokens})

    def instances_from_json(self, inputs: JsonDict) -> List[Instance]:
        key = find_key(inputs, ("sentence", "tokens", "words"), EXAMPLE)
        if key != "sentence":
            tokens = [Token(word) for word in get_words(inputs, key, EXAMPLE)]
            return [self._dataset_reader.text_to_instance(tokens)]
        sentence = get_text(inputs, key, EXAMPLE)
        instance = self._dataset_reader.text_to_instance(self._tokenizer.tokenize(sentence))
        instance["metadata"].metadata["sentence"] = sentence
        return [instance]

    def readable_output(self, instances: List[Instance], outputs: List[JsonDict]) -> JsonDict:
        [instance], [output] = instances, outputs
        classes = self._model.vocab.get_index_to_token_vocabulary(self._model.label_namespace)
        readable = {
            "label": output["label"],
            "probabilities": {
                classes[class_id]: probability
                for class_id, probability in enumerate(output["probabilities"])
            },
            "tokens": output["words"],
        }
        metadata = instance["metadata"].metadata
        if "sentence" in metadata:
            readable["sentence"] = metadata["sentence"]
        return readable
