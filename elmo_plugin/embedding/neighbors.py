"""Occurrences of one word in text: their vectors in context, nearest neighbours and clusters."""

import random
from typing import Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple, Union

import numpy
from tqdm import tqdm

from elmo_plugin.embedding.elmo_embedder import DEFAULT_BATCH_SIZE, ElmoEmbedder
from elmo_plugin.embedding.sentences import SentenceSource
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.files.text_lines import split_tokens

AVERAGE = "average"
TOP_LAYER = -1
TOKEN_REPRESENTATION = 0

# A number of a layer, from 0; `TOP_LAYER`; or `AVERAGE`, of all layers.
Layer = Union[int, str]

_K_MEANS_STARTS = 10  # of which the best result is taken


class Occurrence(NamedTuple):
    """A token of a sentence that is the word."""

    tokens: Tuple[str, ...]
    position: int
    line_index: Optional[int] = None  # from 0; `None` if the sentence is not from a file

    @property
    def word(self) -> str:
        """As it is spelled here."""
        return self.tokens[self.position]

    @property
    def marked_sentence(self) -> str:
        """The sentence with the word between two asterisks on each side."""
        return " ".join(
            f"**{token}**" if position == self.position else token
            for position, token in enumerate(self.tokens)
        )

    def has_context_of(self, other: "Occurrence") -> bool:
        """Whether both are the same word of the same sentence, on whatever line."""
        return self.tokens == other.tokens and self.position == other.position


class FoundOccurrences(NamedTuple):
    """Occurrences in the order of the text, and how many there are in all of it."""

    occurrences: List[Occurrence]
    num_found: int


class Neighbor(NamedTuple):
    """An occurrence, and the cosine similarity, from -1 to 1, of its vector to what it was compared with."""

    occurrence: Occurrence
    similarity: float


class Cluster(NamedTuple):
    """Occurrences with similar vectors, the most central one first."""

    members: List[int]  # indices of occurrences
    neighbors: List[Neighbor]  # the same, with the similarity to the mean of the cluster


def find_occurrences(
    source: SentenceSource,
    word: str,
    ignore_case: bool = False,
    max_occurrences: int = 5000,
    seed: int = 0,
) -> FoundOccurrences:
    """
    Read a text once, to its end, and keep the occurrences of a word.

    # Parameters

    source : `SentenceSource`
        The text.
    word : `str`
        One token.
    ignore_case : `bool`, optional (default = `False`)
        Count the word in other case too.
    max_occurrences : `int`, optional (default = 5000)
        Of more occurrences a random sample of this number is kept: each has the same chance. (A sample that
        is spread evenly would need a second reading, which a pipe does not allow.)
    seed : `int`, optional (default = 0)
        Decides the sample.

    # Raises

    `ConfigurationError` if the text does not hold the word, or is not as `SentenceSource` expects.
    """
    generator = random.Random(seed)
    kept: List[Occurrence] = []
    num_found = 0
    found_in_other_case: Optional[str] = None
    folded = word.casefold()
    for sentence in source.sentences():
        tokens = tuple(sentence.tokens)
        for position, token in enumerate(tokens):
            if token != word:
                if token.casefold() != folded:
                    continue
                if not ignore_case:
                    found_in_other_case = token
                    continue
            num_found += 1
            # Vitter's algorithm R: the n-th is kept with probability max_occurrences / n.
            place = len(kept) if num_found <= max_occurrences else generator.randrange(num_found)
            if place < max_occurrences:
                kept[place : place + 1] = [Occurrence(tokens, position, sentence.line_index)]
    if not kept:
        raise _not_found(source.name, word, found_in_other_case)
    return FoundOccurrences(sorted(kept, key=_text_order), num_found)


def find_in_sentence(sentence: str, word: str, ignore_case: bool = False) -> Occurrence:
    """
    The first occurrence of a word in a sentence, whose tokens are set apart by white space.

    # Raises

    `ConfigurationError` if the sentence does not hold it.
    """
    tokens = tuple(split_tokens(sentence))
    folded = word.casefold()
    in_any_case = [position for position, token in enumerate(tokens) if token.casefold() == folded]
    matching = [position for position in in_any_case if ignore_case or tokens[position] == word]
    if not matching:
        other = tokens[in_any_case[0]] if in_any_case else None
        raise _not_found(f"--sentence '{sentence}'", word, other)
    return Occurrence(tokens, matching[0])


def num_distinct_contexts(occurrences: Iterable[Occurrence], layer: Layer) -> int:
    """
    Number of vectors of a layer that can differ: one for each word of a sentence, however many lines it is
    on; of the token representation, one for each spelling.
    """
    if layer == TOKEN_REPRESENTATION:
        return len({occurrence.word for occurrence in occurrences})
    return len({(occurrence.tokens, occurrence.position) for occurrence in occurrences})


def check_layer(layer: Layer, num_layers: Optional[int] = None) -> None:
    """Raise `ConfigurationError` if `layer` is no `Layer`, or none of a biLM with `num_layers`."""
    highest = "2" if num_layers is None else str(num_layers - 1)
    if layer == AVERAGE or (
        isinstance(layer, int) and layer >= TOP_LAYER and (num_layers is None or layer < num_layers)
    ):
        return
    raise ConfigurationError(
        f"--layer: found {layer}, expected a number from 0, the token representation, to that of the last "
        f"layer ({highest}{', in the paper' if num_layers is None else ' of this biLM'}); "
        f"{TOP_LAYER} for the last; or {AVERAGE}. Give one of these."
    )


