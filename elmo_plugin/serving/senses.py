"""Nearest occurrences of a word in context, among a few sentences."""

from importlib import resources
from typing import Annotated, Any, Dict, List, Literal, NamedTuple, Optional, Sequence, Union

import numpy
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from elmo_plugin.embedding.elmo_embedder import ElmoEmbedder
from elmo_plugin.embedding.neighbors import (
    TOP_LAYER,
    Occurrence,
    check_layer,
    embed_occurrences,
    nearest_occurrences,
)
from elmo_plugin.embedding.sentences import tokenizer_of
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.serving.highlights import character_offsets
from elmo_plugin.serving.limits import TextTooLongError
from elmo_plugin.tasks.json_input import TEXT, is_text

MAX_SENTENCES = 1000


def _checked_text(text: str) -> str:
    if not is_text(text):
        raise ValueError(f"expected {TEXT}")
    return text


Text = Annotated[str, AfterValidator(_checked_text)]


class SensesRequest(BaseModel):
    """A word in a sentence, and the sentences whose occurrences of the word are compared with it."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"example": {"word": "bank", "sentence": "They sat on the river bank."}},
    )

    word: Text = Field(
        description="A token of the sentence. Upper and lower case are alike; its first occurrence counts."
    )
    sentence: Text = Field(description="Split into tokens by spaCy's rules for English.")
    sentences: Optional[List[Text]] = Field(
        None,
        description="What to compare with (default: the sentences that come with the package).",
        min_length=1,
        max_length=MAX_SENTENCES,
    )
    layer: Union[int, Literal["average"]] = Field(
        TOP_LAYER,
        description="0: the token representation, which does not depend on the context; 1, 2, ...: LSTM "
        "layers; -1: the last one; average: the mean of all.",
    )
    top: int = Field(10, description="Number of occurrences to return.", ge=1, le=MAX_SENTENCES)


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
        word = request.word.strip()
        if self._tokenize(word) != [word]:
            raise ConfigurationError(
                f"'word' is '{request.word[:40]}', expected one token. Send a single word of the sentence."
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
    assert offsets is not None  # spaCy's tokens are parts of the text
    start_char, end_char = offsets[occurrence.position]
    return {
        "sentence": sentence,
        "words": list(occurrence.tokens),
        "position": occurrence.position,
        "start_char": start_char,
        "end_char": end_char,
    }
