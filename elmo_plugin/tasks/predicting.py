"""Shared by the predictors of all tasks: from JSON to predictions as JSON."""

from typing import Any, Dict, Iterable, List, Optional, Sequence, Tuple, Union

from allennlp.common import Params
from allennlp.common.util import JsonDict, sanitize
from allennlp.data import DatasetReader, Field, Instance
from allennlp.data.fields import ListField, MetadataField, TextField
from allennlp.data.tokenizers import Token, Tokenizer
from allennlp.models import Model
from allennlp.predictors import Predictor

from elmo_plugin.embedding.sentence_batches import batches_by_length
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.files.json_input import (
    LinePredictor,
    find_key,
    get_text,
    get_words,
    parse_json_object,
)
from elmo_plugin.tasks.reading import RuleBasedTokenizer

# The most in a batch, with padding. More instances are sorted by length and predicted in several batches.
_MAX_TOKENS = 4096


class TaskPredictor(LinePredictor, Predictor):
    """
    Base class of predictors: from JSON to instances, and from the model's output to readable JSON. The text
    of the input, the `sentence` or `document` of an instance's metadata, is part of the answer.

    A task defines `example`, `instances_from_json` and `readable_output`, and `predict`, which takes text.

    # Parameters

    tokenizer : `Tokenizer`, `dict` or `str`, optional
        Splits text into tokens; a tokenizer, its configuration, or its type. By default the tokenizer of the
        reader, or `RuleBasedTokenizer` for a reader without one.
    """

    example: str
    """Correct input, which errors repeat."""

    def __init__(
        self,
        model: Model,
        dataset_reader: DatasetReader,
        frozen: bool = True,
        tokenizer: Optional[Union[Tokenizer, Dict[str, Any], str]] = None,
    ) -> None:
        super().__init__(model, dataset_reader, frozen)
        if isinstance(tokenizer, str):
            tokenizer = {"type": tokenizer}
        if isinstance(tokenizer, dict):
            # A copy, because building from `Params` empties them.
            tokenizer = Tokenizer.from_params(Params(dict(tokenizer)))
        if tokenizer is not None and not isinstance(tokenizer, Tokenizer):
            raise ConfigurationError(
                f"tokenizer: found {tokenizer!r}, expected the type or the configuration of a tokenizer, "
                "such as whitespace. Correct it, or leave it out."
            )
        of_reader = getattr(dataset_reader, "tokenizer", None)
        self.tokenizer: Tokenizer = tokenizer or of_reader or RuleBasedTokenizer()

    def instances_from_json(self, inputs: JsonDict) -> List[Instance]:
        """Return the instances of an input, at least one. Raise `ConfigurationError` if it is invalid."""
        raise NotImplementedError

    def complete(self, groups: List[List[Instance]]) -> None:
        """
        Change the instances of several inputs before they are predicted, for a task that first needs another
        pass of the model, over all inputs together.
        """

    def readable_output(self, instances: List[Instance], outputs: List[JsonDict]) -> JsonDict:
        """
        Return the answer to an input, from its instances and the model's human-readable output for each.
        """
        raise NotImplementedError

    def answers_or_errors(
        self, inputs: Sequence[Union[JsonDict, str]]
    ) -> List[Union[JsonDict, ConfigurationError]]:
        """As `LinePredictor.answers_or_errors`, predicted in batches of similar length."""
        groups: List[Union[List[Instance], ConfigurationError]] = []
        for one_input in inputs:
            try:
                parsed = parse_json_object(one_input, self.example)
                groups.append(self.instances_from_json(parsed))
            except ConfigurationError as error:
                groups.append(error)
        valid = [group for group in groups if isinstance(group, list)]
        self.complete(valid)
        outputs = iter(self._run([instance for group in valid for instance in group]))
        answers = iter([self._answer(group, [next(outputs) for _ in group]) for group in valid])
        return [next(answers) if isinstance(group, list) else group for group in groups]

    def predict_instance(self, instance: Instance) -> JsonDict:
        return self.predict_batch_instance([instance])[0]

    def predict_batch_instance(self, instances: List[Instance]) -> List[JsonDict]:
        """Return a separate answer for each instance."""
        outputs = self._run(instances)
        return [self._answer([instance], [output]) for instance, output in zip(instances, outputs)]

    def _run(self, instances: List[Instance]) -> List[JsonDict]:
        """Return the model's human-readable outputs, computed in batches of instances of similar length."""
        for instance in instances:
            self._dataset_reader.apply_token_indexers(instance)
        lengths = [_num_tokens(instance) for instance in instances]
        outputs: List[JsonDict] = [{}] * len(instances)
        for positions in batches_by_length(lengths, _MAX_TOKENS):
            batch = [instances[position] for position in positions]
            batch_outputs = sanitize(self._model.forward_on_instances(batch))
            for position, output in zip(positions, batch_outputs):
                outputs[position] = output
        return outputs

    def _answer(self, instances: List[Instance], outputs: List[JsonDict]) -> JsonDict:
        metadata = instances[0]["metadata"].metadata
        given = {key: metadata[key] for key in ("sentence", "document") if key in metadata}
        return {**self.readable_output(instances, outputs), **given}


