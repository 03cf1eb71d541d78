"""Occurrences of a word in text, or whole sentences: their vectors and nearest neighbors."""

import random
from typing import Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import numpy

from elmo_plugin.embedding.elmo_embedder import ElmoEmbedder
from elmo_plugin.embedding.layers import (
    TOP_LAYER,
    Layer,
    check_layer,
    choose_layer,
    of_length_one,
    pool_tokens,
)
from elmo_plugin.embedding.sentences import Sentence
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.files.progress import progress_bar


class Occurrence(NamedTuple):
    """A position of the word in a sentence; or a whole sentence, if `position` is `None`."""

    tokens: Tuple[str, ...]
    position: Optional[int]
    line_index: int  # from 0

    @property
    def marked_sentence(self) -> str:
        """The sentence with the word between two asterisks on each side."""
        return " ".join(
            f"**{token}**" if position == self.position else token
            for position, token in enumerate(self.tokens)
        )


class FoundOccurrences(NamedTuple):
    """Occurrences in the order of the text, perhaps a sample, and the number of all occurrences."""

    occurrences: List[Occurrence]
    num_found: int


class Neighbor(NamedTuple):
    """An occurrence, and the cosine similarity of its vector to that of a query, from -1 to 1."""

    occurrence: Occurrence
    similarity: float


def find_occurrences(
    sentences: Iterable[Sentence],
    word: Optional[str],
    place: str,
    ignore_case: bool = False,
    max_occurrences: int = 5000,
) -> FoundOccurrences:
    """
    Find the occurrences of a word in sentences, which are read once.

    # Parameters

    word : `str`, optional
        One token; `None` for whole sentences, each of which is an occurrence.
    place : `str`
        Name of the text, for the error.
    max_occurrences : `int`, optional (default = 5000)
        If there are more occurrences, a random sample of this number is kept, in which each occurrence has
        the same probability. The same text has the same sample.

    # Raises

    `ConfigurationError` if no sentence holds the word.
    """
    generator = random.Random(0)
    kept: List[Tuple[int, Occurrence]] = []
    num_found = 0
    # Vitter's algorithm R reads the text once, as a pipe requires.
    for occurrence in _all_occurrences(sentences, word, ignore_case):
        num_found += 1
        # The n-th occurrence is kept with probability max_occurrences / n.
        place_in_sample = (
            len(kept) if num_found <= max_occurrences else generator.randrange(num_found)
        )
        if place_in_sample < max_occurrences:
            kept[place_in_sample : place_in_sample + 1] = [(num_found, occurrence)]
    if not kept:
        wanted = "a sentence" if word is None else f"the word '{word}'"
        raise ConfigurationError(
            f"{place}: does not hold {wanted}. Give one token, in the spelling and case of the text; "
            "punctuation that is attached to a word is part of its token, unless a tokenizer separates it."
        )
    return FoundOccurrences([occurrence for _, occurrence in sorted(kept)], num_found)


def _all_occurrences(
    sentences: Iterable[Sentence], word: Optional[str], ignore_case: bool
) -> Iterator[Occurrence]:
    for sentence in sentences:
        tokens = tuple(sentence.tokens)
        if word is None:
            yield Occurrence(tokens, None, sentence.line_index)
            continue
        for position, token in enumerate(tokens):
            if token == word or (ignore_case and token.casefold() == word.casefold()):
                yield Occurrence(tokens, position, sentence.line_index)


def embed_occurrences(
    embedder: ElmoEmbedder,
    occurrences: Sequence[Occurrence],
    layer: Layer = TOP_LAYER,
    pool: Optional[str] = None,
    show_progress: bool = True,
) -> numpy.ndarray:
    """
    Compute the vectors of words in sentences; or those of whole sentences, pooled as `pool_tokens` does.
    Equal sentences are embedded once, and the vectors of other words are not kept.

    # Returns

    float32 array of shape `(num_occurrences, dim)`. Rows have length 1, so that dot products of rows are
    cosine similarities.

    # Raises

    `ConfigurationError` if the biLM has no such layer.
    """
    check_layer(layer, embedder.num_layers)
    rows_of_sentence: Dict[Tuple[str, ...], List[int]] = {}
    for row, occurrence in enumerate(occurrences):
        rows_of_sentence.setdefault(occurrence.tokens, []).append(row)
    vectors = numpy.empty((len(occurrences), embedder.get_output_dim()), dtype=numpy.float32)
    progress = progress_bar(
        rows_of_sentence.values(), "embedding", unit=" sentences", disable=not show_progress
    )
    # layers: (num_layers, num_tokens, dim)
    for rows, layers in zip(progress, embedder.embed_sentences(rows_of_sentence)):
        of_tokens = choose_layer(layers, layer)  # (num_tokens, dim)
        for row in rows:
            position = occurrences[row].position
            vectors[row] = of_tokens[position] if pool is None else pool_tokens(of_tokens, pool)
    return of_length_one(vectors).astype(numpy.float32)


def nearest_occurrences(
    query: Occurrence,
    query_vector: numpy.ndarray,
    occurrences: Sequence[Occurrence],
    vectors: numpy.ndarray,
    top: int,
) -> List[Neighbor]:
    """
    Return the occurrences that are most similar to a query, at most `top` (paper, table 4). The nearest come
    first; equally near ones are in the order of the text. The query itself, on any line, is left out.

    `query_vector` is `(dim,)` and `vectors` is `(num_occurrences, dim)`; each vector has length 1.
    """
    # (num_occurrences,), rounded: products of equal rows differ in their last digits.
    similarities = (vectors.astype(float) @ query_vector.astype(float)).clip(-1.0, 1.0).round(6)
    order = numpy.argsort(-similarities, kind="stable")
    others = [index for index in order if occurrences[index][:2] != query[:2]]
    return [Neighbor(occurrences[index], float(similarities[index])) for index in others[:top]]
