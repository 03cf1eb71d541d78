"""Find the semantic roles of predicates in text."""

from typing import Any, Dict, List

from allennlp.common.util import JsonDict
from allennlp.data import Instance
from allennlp.data.tokenizers import Token
from allennlp.predictors import Predictor

from elmo_plugin.errors import ConfigurationError
from elmo_plugin.files.json_input import find_key, shown_json
from elmo_plugin.tasks.predicting import SentencePredictor, bracketed, described_span
from elmo_plugin.tasks.tags import tags_to_spans

# The key in the metadata of a sentence whose predicates the model is to find.
_TO_BE_FOUND = "predicates_to_be_found"

# What a spaCy tagger calls them.
_VERBS = ("VERB", "AUX")


@Predictor.register("elmo_srl")
class SrlPredictor(SentencePredictor):
    """
    Predicts from `{"tokens": ["The", "cat", ...], "predicates": [2, 4]}` (`words` is the same as `tokens`;
    `predicates` are indices of tokens, counted from 0), or from a `sentence` with `predicates`. The output
    has `words`, and

    - `predicates`, a list with, of each predicate, `predicate` (its word), `index`, `tags` (BIO, one per
      word), `arguments` (a list with `role`, `start`, `end`, token indices, `end` exclusive, and `text`) and
      `description`: `[ARG0: The cat] [V: sat] and slept`. It is empty if there are no predicates.

    Where no predicates are given, a model that was trained with `finder_dim` finds them. With other models
    the verbs are used, if the `tokenizer` is of type `spacy` with a `language` that tags them and `pos_tags`.
    """

    example = '{"tokens": ["The", "cat", "sat", "and", "slept"], "predicates": [2, 4]}'

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self._model.predicate_finder is not None:
            self.example = f'{{"sentence": "The cat sat and slept."}} or {self.example}'

    def instances_of_tokens(self, tokens: List[Token], inputs: JsonDict) -> List[Instance]:
        if "predicates" not in inputs and self._model.predicate_finder is not None:
            instance = self._dataset_reader.text_to_instance(tokens)
            instance["metadata"].metadata[_TO_BE_FOUND] = True
            return [instance]
        return self._instances_of_predicates(tokens, self._get_predicates(inputs, tokens))

    def completed(self, groups: List[List[Instance]]) -> List[List[Instance]]:
        """Find the predicates of all sentences that have none given, in one batched pass."""
        to_search = [group[0] for group in groups if _TO_BE_FOUND in group[0]["metadata"].metadata]
        outputs = iter(self._run(to_search))
        completed = []
        for group in groups:
            metadata = group[0]["metadata"].metadata
            if metadata.pop(_TO_BE_FOUND, False):
                probabilities = next(outputs)["predicate_probabilities"]
                tokens = group[0]["tokens"].tokens
                predicates = [i for i in range(len(tokens)) if probabilities[i] > 0.5]
                group = self._instances_of_predicates(tokens, predicates)
                if "sentence" in metadata:
                    group[0]["metadata"].metadata["sentence"] = metadata["sentence"]
            completed.append(group)
        return completed

    def readable_output(self, instances: List[Instance], outputs: List[JsonDict]) -> JsonDict:
        metadata = instances[0]["metadata"].metadata
        predicates = []
        for instance, output in zip(instances, outputs):
            index = instance["metadata"].metadata["predicate_index"]
            if index is not None:
                predicates.append(_describe(metadata, index, output["tags"]))
        return {"words": metadata["words"], "predicates": predicates}

    def _instances_of_predicates(
        self, tokens: List[Token], predicates: List[int]
    ) -> List[Instance]:
        """Return an instance for each predicate of a sentence, and one if it has none."""
        to_instance = self._dataset_reader.text_to_instance
        return [to_instance(tokens, index) for index in predicates] or [to_instance(tokens)]

    def _get_predicates(self, inputs: JsonDict, tokens: List[Token]) -> List[int]:
        if "predicates" not in inputs and any(token.pos_ for token in tokens):
            return [index for index, token in enumerate(tokens) if token.pos_ in _VERBS]
        num_tokens = len(tokens)
        predicates = inputs[find_key(inputs, ["predicates"], self.example)]
        # True and False are integers to Python.
        if (
            not isinstance(predicates, list)
            or not all(type(index) is int and 0 <= index < num_tokens for index in predicates)
            or len(set(predicates)) < len(predicates)
        ):
            raise ConfigurationError(
                f"'predicates' is {shown_json(predicates)}, expected a list of different indices of the "
                f"{num_tokens} tokens, 0 to {num_tokens - 1}, as in {self.example}"
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
