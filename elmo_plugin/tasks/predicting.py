"""Predict from JSON: what the predictors of all tasks share."""

import logging
from typing import Any, Dict, Iterable, List, Optional, Sequence, Tuple, Union

import spacy
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from allennlp.common.util import JsonDict, sanitize
from allennlp.data import Field, Instance
from allennlp.data.tokenizers import SpacyTokenizer, Token, Tokenizer
from allennlp.models import Model
from allennlp.predictors import Predictor

from elmo_plugin.tasks.json_input import (
    dump_json_line,
    find_key,
    get_text,
    get_words,
    parse_json_object,
)
from elmo_plugin.tasks.reading import RuleBasedTokenizer, TaskReader

logger = logging.getLogger(__name__)


class TaskPredictor(Predictor):
    """
    From JSON to instances, and from what the model says of them to readable JSON.

    Bad input raises `ConfigurationError`. Only in a file of JSON lines, as `allennlp predict` reads it, one
    bad line does not stop the others: it is answered with `{"error": ...}`, which says what was expected.

    A task gives `example`, `instances_from_json`, `readable_output` and `predicted_labels`.

    # Parameters

    model : `Model`
    dataset_reader : `TaskReader`
        The reader of the model.
    frozen : `bool`, optional (default = `True`)
        Put the model into evaluation mode.
    tokenizer : `Tokenizer` or `dict`, optional
        Splits text into tokens; a tokenizer or its configuration. By default as the reader splits the text of
        its files, or with `RuleBasedTokenizer` where these are split already.
    spacy_model : `str`, optional
        Name of an installed spaCy model, whose tokenizer is used in place of `tokenizer`.

    # Raises

    `ConfigurationError` if both are given, or the spaCy model is not on this machine.
    """

    example: str
    """Correct input, which errors repeat."""

    def __init__(
        self,
        model: Model,
        dataset_reader: TaskReader,
        frozen: bool = True,
        tokenizer: Optional[Union[Tokenizer, Dict[str, Any]]] = None,
        spacy_model: Optional[str] = None,
    ) -> None:
        super().__init__(model, dataset_reader, frozen)
        if tokenizer is None and spacy_model is None:
            tokenizer = dataset_reader.tokenizer
        self._tokenizer = build_sentence_tokenizer(tokenizer, spacy_model)

    def instances_from_json(self, inputs: JsonDict) -> List[Instance]:
        """The instances, at least one, that an input asks about. Raises `ConfigurationError` if it is bad."""
        raise NotImplementedError

    def readable_output(self, instances: List[Instance], outputs: List[JsonDict]) -> JsonDict:
        """The answer to an input, from its instances and the model's (human readable) output for each."""
        raise NotImplementedError

    def predicted_labels(self, instance: Instance, output: Dict[str, Any]) -> Dict[str, Field]:
        """The fields that hold gold labels, made from the model's (human readable) output for an instance."""
        raise NotImplementedError

    def predictions_to_labeled_instances(
        self, instance: Instance, outputs: Dict[str, Any]
    ) -> List[Instance]:
        """
        A copy of the instance with what the model predicts as its gold labels, for AllenNLP's interpreters
        and attackers.
        """
        labeled = instance.duplicate()
        for name, field in self.predicted_labels(labeled, outputs).items():
            labeled.add_field(name, field, self._model.vocab)
        return [labeled]

    def predict_json(self, inputs: JsonDict) -> JsonDict:
        return self.predict_batch_json([inputs])[0]

    def predict_batch_json(self, inputs: List[JsonDict]) -> List[JsonDict]:
        """The answers to several inputs, from one batch of all their instances."""
        errors: Dict[int, JsonDict] = {}
        instances_of: Dict[int, List[Instance]] = {}
        for index, one_input in enumerate(inputs):
            try:
                if isinstance(one_input, _Line) and one_input.error is not None:
                    raise one_input.error
                instances_of[index] = self.instances_from_json(one_input)
            except ConfigurationError as error:
                if not isinstance(one_input, _Line):
                    raise
                logger.error("No prediction for a line: %s", error)
                errors[index] = {"error": str(error)}
        all_instances = [instance for group in instances_of.values() for instance in group]
        outputs = iter(self._run(all_instances))
        answers = {
            index: self.readable_output(group, [next(outputs) for _ in group])
            for index, group in instances_of.items()
        }
        return [
            errors[index] if index in errors else answers[index] for index in range(len(inputs))
        ]

    def predict_instance(self, instance: Instance) -> JsonDict:
        return self.predict_batch_instance([instance])[0]

    def predict_batch_instance(self, instances: List[Instance]) -> List[JsonDict]:
        """An answer for each instance by itself."""
        outputs = self._run(instances)
        return [
            self.readable_output([instance], [output])
            for instance, output in zip(instances, outputs, strict=True)
        ]

    def load_line(self, line: str) -> JsonDict:
        try:
            return _Line(parse_json_object(line, self.example))
        except ConfigurationError as error:
            return _Line({}, error)

    def dump_line(self, outputs: JsonDict) -> str:
        return dump_json_line(outputs)

    def _json_to_instance(self, json_dict: JsonDict) -> Instance:
        # AllenNLP's interpreters and attackers ask for one.
        return self.instances_from_json(json_dict)[0]

    def _run(self, instances: List[Instance]) -> List[JsonDict]:
        if not instances:
            return []
        for instance in instances:
            self._dataset_reader.apply_token_indexers(instance)
        return sanitize(self._model.forward_on_instances(instances))


