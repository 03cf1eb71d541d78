"""Finds the semantic roles of predicates in text."""

import json
from typing import Any, Dict, List, Optional, Union

from allennlp.common.checks import ConfigurationError
from allennlp.common.util import JsonDict
from allennlp.data import DatasetReader, Field, Instance
from allennlp.data.tokenizers import SpacyTokenizer, Token, Tokenizer
from allennlp.models import Model
from allennlp.predictors import Predictor

from elmo_plugin.tasks.json_input import find_key, get_text, get_words
from elmo_plugin.tasks.predicting import TaskPredictor, bracketed
from elmo_plugin.tasks.tags import TagField, tags_to_spans

EXAMPLE = '{"tokens": ["The", "cat", "sat", "and", "slept"], "predicates": [2, 4]}'

# Of Universal Dependencies, as spaCy tags them. PropBank has auxiliaries as predicates, too.
_VERB_TAGS = ("VERB", "AUX")


@Predictor.register("elmo_srl")
class SrlPredictor(TaskPredictor):
    """
    Predicts from `{"tokens": ["The", "cat", ...], "predicates": [2, 4]}` (`words` is the same as `tokens`;
    `predicates` are indices of tokens, from 0 on), or from `{"sentence": "The cat sat and slept."}`, with
    `predicates` as well, or where they are to be found by a tagger. The output has

    - `words`;
    - `predicates`, a list with, of each predicate, `predicate` (its word), `index`, `tags` (BIO, one per
      word), `arguments` (a list with `role`, `start`, `end`, token indices, `end` exclusive, and `text`) and
      `description`: `[ARG0: The cat] [V: sat] and slept`. It is empty if there are no predicates;
    - for a sentence also `sentence` as given.

    In a sentence alone all verbs and auxiliaries are predicates. This needs a tagger, a spaCy model:
    `--predictor-args '{"spacy_model": "en_core_web_sm"}'`.

    Registered as a `Predictor` with name `elmo_srl`; its arguments are those of `TaskPredictor`, where a
    `tokenizer` that tags parts of speech also finds the predicates.
    """

    example = EXAMPLE

    def __init__(
        self,
        model: Model,
        dataset_reader: DatasetReader,
        frozen: bool = True,
        tokenizer: Optional[Union[Tokenizer, Dict[str, Any]]] = None,
        spacy_model: Optional[str] = None,
    ) -> None:
        # Validates `spacy_model`.
        super().__init__(model, dataset_reader, frozen, tokenizer, spacy_model)
        self._spacy_model = spacy_model
        if spacy_model is not None:
            self._tokenizer = SpacyTokenizer(spacy_model, pos_tags=True)

    def predict_tokens(self, tokens: List[str], predicates: List[int]) -> JsonDict:
        """The roles in a sentence that is split into tokens."""
        return self.predict_json({"tokens": tokens, "predicates": predicates})

    def predict_sentence(self, sentence: str, predicates: Optional[List[int]] = None) -> JsonDict:
        """The roles in a sentence; of its verbs, as a tagger finds them, if no predicates are given."""
        inputs: JsonDict = {"sentence": sentence}
        if predicates is not None:
            inputs["predicates"] = predicates
        return self.predict_json(inputs)

    def instances_from_json(self, inputs: JsonDict) -> List[Instance]:
        key = find_key(inputs, ("tokens", "words", "sentence"), EXAMPLE)
        if key == "sentence":
            sentence = get_text(inputs, key, EXAMPLE)
            tokens = self._tokenizer.tokenize(sentence)
        else:
            tokens = [Token(word) for word in get_words(inputs, key, EXAMPLE)]
        if key == "sentence" and "predicates" not in inputs:
            predicates = self._find_verbs(tokens)
        else:
            predicates = _get_predicates(inputs, len(tokens))
        instances = [
            self._dataset_reader.text_to_instance(tokens, index) for index in predicates
        ] or [self._dataset_reader.text_to_instance(tokens)]  # stands for a sentence without any
        if key == "sentence":
            for instance in instances:
                instance["metadata"].metadata["sentence"] = sentence
        return instances

    def readable_output(self, instances: List[Instance], outputs: List[JsonDict]) -> JsonDict:
        metadata = instances[0]["metadata"].metadata
        readable = {
            "words": metadata["words"],
            "predicates": [
                _describe(metadata["words"], index, output["tags"])
                for instance, output in zip(instances, outputs)
                if (index := instance["metadata"].metadata["predicate_index"]) is not None
            ],
        }
        if "sentence" in metadata:
            readable["sentence"] = metadata["sentence"]
        return readable

    def predicted_labels(self, instance: Instance, output: Dict[str, Any]) -> Dict[str, Field]:
        namespace = self._model.label_namespace
        return {"tags": TagField(output["tags"], instance["tokens"], namespace)}

    def _find_verbs(self, tokens: List[Token]) -> List[int]:
        if not any(token.pos_ for token in tokens):
            found = (
                "no tagger finds the verbs"
                if self._spacy_model is None
                else f"spacy_model '{self._spacy_model}' gives no parts of speech to find verbs by"
            )
            raise ConfigurationError(
                f"Found a sentence without 'predicates', and {found}. Give the indices of its predicates, as "
                f"in {EXAMPLE}, or name an installed spaCy model with a tagger: "
                '--predictor-args \'{"spacy_model": "en_core_web_sm"}\'.'
            )
        return [index for index, token in enumerate(tokens) if token.pos_ in _VERB_TAGS]


def _get_predicates(inputs: JsonDict, num_tokens: int) -> List[int]:
    find_key(inputs, ["predicates"], EXAMPLE)
    predicates = inputs["predicates"]
    if not isinstance(predicates, list):
        raise ConfigurationError(
            f"'predicates' is {json.dumps(predicates)}, expected a list of token indices, as in {EXAMPLE}"
        )
    last = num_tokens - 1
    for place, index in enumerate(predicates):
        # True and False are integers to Python.
        if type(index) is not int or not 0 <= index <= last:
            raise ConfigurationError(
                f"'predicates'[{place}] is {json.dumps(index)}, expected the index of one of the "
                f"{num_tokens} tokens, 0 to {last}, as in {EXAMPLE}"
            )
        if index in predicates[:place]:
            raise ConfigurationError(
                f"'predicates'[{place}] is {index} again, expected each predicate once, as in {EXAMPLE}"
            )
    return predicates


def _describe(words: List[str], index: int, tags: List[str]) -> JsonDict:
    spans = tags_to_spans(tags, "BIO")
    return {
        "predicate": words[index],
        "index": index,
        "tags": tags,
        "arguments": [
            {
                "role": span.label,
                "start": span.start,
                "end": span.end,
                "text": " ".join(words[span.start : span.end]),
            }
            for span in spans
        ],
        "description": bracketed(words, [(start, end, f"{role}:") for start, end, role in spans]),
    }
