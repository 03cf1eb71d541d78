"""Nearest occurrences of a word in context, among a few sentences."""

from dataclasses import dataclass
from importlib import resources
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Union

import numpy

from elmo_plugin.embedding.elmo_embedder import ElmoEmbedder
from elmo_plugin.embedding.neighbors import (
    AVERAGE,
    TOP_LAYER,
    Layer,
    Occurrence,
    check_layer,
    embed_occurrences,
    nearest_occurrences,
)
from elmo_plugin.embedding.sentences import tokenizer_of
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.files.json_input import get_text, get_words, shown_json
from elmo_plugin.serving.highlights import character_offsets
from elmo_plugin.serving.limits import TextTooLongError

DEFAULT_TOP = 10

_EXAMPLE = '{"word": "bank", "sentence": "They sat on the river bank."}'

# Of the body, in the words of OpenAPI.
REQUEST_SCHEMA: Dict[str, Any] = {
    "type": "object",
    "required": ["word", "sentence"],
    "properties": {
        "word": {
            "type": "string",
            "description": "A token of the sentence, in upper or lower case. Its first occurrence counts.",
        },
        "sentence": {
            "type": "string",
            "description": "Split into tokens by spaCy's rules for English.",
        },
        "sentences": {
            "type": "array",
            "items": {"type": "string"},
            "description": "What to compare with; by default the sentences that come with the package.",
        },
        "layer": {
            "anyOf": [{"type": "integer"}, {"const": AVERAGE}],
            "default": TOP_LAYER,
            "description": "0: the token representation, which does not depend on the context; 1, 2, ...: "
            f"LSTM layers; {TOP_LAYER}: the last one; {AVERAGE}: the mean of all.",
        },
        "top": {
            "type": "integer",
            "minimum": 1,
            "default": DEFAULT_TOP,
            "description": "Number of occurrences to return.",
        },
    },
    "additionalProperties": False,
    "example": {"word": "bank", "sentence": "They sat on the river bank."},
}


@dataclass(frozen=True)
class SensesRequest:
    """A word in a sentence, and the sentences whose occurrences of the word are compared with it."""

    word: str
    sentence: str
    sentences: Optional[Sequence[str]] = None
    layer: Layer = TOP_LAYER
    top: int = DEFAULT_TOP

    @classmethod
    def from_json(cls, inputs: Dict[str, Any]) -> "SensesRequest":
        """Check the keys and their types. Raise `ConfigurationError` for a wrong one."""
        for key in inputs:
            if key not in REQUEST_SCHEMA["properties"]:
                keys = ", ".join(REQUEST_SCHEMA["properties"])
                raise ConfigurationError(
                    f"Found the key {shown_json(key)}, expected {keys}, as in {_EXAMPLE}"
                )
        layer, top = inputs.get("layer", TOP_LAYER), inputs.get("top", DEFAULT_TOP)
        # True and False are integers to Python.
        if type(layer) is not int and layer != AVERAGE:
            raise ConfigurationError(
                f"'layer' is {shown_json(layer)}, expected the number of a layer, or {AVERAGE}."
            )
        if type(top) is not int or top < 1:
            raise ConfigurationError(f"'top' is {shown_json(top)}, expected a positive number.")
        return cls(
            get_text(inputs, "word", _EXAMPLE).strip(),
            get_text(inputs, "sentence", _EXAMPLE),
            get_words(inputs, "sentences", _EXAMPLE) if "sentences" in inputs else None,
            layer,
            top,
        )


class _Found(NamedTuple):
    """An occurrence, and its sentence as it was given."""

    occurrence: Occurrence
    sentence: str