class _Line(dict):
    """A line of a file: the object that it holds, or why it holds none."""

    def __init__(self, inputs: JsonDict, error: Optional[ConfigurationError] = None) -> None:
        super().__init__(inputs)
        self.error = error


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


def build_sentence_tokenizer(
    tokenizer: Optional[Union[Tokenizer, Dict[str, Any]]] = None,
    spacy_model: Optional[str] = None,
) -> Tokenizer:
    """
    The tokenizer that a predictor's arguments ask for; `RuleBasedTokenizer` if they ask for none.

    # Parameters

    tokenizer : `Tokenizer` or `dict`, optional
        A tokenizer, or the configuration of one: `allennlp predict --predictor-args` hands its JSON
        to the predictor as it is.
    spacy_model : `str`, optional
        Name or folder of a spaCy model on this machine whose own tokenizer is wanted.

    # Raises

    `ConfigurationError` if both are given, or the model is not on this machine. It is never
    downloaded.
    """
    if tokenizer is not None and spacy_model is not None:
        raise ConfigurationError(
            f"tokenizer and spacy_model ('{spacy_model}') are both given, expected at most one. "
            "Leave one of them out."
        )
    if spacy_model is not None:
        return _load_spacy_tokenizer(spacy_model)
    if isinstance(tokenizer, dict):
        # A copy, since building from `Params` empties them.
        return Tokenizer.from_params(Params(dict(tokenizer)))
    return tokenizer or RuleBasedTokenizer()


def _load_spacy_tokenizer(spacy_model: str) -> Tokenizer:
    try:
        # AllenNLP's tokenizer would answer a missing model by downloading it.
        spacy.load(spacy_model)
    except OSError as error:
        raise ConfigurationError(
            f"spacy_model is '{spacy_model}', expected a spaCy model on this machine. Run "
            f"`python -m spacy download {spacy_model}`, or leave spacy_model out for spaCy's rules."
        ) from error
    return SpacyTokenizer(spacy_model, pos_tags=False)


def span_text(metadata: Dict[str, Any], start: int, end: int, text_key: str) -> JsonDict:
    """
    The text of the tokens from `start` to `end` (exclusive): as it is written at `text_key` of the metadata,
    with `start_char` and `end_char`, if the tokens know where they stand; or else joined by spaces.
    """
    if text_key not in metadata or "character_offsets" not in metadata:
        return {"text": " ".join(metadata["words"][start:end])}
    start_char, _ = metadata["character_offsets"][start]
    _, end_char = metadata["character_offsets"][end - 1]
    text = metadata[text_key][start_char:end_char]
    return {"text": text, "start_char": start_char, "end_char": end_char}


def bracketed(words: Sequence[str], spans: Iterable[Tuple[int, int, str]]) -> str:
    """
    The words with spans in brackets, such as `[PER John Smith] lives in [LOC Paris] .`.

    # Parameters

    words : `Sequence[str]`
    spans : `Iterable[Tuple[int, int, str]]`
        Start, end (exclusive) and label of each. They may nest, but do not cross.
    """
    pieces = list(words)
    # The innermost first, so that brackets of outer ones stand outside.
    for start, end, label in sorted(spans, key=lambda span: (-span[0], span[1])):
        pieces[start] = f"[{label} {pieces[start]}"
        pieces[end - 1] += "]"
    return " ".join(pieces)
