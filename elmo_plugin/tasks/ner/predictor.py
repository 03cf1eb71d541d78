"""Find named entities in text."""

from typing import List

from allennlp.common.util import JsonDict
from allennlp.data import Instance
from allennlp.predictors import Predictor

from elmo_plugin.tasks.predicting import SentencePredictor, bracketed, described_span
from elmo_plugin.tasks.tags import tags_to_spans


@Predictor.register("elmo_ner")
class NerPredictor(SentencePredictor):
    """
    Predicts from a sentence or its tokens, see `SentencePredictor`. The output has

    - `words` and `tags`, one of each per token;
    - `spans`, a list with `label` and `described_span` of each;
    - `tagged`, the words with spans in brackets: `[PER John Smith] lives in [LOC Paris] .`.
    """

    example = '{"sentence": "John Smith lives in Paris."} or {"tokens": ["John", "Smith", "lives"]}'

    def readable_output(self, instances: List[Instance], outputs: List[JsonDict]) -> JsonDict:
        [instance], [output] = instances, outputs
        metadata = instance["metadata"].metadata
        spans = tags_to_spans(output["tags"], self._model.label_scheme)
        return {
            "words": output["words"],
            "tags": output["tags"],
            "spans": [
                {"label": label, **described_span(metadata, start, end)}
                for start, end, label in spans
            ],
            "tagged": bracketed(output["words"], spans),
        }
