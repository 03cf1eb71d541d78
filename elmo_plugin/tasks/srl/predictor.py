"""Find the semantic roles of predicates in text."""

import json
from functools import partial
from typing import Any, Dict, List, Optional

from allennlp.common.util import JsonDict
from allennlp.data import Instance
from allennlp.data.fields import MetadataField
from allennlp.data.tokenizers import SpacyTokenizer, Token
from allennlp.predictors import Predictor

from elmo_plugin.errors import ConfigurationError
from elmo_plugin.files.json_input import find_key
from elmo_plugin.tasks.predicting import SentencePredictor, bracketed, described_span
from elmo_plugin.tasks.tags import tags_to_spans

# The key in the metadata of a sentence whose predicates the model is to find.
_TO_BE_FOUND = "predicates_to_be_found"

# Of Universal Dependencies, as spaCy tags them. PropBank has auxiliaries as predicates, too.
_VERB_TAGS = ("VERB", "AUX")


@Predictor.register("elmo_srl")
class SrlPredictor(SentencePredictor):
    """
    Predicts from `{"tokens": ["The", "cat", ...], "predicates": [2, 4]}` (`words` is the same as `tokens`;
    `predicates` are indices of tokens, counted from 0), or from `{"sentence": "The cat sat and slept."}`,
    with or without `predicates`. The output has `words`, and

    - `predicates`, a list with, of each predicate, `predicate` (its word), `index`, `tags` (BIO, one per
      word), `arguments` (a list with `role`, `start`, `end`, token indices, `end` exclusive, and `text`) and
      `description`: `[ARG0: The cat] [V: sat] and slept`. It is empty if there are no predicates.

    Without `predicates`, a model that was trained with `finder_dim` finds them itself. For any other, all
    verbs and auxiliaries of a sentence are predicates. This needs a tagger: a spaCy model, `--predictor-args
    '{"spacy_model": "en_core_web_sm"}'`, or a `tokenizer` that tags parts of speech.
    """

    example = '{"tokens": ["The", "cat", "sat", "and", "slept"], "predicates": [2, 4]}'

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self._model.predicate_finder is not None:
            self.example = f'{{"sentence": "The cat sat and slept."}} or {self.example}'
        if self._spacy_model is not None:
            self._tokenizer = SpacyTokenizer(self._spacy_model, pos_tags=True)

    def predict_tokens(self, tokens: List[str], predicates: Optional[List[int]] = None) -> JsonDict:
        """Return the roles in a sentence that is already split into tokens."""
        return self._predict({"tokens": tokens}, predicates)

    def predict_sentence(self, sentence: str, predicates: Optional[List[int]] = None) -> JsonDict:
        """Return the roles in a sentence. Without predicates, the model or a tagger finds them."""
        return self._predict({"sentence": sentence}, predicates)

    def instances_of_tokens(self, tokens: List[Token], inputs: JsonDict) -> List[Instance]:
        to_instance = partial(self._dataset_reader.text_to_instance, tokens)
        if "predicates" not in inputs and self._model.predicate_finder is not None:
            instance = to_instance()
            instance["metadata"].metadata[_TO_BE_FOUND] = True
            return [instance]
        if "sentence" in inputs and "predicates" not in inputs:
            predicates = self._find_verbs(tokens)
        else:
            predicates = self._get_predicates(inputs, len(tokens))
        # A sentence without predicates has one instance.
        return [to_instance(index) for index in predicates] or [to_instance()]

    def completed(self, groups: List[List[Instance]]) -> List[List[Instance]]:
        """Find the predicates of all sentences that have none given, in one batched pass."""
        to_search = [group[0] for group in groups if _TO_BE_FOUND in group[0]["metadata"].metadata]
        outputs = iter(self._run(to_search))
        return [
            self._with_predicates(group[0], next(outputs)["predicate_probabilities"])
            if _TO_BE_FOUND in group[0]["metadata"].metadata
            else group
            for group in groups
        ]

    def readable_output(self, instances: List[Instance], outputs: List[JsonDict]) -> JsonDict:
        metadata = instances[0]["metadata"].metadata
        predicates = []
        for instance, output in zip(instances, outputs):
            index = instance["metadata"].metadata["predicate_index"]
            if index is not None:
                predicates.append(_describe(metadata, index, output["tags"]))
        return {"words": metadata["words"], "predicates": predicates}

    def _predict(self, inputs: JsonDict, predicates: Optional[List[int]]) -> JsonDict:
        if predicates is not None:
            inputs["predicates"] = predicates
        return self.predict_json(inputs)

    def _with_predicates(self, sentence: Instance, probabilities: List[float]) -> List[Instance]:
        """Return an instance for each probable predicate of a sentence, or the sentence if there is none."""
        tokens = sentence["tokens"].tokens
        instances = []
        for index in range(len(tokens)):
            if probabilities[index] > 0.5:
                instance = self._dataset_reader.text_to_instance(tokens, index)
                metadata = {**sentence["metadata"].metadata, **instance["metadata"].metadata}
                instance.fields["metadata"] = MetadataField(metadata)
                instances.append(instance)
        return instances or [sentence]

    def _find_verbs(self, tokens: List[Token]) -> List[int]:
        if not any(token.pos_ for token in tokens):
            found = (
                "no tagger finds the verbs"
                if self._spacy_model is None
                else f"spacy_model '{self._spacy_model}' does not tag parts of speech"
            )
            raise ConfigurationError(
                f"Found a sentence without 'predicates', and {found}. Give the indices of its predicates, as "
                f"in {self.example}, or name an installed spaCy model with a tagger: "
                '--predictor-args \'{"spacy_model": "en_core_web_sm"}\'.'
            )
        return [index for index, token in enumerate(tokens) if token.pos_ in _VERB_TAGS]

    def _get_predicates(self, inputs: JsonDict, num_tokens: int) -> List[int]:
        predicates = inputs[find_key(inputs, ["predicates"], self.example)]
        if not isinstance(predicates, list):
            raise ConfigurationError(
                f"'predicates' is {json.dumps(predicates)}, expected a list of token indices, as in "
                f"{self.example}"
            )
        for place, index in enumerate(predicates):
            # True and False are integers to Python.
            if type(index) is not int or not 0 <= index < num_tokens:
                raise ConfigurationError(
                    f"'predicates'[{place}] is {json.dumps(index)}, expected the index of one of the "
                    f"{num_tokens} tokens, 0 to {num_tokens - 1}, as in {self.example}"
                )
            if index in predicates[:place]:
                raise ConfigurationError(
                    f"'predicates'[{place}] is {index} again, expected each predicate once, as in "
                    f"{self.example}"
                )
        return predicates


def _describe(metadata: Dict[str, Any], index: int, tags: List[str]) -> JsonDict:
    words = metadata["words"]
    spans = tags_to_spans(tags, "BIO")
    return {
        "predicate": words[index],
        "index": index,
        "tags": tags,
        "arguments": [
            {"role": role, **described_span(metadata, start, end)} for start, end, role in spans
        ],
        "description": bracketed(words, [(start, end, f"{role}:") for start, end, role in spans]),
    }
