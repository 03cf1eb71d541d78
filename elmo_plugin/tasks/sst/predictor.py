"""Says how positive or negative sentences are."""

from typing import Any, Dict, List

from allennlp.common.util import JsonDict
from allennlp.data import Field, Instance
from allennlp.data.fields import LabelField
from allennlp.predictors import Predictor

from elmo_plugin.tasks.predicting import SentencePredictor

EXAMPLE = '{"sentence": "A good film."} or {"tokens": ["A", "good", "film", "."]}'


@Predictor.register("elmo_sst")
class SstPredictor(SentencePredictor):
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

    def predicted_labels(self, instance: Instance, output: Dict[str, Any]) -> Dict[str, Field]:
        return {"label": LabelField(output["label"], self._model.label_namespace)}
