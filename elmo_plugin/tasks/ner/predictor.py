"""Finds named entities in text."""

from typing import Any, Dict, List

from allennlp.common.util import JsonDict
from allennlp.data import Field, Instance
from allennlp.predictors import Predictor

from elmo_plugin.tasks.predicting import SentencePredictor, bracketed, span_text
from elmo_plugin.tasks.tags import TagField, tags_to_spans

EXAMPLE = '{"sentence": "John Smith lives in Paris."} or {"tokens": ["John", "Smith", "lives"]}'


@Predictor.register("elmo_ner")
class NerPredictor(SentencePredictor):
    """
    Predicts from `{"sentence": "John Smith lives in Paris."}`, or from `{"tokens": ["John",
    "Smith", ...]}` (`words` is the same). The output has

    - `words` and `tags`, one of each per token;
    - `spans`, a list with `label`, `start`, `end` (token indices, `end` exclusive) and `text` of
      each;
    - `tagged`, the words with spans in brackets: `[PER John Smith] lives in [LOC Paris] .`;
    - for a sentence also `sentence` as given, and in each span `start_char`, `end_char` (characters
      of `sentence`, `end_char` exclusive), if the tokenizer knows where tokens stand.

    Registered as a `Predictor` with name `elmo_ner`; its arguments are those of `TaskPredictor`.
    """

    example = EXAMPLE

    def readable_output(self, instances: List[Instance], outputs: List[JsonDict]) -> JsonDict:
        [instance], [output] = instances, outputs
        metadata = instance["metadata"].metadata
        words, tags = output["words"], output["tags"]
        spans = tags_to_spans(tags, self._model.label_scheme)
        readable = {
            "words": words,
            "tags": tags,
            "spans": [
                {
                    "label": label,
                    "start": start,
                    "end": end,
                    **span_text(metadata, start, end, "sentence"),
                }
                for start, end, label in spans
            ],
            "tagged": bracketed(words, spans),
        }
        if "sentence" in metadata:
            readable["sentence"] = metadata["sentence"]
        return readable

    def predicted_labels(self, instance: Instance, output: Dict[str, Any]) -> Dict[str, Field]:
        namespace = self._model.label_namespace
        return {"tags": TagField(output["tags"], instance["tokens"], namespace)}
