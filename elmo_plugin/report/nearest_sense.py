"""Senses of a word by the nearest mean vector of a sense (the paper's section 5.3)."""

from collections import Counter
from typing import Dict, List, Sequence

import numpy

COSINE, EUCLIDEAN = "cosine", "euclidean"
DISTANCES = (COSINE, EUCLIDEAN)

# Of similarities that differ by less than this share of the largest one, the difference is of rounding.
_TOLERANCE = 1e-6


def by_frequency(senses: Sequence[str]) -> List[str]:
    """Each sense once, the most frequent first; of equally frequent ones in the order of their names."""
    counts = Counter(senses)
    return sorted(counts, key=lambda sense: (-counts[sense], sense))


def nearest_senses(
    training_vectors: numpy.ndarray,
    training_senses: Sequence[str],
    vectors: numpy.ndarray,
    distance: str = COSINE,
    centre: bool = False,
) -> List[str]:
    """
    The sense, for each vector, whose mean vector in the training part is nearest.

    # Parameters

    training_vectors : `numpy.ndarray`
        `(num_training, dim)`
    training_senses : `Sequence[str]`
        Of each of them.
    vectors : `numpy.ndarray`
        `(num_vectors, dim)`
    distance : `str`, optional (default = `"cosine"`)
        One of `DISTANCES`. The length of a vector is more a matter of the word and of the layer than of the
        sense, and means of many vectors are shorter than means of few: cosine leaves lengths out of account.
        The paper does not say what it took.
    centre : `bool`, optional (default = `False`)
        Whether the mean of all training vectors is subtracted from all first: what they have in common, as
        vectors of the same word, then makes no angle small.

    # Returns

    A sense for each vector. Of equally near senses, as all are to a layer that does not see the context, it
    is the one that is most frequent in the training part.
    """
    origin = training_vectors.mean(axis=0, dtype=numpy.float64) if centre else 0.0
    training_vectors = training_vectors.astype(numpy.float64) - origin
    vectors = vectors.astype(numpy.float64) - origin
    names = by_frequency(training_senses)
    senses = numpy.array(training_senses)
    means = numpy.stack([training_vectors[senses == name].mean(axis=0) for name in names])
    if distance == COSINE:
        similarities = (
            _of_length_one(vectors) @ _of_length_one(means).T
        )  # (num_vectors, num_senses)
    else:
        # The square of the vector itself is the same for all senses.
        similarities = 2 * vectors @ means.T - (means**2).sum(axis=1)
    best = similarities.max(axis=1, keepdims=True)
    slack = _TOLERANCE * numpy.abs(similarities).max()
    # argmax gives the first.
    return [names[index] for index in (similarities >= best - slack).argmax(axis=1)]


def accuracy(found: Sequence[str], expected: Sequence[str]) -> float:
    """The share, in percent, of those that are found right."""
    return 100 * sum(a == b for a, b in zip(found, expected)) / len(expected)


def balanced_accuracy(found: Sequence[str], expected: Sequence[str]) -> float:
    """The mean over senses, in percent, of the share that is found right: rare ones count as much."""
    right: Dict[str, List[bool]] = {}
    for found_sense, sense in zip(found, expected):
        right.setdefault(sense, []).append(found_sense == sense)
    return 100 * float(numpy.mean([numpy.mean(shares) for shares in right.values()]))


def _of_length_one(rows: numpy.ndarray) -> numpy.ndarray:
    """The rows over their lengths; a row of zeros stays."""
    lengths = numpy.linalg.norm(rows, axis=1, keepdims=True)  # (num_rows, 1)
    return rows / numpy.maximum(lengths, numpy.finfo(numpy.float64).tiny)