def embed_occurrences(
    embedder: ElmoEmbedder,
    occurrences: Sequence[Occurrence],
    layer: Layer = TOP_LAYER,
    batch_tokens: Optional[int] = None,
) -> numpy.ndarray:
    """
    The vectors of a word in its sentences. A sentence that is there several times is embedded once, and
    of its other words nothing is kept.

    # Returns

    float32 array of shape `(num_occurrences, dim)`. Each row has length 1, so that products of rows are
    cosine similarities.
    """
    bilm = embedder.elmo_bilm
    check_layer(layer, bilm.num_layers)
    rows_of_sentence: Dict[Tuple[str, ...], List[int]] = {}
    for row, occurrence in enumerate(occurrences):
        rows_of_sentence.setdefault(occurrence.tokens, []).append(row)
    # Reads ahead, which takes no memory here: the sentences are there already.
    all_layers = embedder.embed_sentences(
        (list(tokens) for tokens in rows_of_sentence), DEFAULT_BATCH_SIZE, batch_tokens
    )
    vectors = numpy.empty((len(occurrences), bilm.get_output_dim()), dtype=numpy.float32)
    with tqdm(total=len(rows_of_sentence), unit=" sentences", desc="embedding") as progress:
        # layers: (num_layers, num_tokens, dim)
        for layers, rows in zip(all_layers, rows_of_sentence.values()):
            for row in rows:
                position = occurrences[row].position
                vectors[row] = (
                    layers[:, position].mean(axis=0)
                    if isinstance(layer, str)  # AVERAGE
                    else layers[layer, position]
                )
            progress.update()
    return _of_length_one(vectors)


def nearest_occurrences(
    query: Occurrence,
    query_vector: numpy.ndarray,
    occurrences: Sequence[Occurrence],
    vectors: numpy.ndarray,
    top: int = 10,
) -> List[Neighbor]:
    """
    The occurrences whose vectors are most similar to that of a query (paper, table 4).

    # Parameters

    query, query_vector
        The vector is `(dim,)`, of length 1. If its own sentence is in the text, that one is no neighbour.
    occurrences, vectors
        Those to choose from; vectors are `(num_occurrences, dim)`, of length 1.
    top : `int`, optional (default = 10)
        At most this many are returned, the nearest first; of equally near ones, the first of the text.
    """
    similarities = vectors @ query_vector  # (num_occurrences,)
    order = numpy.argsort(-similarities, kind="stable")
    others = [index for index in order if not occurrences[index].has_context_of(query)]
    return [Neighbor(occurrences[index], float(similarities[index])) for index in others[:top]]


def cluster_occurrences(
    occurrences: Sequence[Occurrence], vectors: numpy.ndarray, num_clusters: int = 2, seed: int = 0
) -> List[Cluster]:
    """
    Clusters of occurrences by k-means.

    # Parameters

    occurrences, vectors
        Vectors are `(num_occurrences, dim)`, of length 1: Euclidean distance then orders them as cosine
        similarity does.
    num_clusters : `int`, optional (default = 2)
        No more than there are distinct vectors.
    seed : `int`, optional (default = 0)
        Of the starting points.

    # Returns

    The largest cluster first. Every occurrence is in exactly one.
    """
    from sklearn.cluster import KMeans

    k_means = KMeans(num_clusters, n_init=_K_MEANS_STARTS, random_state=seed)
    labels = k_means.fit_predict(vectors)  # (num_occurrences,)
    centers = _of_length_one(k_means.cluster_centers_)  # (num_clusters, dim)
    clusters = []
    for label in range(num_clusters):
        members = numpy.flatnonzero(labels == label)
        similarities = vectors[members] @ centers[label]  # (num_members,)
        order = numpy.argsort(-similarities, kind="stable")
        neighbors = [
            Neighbor(occurrences[members[index]], float(similarities[index])) for index in order
        ]
        clusters.append(Cluster(members[order].tolist(), neighbors))
    return sorted(clusters, key=lambda cluster: (-len(cluster.members), cluster.members))


def _not_found(place: str, word: str, in_other_case: Optional[str]) -> ConfigurationError:
    advice = (
        "Give a word of the text. Tokens are set apart by white space, so that a word with a comma or full "
        "stop attached is another one."
        if in_other_case is None
        else f"But it holds '{in_other_case}': give --ignore-case (ignore_case=True) to match any case."
    )
    return ConfigurationError(f"{place}: does not hold the word '{word}'. {advice}")


def _text_order(occurrence: Occurrence) -> Tuple[int, int]:
    assert occurrence.line_index is not None
    return occurrence.line_index, occurrence.position


def _of_length_one(vectors: numpy.ndarray) -> numpy.ndarray:
    """The rows over their lengths; a row of zeros, similar to nothing, stays."""
    lengths = numpy.linalg.norm(vectors, axis=1, keepdims=True)  # (num_rows, 1)
    return vectors / numpy.maximum(lengths, numpy.finfo(numpy.float32).tiny)