class SenseFinder:
    """
    Compares occurrences of words by their vectors in context.

    # Parameters

    name : `str`
        Name of the biLM.
    embedder : `ElmoEmbedder`
        The biLM.
    max_tokens : `int`
        Tokens that a sentence may have.
    """

    def __init__(self, name: str, embedder: ElmoEmbedder, max_tokens: int) -> None:
        self._name = name
        self._embedder = embedder
        self._max_tokens = max_tokens
        self._tokenize = tokenizer_of("spacy")
        text = resources.files("elmo_plugin.serving").joinpath("sentences.txt").read_text("utf-8")
        self._sentences = text.splitlines()

    def description(self) -> Dict[str, Any]:
        """Return what clients should know."""
        return {
            "bilm": self._name,
            "num_layers": self._embedder.num_layers,
            "sentences": self._sentences,
        }

    def answers(self, batch: Sequence[SensesRequest]) -> List[Union[Dict[str, Any], Exception]]:
        """
        Return the answer to each request, or what is wrong with it: `TextTooLongError` or
        `ConfigurationError`. The sentences of all requests are embedded together.
        """
        results: List[Any] = []
        for request in batch:
            try:
                results.append(self._found(request))
            except (ConfigurationError, TextTooLongError) as error:
                results.append(error)
        for layer in {request.layer for request in batch}:
            places = [
                place
                for place, request in enumerate(batch)
                if request.layer == layer and not isinstance(results[place], Exception)
            ]
            if not places:
                continue
            counts = [len(results[place]) for place in places]
            occurrences = [found.occurrence for place in places for found in results[place]]
            vectors = embed_occurrences(self._embedder, occurrences, layer, show_progress=False)
            of_requests = numpy.split(vectors, numpy.cumsum(counts)[:-1])
            for place, own_vectors in zip(places, of_requests):
                results[place] = self._compared(batch[place], results[place], own_vectors)
        return results

    def _found(self, request: SensesRequest) -> List[_Found]:
        """Return the occurrence in the sentence, and those in the others."""
        check_layer(request.layer, self._embedder.num_layers, "'layer'")
        word = request.word
        if self._tokenize(word) != [word]:
            raise ConfigurationError(
                f"'word' is {shown_json(word)}, expected one token. Send a single word of the sentence."
            )
        query = self._in_sentence(word, request.sentence, "'sentence'")
        if not query:
            raise ConfigurationError(
                f"'sentence' does not hold the word '{word}'. Send a sentence with the word as a token."
            )
        others = []
        sentences = self._sentences if request.sentences is None else request.sentences
        for index, sentence in enumerate(sentences):
            others += self._in_sentence(word, sentence, f"'sentences'[{index}]", index)
        if not others:
            raise ConfigurationError(
                f"'sentences' do not hold the word '{word}'. Send sentences with the word as a token."
            )
        return [query[0], *others]

    def _in_sentence(
        self, word: str, sentence: str, key: str, index: Optional[int] = None
    ) -> List[_Found]:
        # Most sentences do not hold the word.
        if word.casefold() not in sentence.casefold():
            return []
        tokens = tuple(self._tokenize(sentence))
        if len(tokens) > self._max_tokens:
            raise TextTooLongError(key, len(tokens), self._max_tokens)
        return [
            _Found(Occurrence(tokens, position, index), sentence)
            for position, token in enumerate(tokens)
            if token.casefold() == word.casefold()
        ]

    def _compared(
        self, request: SensesRequest, found: List[_Found], vectors: numpy.ndarray
    ) -> Dict[str, Any]:
        query, *others = (one.occurrence for one in found)
        nearest = nearest_occurrences(query, vectors[0], others, vectors[1:], request.top)
        sentence_of = {id(occurrence): sentence for occurrence, sentence in found}
        return {
            "bilm": self._name,
            "layer": request.layer,
            "num_occurrences": len(others),
            "query": _described(query, request.sentence),
            "neighbors": [
                {
                    **_described(occurrence, sentence_of[id(occurrence)]),
                    "index": occurrence.line_index,
                    "similarity": similarity,
                }
                for occurrence, similarity in nearest
            ],
        }


def _described(occurrence: Occurrence, sentence: str) -> Dict[str, Any]:
    offsets = character_offsets(occurrence.tokens, sentence)
    # spaCy's tokens are parts of the text, and the occurrence is no whole sentence.
    assert offsets is not None and occurrence.position is not None
    start_char, end_char = offsets[occurrence.position]
    return {
        "sentence": sentence,
        "words": list(occurrence.tokens),
        "position": occurrence.position,
        "start_char": start_char,
        "end_char": end_char,
    }
