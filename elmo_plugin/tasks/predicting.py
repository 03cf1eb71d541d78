"""Predict from JSON: what the predictors of all tasks share."""

import logging
from typing import Any, Dict, Iterable, List, Optional, Sequence, Tuple, Union

import spacy
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from allennlp.common.util import JsonDict, sanitize
from allennlp.data import Field, Instance
from allennlp.data.fields import LabelField
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
from elmo_plugin.tasks.tags import TagField

logger = logging.getLogger(__name__)


class TaskPredictor(Predictor):
    """
    From JSON to instances, and from what the model says of them to readable JSON. A text that was given,
    the `sentence` or `document` of an instance's metadata, is in the answer, too.

    Bad input raises `ConfigurationError`. Only in a file of JSON lines, as `allennlp predict` reads it, one
    bad line does not stop the others: it is answered with `{"error": ...}`, which says what was expected.

    A task gives `example`, `instances_from_json` and `readable_output`; and `predicted_labels`, if it has
    gold labels other than a `label` or `tags`.

    # Parameters

    dataset_reader : `TaskReader`
        The reader of the model.
    frozen : `bool`, optional (default = `True`)
        Put the model into evaluation mode.
    tokenizer : `Tokenizer` or `dict`, optional
        Splits text into tokens; a tokenizer or its configuration. By default as the reader splits the text of
        its files, or with `RuleBasedTokenizer` where these are split already.
    spacy_model : `str`, optional
        Name of an installed spaCy model, whose tokenizer is used in place of `tokenizer`.
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
        self._spacy_model = spacy_model

    def instances_from_json(self, inputs: JsonDict) -> List[Instance]:
        """The instances, at least one, that an input asks about. Raises `ConfigurationError` if it is bad."""
        raise NotImplementedError

    def readable_output(self, instances: List[Instance], outputs: List[JsonDict]) -> JsonDict:
        """The answer to an input, from its instances and the model's (human readable) output for each."""
        raise NotImplementedError

    def predicted_labels(self, instance: Instance, output: Dict[str, Any]) -> Dict[str, Field]:
        """The fields that hold gold labels, made from the model's (human readable) output for an instance."""
        namespace = self._model.label_namespace
        if "label" in output:
            return {"label": LabelField(output["label"], namespace)}
        return {"tags": TagField(output["tags"], instance["tokens"], namespace)}

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

    def predict_json(self, inputs: Union[JsonDict, str]) -> JsonDict:
        return self.predict_batch_json([inputs])[0]

    def predict_batch_json(self, inputs: List[Union[JsonDict, str]]) -> List[JsonDict]:
        """The answers to several inputs, or lines of a file, from one batch of all their instances."""
        groups: List[Union[List[Instance], ConfigurationError]] = []
        for one_input in inputs:
            is_line = isinstance(one_input, str)
            try:
                parsed = parse_json_object(one_input, self.example) if is_line else one_input
                groups.append(self.instances_from_json(parsed))
            except ConfigurationError as error:
                if not is_line:
                    raise
                logger.error("No prediction for a line: %s", error)
                groups.append(error)
        good_groups = [group for group in groups if isinstance(group, list)]
        outputs = iter(self._run([instance for group in good_groups for instance in group]))
        return [
            self._answer(group, [next(outputs) for _ in group])
            if isinstance(group, list)
            else {"error": str(group)}
            for group in groups
        ]

    def predict_instance(self, instance: Instance) -> JsonDict:
        return self.predict_batch_instance([instance])[0]

    def predict_batch_instance(self, instances: List[Instance]) -> List[JsonDict]:
        """An answer for each instance by itself."""
        outputs = self._run(instances)
        return [self._answer([instance], [output]) for instance, output in zip(instances, outputs)]

    def load_line(self, line: str) -> str:
        """The line itself: `predict_batch_json` parses it, and answers what is wrong with it."""
        return line.strip()

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

    def _answer(self, instances: List[Instance], outputs: List[JsonDict]) -> JsonDict:
        metadata = instances[0]["metadata"].metadata
        given = {key: metadata[key] for key in ("sentence", "document") if key in metadata}
        return {**self.readable_output(instances, outputs), **given}


class SentencePredictor(TaskPredictor):
    """
    Predicts from `{"sentence": ...}`, a text, or from `{"tokens": [...]}` (`words` is the same). The metadata
    of a sentence's instances holds it as `sentence`.
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
            return self.instances_of_tokens(tokens, inputs)
        sentence = get_text(inputs, key, self.example)
        instances = self.instances_of_tokens(self._tokenizer.tokenize(sentence), inputs)
        for instance in instances:
            instance["metadata"].metadata["sentence"] = sentence
        return instances

    def instances_of_tokens(self, tokens: List[Token], inputs: JsonDict) -> List[Instance]:
        """The instances of a sentence; one, if a task does not say otherwise."""
        return [self._dataset_reader.text_to_instance(tokens)]


def build_sentence_tokenizer(
    tokenizer: Optional[Union[Tokenizer, Dict[str, Any]]] = None,
    spacy_model: Optional[str] = None,
) -> Tokenizer:
    """
    The tokenizer that a predictor's arguments ask for; `RuleBasedTokenizer` if they ask for none. A spaCy
    model is one on this machine, and is never downloaded.
    """
    if spacy_model is None:
        if isinstance(tokenizer, dict):
            # A copy, since building from `Params` empties them.
            return Tokenizer.from_params(Params(dict(tokenizer)))
        return tokenizer or RuleBasedTokenizer()
    if tokenizer is not None:
        raise ConfigurationError(
            f"tokenizer and spacy_model ('{spacy_model}') are both given, expected at most one. "
            "Leave one of them out."
        )
    try:
        # AllenNLP's tokenizer would answer a missing model by downloading it.
        spacy.load(spacy_model)
    except OSError as error:
        raise ConfigurationError(
            f"spacy_model is '{spacy_model}', expected a spaCy model on this machine. Run "
            f"`python -m spacy download {spacy_model}`, or leave spacy_model out for spaCy's rules."
        ) from error
    return SpacyTokenizer(spacy_model, pos_tags=False)


def described_span(metadata: Dict[str, Any], start: int, end: int) -> JsonDict:
    """
    The tokens from `start` to `end` (exclusive) of a sentence or document, and their `text`: as it is written
    there, with `start_char` and `end_char`, if the tokens know where they stand; or else joined by spaces.
    """
    span = {"start": start, "end": end}
    given = metadata.get("sentence", metadata.get("document"))
    if given is None or "character_offsets" not in metadata:
        return {**span, "text": " ".join(metadata["words"][start:end])}
    start_char, _ = metadata["character_offsets"][start]
    _, end_char = metadata["character_offsets"][end - 1]
    text = given[start_char:end_char]
    return {**span, "text": text, "start_char": start_char, "end_char": end_char}


def bracketed(words: Sequence[str], spans: Iterable[Tuple[int, int, str]]) -> str:
    """
    The words with spans in brackets, such as `[PER John Smith] lives in [LOC Paris] .`. The spans, start, end
    (exclusive) and label of each, may nest, but do not cross.
    """
    pieces = list(words)
    # The innermost first, so that brackets of outer ones stand outside.
    for start, end, label in sorted(spans, key=lambda span: (-span[0], span[1])):
        pieces[start] = f"[{label} {pieces[start]}"
        pieces[end - 1] += "]"
    return " ".join(pieces)
