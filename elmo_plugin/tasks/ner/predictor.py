"""Finds named entities in text."""

from typing import Any, Dict, List, Optional, Sequence, Union

from allennlp.common.util import JsonDict
from allennlp.data import DatasetReader, Instance
from allennlp.data.tokenizers import Token, Tokenizer
from allennlp.predictors import Predictor

from elmo_plugin.tasks.json_input import (
    dump_json_line,
    find_key,
    get_text,
    get_words,
    parse_json_object,
)
from elmo_plugin.tasks.ner.model import NerTagger
from elmo_plugin.tasks.sentence_tokenizer import build_sentence_tokenizer
from elmo_plugin.tasks.tag_schemes import Span, tags_to_spans

EXAMPLE = '{"sentence": "John Smith lives in Paris."} or {"tokens": ["John", "Smith", "lives"]}'


@Predictor.register("elmo_ner")
class NerPredictor(Predictor):
    """
    Predicts from `{"sentence": "John Smith lives in Paris."}`, or from `{"tokens": ["John",
    "Smith", ...]}` (`words` is the same). The output has

    - `words` and `tags`, one of each per token;
    - `spans`, a list with `label`, `start`, `end` (token indices, `end` exclusive) and `text` of
      each;
    - `tagged`, the words with spans in brackets: `[PER John Smith] lives in [LOC Paris] .`;
    - for a sentence also `sentence` as given, and in each span `start_char`, `end_char` (characters
      of `sentence`, `end_char` exclusive), if the tokenizer knows where tokens stand.

    Registered as a `Predictor` with name `elmo_ner`.

    # Parameters

    model : `NerTagger`
    dataset_reader : `DatasetReader`
        The `NerReader` of the model.
    frozen : `bool`, optional (default = `True`)
        Put the model into evaluation mode.
    tokenizer : `Tokenizer` or `dict`, optional (default = `RuleBasedTokenizer`)
        Splits sentences; a tokenizer or its configuration.
    spacy_model : `str`, optional
        Name of an installed spaCy model, whose tokenizer splits sentences in place of `tokenizer`.

    # Raises

    `ConfigurationError` for input that is malformed or empty, saying what was found and expected.
    """

    def __init__(
        self,
        model: NerTagger,
        dataset_reader: DatasetReader,
        frozen: bool = True,
        tokenizer: Optional[Union[Tokenizer, Dict[str, Any]]] = None,
        spacy_model: Optional[str] = None,
    ) -> None:
        super().__init__(model, dataset_reader, frozen)
        self._label_scheme = model.label_scheme
        self._tokenizer = build_sentence_tokenizer(tokenizer, spacy_model)

    def predict_sentence(self, sentence: str) -> JsonDict:
        """The entities of a sentence."""
        return self.predict_json({"sentence": sentence})

    def predict_tokens(self, tokens: List[str]) -> JsonDict:
        """The entities of a sentence that is split into tokens."""
        return self.predict_json({"tokens": tokens})

    def predict_instance(self, instance: Instance) -> JsonDict:
        return self._readable_output(instance, super().predict_instance(instance))

    def predict_batch_instance(self, instances: List[Instance]) -> List[JsonDict]:
        outputs = super().predict_batch_instance(instances)
        return [
            self._readable_output(instance, output)
            for instance, output in zip(instances, outputs, strict=True)
        ]

    def load_line(self, line: str) -> JsonDict:
        return parse_json_object(line, EXAMPLE)

    def dump_line(self, outputs: JsonDict) -> str:
        return dump_json_line(outputs)

    def _json_to_instance(self, json_dict: JsonDict) -> Instance:
        key = find_key(json_dict, ("sentence", "tokens", "words"), EXAMPLE)
        if key != "sentence":
            words = get_words(json_dict, key, EXAMPLE)
            return self._dataset_reader.text_to_instance([Token(word) for word in words])
        sentence = get_text(json_dict, key, EXAMPLE)
        instance = self._dataset_reader.text_to_instance(self._tokenizer.tokenize(sentence))
        instance["metadata"].metadata["sentence"] = sentence
        return instance

    def _readable_output(self, instance: Instance, output: JsonDict) -> JsonDict:
        metadata = instance["metadata"].metadata
        words, tags = output["words"], output["tags"]
        spans = tags_to_spans(tags, self._label_scheme)
        readable = {
            "words": words,
            "tags": tags,
            "spans": [_describe_span(span, metadata) for span in spans],
            "tagged": _bracket_spans(words, spans),
        }
        if "sentence" in metadata:
            readable["sentence"] = metadata["sentence"]
        return readable


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