class SentencePredictor(TaskPredictor):
    """
    Predicts from `{"sentence": ...}`, a text, or from `{"tokens": [...]}`. The text is also stored as
    `sentence` in the metadata of its instances.
    """

    def predict(self, sentence: str) -> JsonDict:
        """Return the answer for a sentence."""
        return self.predict_json({"sentence": sentence})

    def predict_tokens(self, tokens: List[str]) -> JsonDict:
        """Return the answer for a sentence that is split into tokens."""
        return self.predict_json({"tokens": tokens})

    def instances_from_json(self, inputs: JsonDict) -> List[Instance]:
        key = find_key(inputs, ("sentence", "tokens"), self.example)
        if key == "tokens":
            tokens = [Token(word) for word in get_words(inputs, key, self.example)]
            return self.instances_of_tokens(tokens, inputs)
        sentence = get_text(inputs, key, self.example)
        instances = self.instances_of_tokens(self.tokenizer.tokenize(sentence), inputs)
        for instance in instances:
            instance["metadata"].metadata["sentence"] = sentence
        return instances

    def instances_of_tokens(self, tokens: List[Token], inputs: JsonDict) -> List[Instance]:
        """Return the instances of a sentence: one, unless a task overrides this."""
        return [self._dataset_reader.text_to_instance(tokens)]


@Predictor.register("elmo_tagger")
class TaggerPredictor(SentencePredictor):
    """
    Predictor of taggers, also of AllenNLP's own, such as `simple_tagger`, from a sentence or its tokens, see
    `SentencePredictor`. The output has `words` and `tags`, one of each per token.
    """

    example = '{"sentence": "John Smith lives in Paris."} or {"tokens": ["John", "Smith", "lives"]}'

    def instances_of_tokens(self, tokens: List[Token], inputs: JsonDict) -> List[Instance]:
        instances = super().instances_of_tokens(tokens, inputs)
        for instance in instances:
            # AllenNLP's taggers need no metadata, so that readers of other packages may give none.
            if "metadata" not in instance.fields:
                instance.add_field("metadata", MetadataField({}))
            instance["metadata"].metadata.setdefault("words", [token.text for token in tokens])
        return instances

    def readable_output(self, instances: List[Instance], outputs: List[JsonDict]) -> JsonDict:
        [instance], [output] = instances, outputs
        words = instance["metadata"].metadata["words"]
        return {"words": words, "tags": output["tags"][: len(words)]}  # without those of padding


def _num_tokens(instance: Instance) -> int:
    """Return the length of the longest text: a sentence, a passage, or the sentences of a document."""

    def length(field: Field) -> int:
        if isinstance(field, ListField):
            return sum(map(length, field.field_list))
        return field.sequence_length() if isinstance(field, TextField) else 0

    return max(map(length, instance.fields.values()))


def described_span(metadata: Dict[str, Any], start: int, end: int) -> JsonDict:
    """
    Return the tokens from `start` to `end` (exclusive) of a sentence or document, and their `text`. If the
    tokens have character offsets, the text is copied from the input, with `start_char` and `end_char`; if
    not, it is the tokens joined by spaces.
    """
    span = {"start": start, "end": end}
    given = metadata.get("sentence", metadata.get("document"))
    offsets = metadata.get("character_offsets")
    if given is None or offsets is None:
        return {**span, "text": " ".join(metadata["words"][start:end])}
    start_char, end_char = offsets[start][0], offsets[end - 1][1]
    text = given[start_char:end_char]
    return {**span, "text": text, "start_char": start_char, "end_char": end_char}


def bracketed(words: Sequence[str], spans: Iterable[Tuple[int, int, Any]]) -> str:
    """
    Return the words with spans in brackets, such as `[PER John Smith] lives in [LOC Paris] .`. A span is
    start, end (exclusive) and label. Spans may nest, but must not cross.
    """
    pieces = list(words)
    # Innermost spans first, so that the brackets of outer spans are outside.
    for start, end, label in sorted(spans, key=lambda span: (-span[0], span[1])):
        pieces[start] = f"[{label} {pieces[start]}"
        pieces[end - 1] += "]"
    return " ".join(pieces)
