"""What the predictors of tasks on single sentences have in common."""

from typing import List

from allennlp.common.util import JsonDict
from allennlp.data import Instance
from allennlp.data.tokenizers import Token

from elmo_plugin.tasks.json_input import find_key, get_text, get_words
from elmo_plugin.tasks.task_predictor import TaskPredictor


class SentencePredictor(TaskPredictor):
    """
    Predicts from `{"sentence": ...}`, a text, or from `{"tokens": [...]}` (`words` is the same). The metadata
    of a sentence's instance holds it as `sentence`.

    A task gives `example` and `readable_output`. Parameters and errors are those of `TaskPredictor`.
    """

    def predict_sentence(self, sentence: str) -> JsonDict:
        """The answer for a sentence."""
        return self.predict_json({"sentence": sentence})

    def predict_tokens(self, tokens: List[str]) -> JsonDict:
        """The answer for a sentence that is split into tokens."""
        return self.predict_json({"tokens": tokens})

    def instances_from_json(self, inputs: JsonDict) -> List[Instance]:
        key = find_key(inputs, ("sentence", "tokens", "words"), self.example)
        if key != "sentence":
            tokens = [Token(word) for word in get_words(inputs, key, self.example)]
            return [self._dataset_reader.text_to_instance(tokens)]
        sentence = get_text(inputs, key, self.example)
        instance = self._dataset_reader.text_to_instance(self._tokenizer.tokenize(sentence))
        instance["metadata"].metadata["sentence"] = sentence
        return [instance]
