"""
Find the occurrences of a word, or the sentences, in text, and compare their vectors: nearest neighbors and
clusters.
"""

import random
from numbers import Integral
from typing import Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Tuple, Union

import numpy
from tqdm import tqdm

from elmo_plugin.embedding.elmo_embedder import DEFAULT_BATCH_SIZE, ElmoEmbedder
from elmo_plugin.embedding.pooling import of_length_one, pool_tokens
from elmo_plugin.embedding.sentences import Sentence
from elmo_plugin.errors import ConfigurationError, needing

AVERAGE = "average"
TOP_LAYER = -1
TOKEN_REPRESENTATION = 0

# The index of a layer, from 0; `TOP_LAYER`; or `AVERAGE`, the mean of all layers.
Layer = Union[int, str]

_K_MEANS_STARTS = 10  # runs of k-means, of which the best is kept


class Occurrence(NamedTuple):
    """A position of the word in a sentence; or a whole sentence, if `position` is `None`."""

    tokens: Tuple[str, ...]
    position: Optional[int]
    line_index: Optional[int] = None  # from 0; `None` if the sentence is not from a text

    @property
    def text(self) -> str:
        """The word, as it is spelled in this sentence; or the sentence."""
        return " ".join(self.tokens) if self.position is None else self.tokens[self.position]

    @property
    def marked_sentence(self) -> str:
        """The sentence with the word between two asterisks on each side."""
        return " ".join(
            f"**{token}**" if position == self.position else token
            for position, token in enumerate(self.tokens)
        )

    def has_context_of(self, other: "Occurrence") -> bool:
        """Return whether both are the same word of the same sentence, or the same sentence, on any line."""
        return self.tokens == other.tokens and self.position == other.position


class FoundOccurrences(NamedTuple):
    """Occurrences in the order of the text, perhaps a sample, and the number of all occurrences."""

    occurrences: List[Occurrence]
    num_found: int


class Neighbor(NamedTuple):
    """An occurrence, and the cosine similarity of its vector to a query or cluster, from -1 to 1."""

    occurrence: Occurrence
    similarity: float


class Cluster(NamedTuple):
    """Occurrences with similar vectors, the one nearest to their mean first."""

    members: List[int]  # indices of the occurrences
    neighbors: List[Neighbor]  # the same occurrences, with their similarity to the mean


def find_occurrences(
    sentences: Iterable[Sentence],
    word: Optional[str],
    place: str,
    ignore_case: bool = False,
    max_occurrences: int = 5000,
    seed: int = 0,
) -> FoundOccurrences:
    """
    Find the occurrences of a word in sentences, which are read once.

    # Parameters

    sentences : `Iterable[Sentence]`
        The sentences, in the order of the text.
    word : `str`, optional
        One token; `None` for whole sentences, each of which is an occurrence.
    place : `str`
        What holds the sentences, for the error: the name of a file, or an option.
    ignore_case : `bool`, optional (default = `False`)
        Match upper and lower case.
    max_occurrences : `int`, optional (default = 5000)
        If there are more occurrences, a random sample of this number is kept, in which each occurrence has
        the same probability.
    seed : `int`, optional (default = 0)
        Seed of the sample.

    # Raises

    `ConfigurationError` if no sentence holds the word.
    """
    found_in_other_case: Optional[str] = None
    folded = None if word is None else word.casefold()

    def occurrences() -> Iterator[Occurrence]:
        nonlocal found_in_other_case
        for sentence in sentences:
            tokens = tuple(sentence.tokens)
            if word is None:
                yield Occurrence(tokens, None, sentence.line_index)
                continue
            for position, token in enumerate(tokens):
                if token == word or (ignore_case and token.casefold() == folded):
                    yield Occurrence(tokens, position, sentence.line_index)
                elif token.casefold() == folded:
                    found_in_other_case = token

    found = _sample(occurrences(), max_occurrences, seed)
    if not found.occurrences:
        advice = (
            "Give a word of the text as one token: punctuation that is attached to a word is part of its "
            "token, unless a tokenizer separates it."
            if found_in_other_case is None
            else f"But it holds '{found_in_other_case}': give --ignore-case to match any case."
        )
        raise ConfigurationError(f"{place}: does not hold the word '{word}'. {advice}")
    return found


def _sample(occurrences: Iterable[Occurrence], max_occurrences: int, seed: int) -> FoundOccurrences:
    """
    Keep a random sample, in the order of the text, by Vitter's algorithm R. (An evenly spaced sample would
    need to read the text twice, which a pipe does not allow.)
    """
    generator = random.Random(seed)
    kept: List[Tuple[int, Occurrence]] = []
    num_found = 0
    for occurrence in occurrences:
        num_found += 1
        # The n-th occurrence is kept with probability max_occurrences / n.
        place = len(kept) if num_found <= max_occurrences else generator.randrange(num_found)
        if place < max_occurrences:
            kept[place : place + 1] = [(num_found, occurrence)]
    return FoundOccurrences([occurrence for _, occurrence in sorted(kept)], num_found)


