"""Answer questions about passages."""

from typing import List

from allennlp.common.util import JsonDict
from allennlp.data import Instance
from allennlp.predictors import Predictor

from elmo_plugin.files.json_input import get_text
from elmo_plugin.tasks.predicting import TaskPredictor


@Predictor.register("elmo_squad")
class SquadPredictor(TaskPredictor):
    """
    Predicts from `{"passage": "It rained in Paris.", "question": "Where did it rain?"}`. The output has

    - `question` as given, and `id` for a question of a file that has them;
    - `best_span_text`, the answer: an exact part of the passage;
    - `start_char` and `end_char`, its characters in the passage, `end_char` exclusive;
    - `start` and `end`, its tokens, `end` exclusive, and `passage_words`, the tokens of the passage;
    - `probability`, the probability of its start times that of its end, each over all tokens of the passage.
    """

    example = '{"passage": "It rained in Paris.", "question": "Where did it rain?"}'

    def instances_from_json(self, inputs: JsonDict) -> List[Instance]:
        passage, question = (get_text(inputs, key, self.example) for key in ("passage", "question"))
        return [self._dataset_reader.text_to_instance(question, passage, tokenizer=self.tokenizer)]

    def readable_output(self, instances: List[Instance], outputs: List[JsonDict]) -> JsonDict:
        [instance], [output] = instances, outputs
        metadata = instance["metadata"].metadata
        first, last = output["best_span"]
        start_char, end_char = output["best_span_characters"]
        return {
            **({} if metadata["id"] is None else {"id": metadata["id"]}),
            "question": metadata["question"],
            "best_span_text": output["best_span_text"],
            "start_char": start_char,
            "end_char": end_char,
            "start": first,
            "end": last + 1,
            "probability": output["span_probability"],
            "passage_words": [token.text for token in instance["passage"]],
        }
