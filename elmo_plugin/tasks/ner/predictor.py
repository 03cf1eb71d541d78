"""Finds named entities in text."""

from typing import Any, Dict, List, Sequence

from allennlp.common.util import JsonDict
from allennlp.data import Field, Instance
from allennlp.predictors import Predictor

from elmo_plugin.tasks.sentence_predictor import SentencePredictor
from elmo_plugin.tasks.tag_field import TagField
from elmo_plugin.tasks.tag_schemes import Span, tags_to_spans

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
            "spans": [_describe_span(span, metadata) for span in spans],
            "tagged": _bracket_spans(words, spans),
        }
        if "sentence" in metadata:
            readable["sentence"] = metadata["sentence"]
        return readable

    def predicted_labels(self, instance: Instance, output: Dict[str, Any]) -> Dict[str, Field]:
        namespace = self._model.label_namespace
        return {"tags": TagField(output["tags"], instance["tokens"], namespace)}


def _describe_span(span: Span, metadata: Dict[str, Any]) -> JsonDict:
    description = {
        "label": span.label,
        "start": span.start,
        "end": span.end,
        "text": " ".join(metadata["words"][span.start : span.end]),
    }
    if "sentence" in metadata and "character_offsets" in metadata:
        start_char, _ = metadata["character_offsets"][span.start]
        _, end_char = metadata["character_offsets"][span.end - 1]
        # As it is written, which need not be with one space between tokens.
        description["text"] = metadata["sentence"][start_char:end_char]
        description["start_char"], description["end_char"] = start_char, end_char
    return description


def _bracket_spans(words: Sequence[str], spans: List[Span]) -> str:
    pieces = list(words)
    for span in spans:
        pieces[span.start] = f"[{span.label} {pieces[span.start]}"
        pieces[span.end - 1] += "]"
    return " ".join(pieces)