def num_distinct_contexts(occurrences: Iterable[Occurrence], layer: Layer) -> int:
    """
    Return the number of distinct vectors that the occurrences can have in a layer. Occurrences in equal
    sentences have equal vectors; in layer 0, the token representation, so have occurrences of equal spelling.
    """
    if layer == TOKEN_REPRESENTATION:
        return len({occurrence.text for occurrence in occurrences})
    return len({(occurrence.tokens, occurrence.position) for occurrence in occurrences})


def check_layer(layer: Layer, num_layers: Optional[int] = None, name: str = "--layer") -> None:
    """
    Raise `ConfigurationError` if `layer` is not a `Layer`, or not one of a biLM with `num_layers`. `name` is
    that of the option or key.
    """
    highest = "2" if num_layers is None else str(num_layers - 1)
    if layer == AVERAGE or (
        isinstance(layer, Integral)
        and layer >= TOP_LAYER
        and (num_layers is None or layer < num_layers)
    ):
        return
    raise ConfigurationError(
        f"{name}: found {layer}, expected a number from 0 (the token representation) to {highest} (the last "
        f"layer of {'the paper' if num_layers is None else 'this'} biLM), {TOP_LAYER} for the last layer, or "
        f"{AVERAGE}. Give one of these."
    )


def embed_occurrences(
    embedder: ElmoEmbedder,
    occurrences: Sequence[Occurrence],
    layer: Layer = TOP_LAYER,
    batch_tokens: Optional[int] = None,
    pool: Optional[str] = None,
    show_progress: bool = True,
) -> numpy.ndarray:
    """
    Compute the vectors of words in sentences; or those of whole sentences, pooled as `pool_tokens` does.
    Equal sentences are embedded once, and the vectors of other words are not kept.

    # Returns

    float32 array of shape `(num_occurrences, dim)`. Rows have length 1, so that dot products of rows are
    cosine similarities.
    """
    check_layer(layer, embedder.num_layers)
    rows_of_sentence: Dict[Tuple[str, ...], List[int]] = {}
    for row, occurrence in enumerate(occurrences):
        rows_of_sentence.setdefault(occurrence.tokens, []).append(row)
    all_layers = embedder.embed_sentences(
        (list(tokens) for tokens in rows_of_sentence), DEFAULT_BATCH_SIZE, batch_tokens
    )
    vectors = numpy.empty((len(occurrences), embedder.get_output_dim()), dtype=numpy.float32)
    with tqdm(
        total=len(rows_of_sentence), unit=" sentences", desc="embedding", disable=not show_progress
    ) as progress:
        # layers: (num_layers, num_tokens, dim)
        for layers, rows in zip(all_layers, rows_of_sentence.values()):
            # (num_tokens, dim)
            of_tokens = layers.mean(axis=0) if isinstance(layer, str) else layers[layer]
            for row in rows:
                position = occurrences[row].position
                vectors[row] = of_tokens[position] if pool is None else pool_tokens(of_tokens, pool)
            progress.update()
    return of_length_one(vectors)


def nearest_occurrences(
    query: Occurrence,
    query_vector: numpy.ndarray,
    occurrences: Sequence[Occurrence],
    vectors: numpy.ndarray,
    top: int = 10,
) -> List[Neighbor]:
    """
    Return the occurrences whose vectors are most similar to the vector of a query (paper, table 4).

    # Parameters

    query, query_vector
        The vector is `(dim,)`, of length 1. Occurrences in the sentence of the query are left out.
    occurrences, vectors
        The occurrences to choose from; vectors are `(num_occurrences, dim)`, of length 1.
    top : `int`, optional (default = 10)
        Maximum number of occurrences to return. The nearest come first; equally near ones are in the order of
        the text.
    """
    similarities = vectors @ query_vector  # (num_occurrences,)
    order = numpy.argsort(-similarities, kind="stable")
    others = [index for index in order if not occurrences[index].has_context_of(query)]
    return [Neighbor(occurrences[index], float(similarities[index])) for index in others[:top]]


def check_clustering() -> None:
    """Raise `ConfigurationError` if scikit-learn, which clusters, is not installed."""
    with needing(
        "Clusters need scikit-learn",
        "elmo-plugin[plots]",
        ", or give --sentence for neighbors alone.",
    ):
        import sklearn.cluster  # noqa: F401


def cluster_occurrences(
    occurrences: Sequence[Occurrence], vectors: numpy.ndarray, num_clusters: int = 2, seed: int = 0
) -> List[Cluster]:
    """
    Cluster occurrences with k-means.

    # Parameters

    occurrences, vectors
        Vectors are `(num_occurrences, dim)`, of length 1, so that Euclidean distance and cosine similarity
        give the same order.
    num_clusters : `int`, optional (default = 2)
        At most the number of distinct vectors.
    seed : `int`, optional (default = 0)
        Seed of the initial centers.

    # Returns

    The clusters, the largest first. Every occurrence is in exactly one of them.
    """
    from sklearn.cluster import KMeans

    k_means = KMeans(num_clusters, n_init=_K_MEANS_STARTS, random_state=seed)
    labels = k_means.fit_predict(vectors)  # (num_occurrences,)
    centers = of_length_one(k_means.cluster_centers_)  # (num_clusters, dim)
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
