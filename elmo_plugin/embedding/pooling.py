"""One vector for each sentence, from the vectors of its tokens; and the similarity of such vectors."""

from typing import Optional

import numpy

from elmo_plugin.errors import ConfigurationError

MEAN, MAX, FIRST_LAST = POOLS = ("mean", "max", "first-last")


def check_pool(pool: Optional[str]) -> None:
    """Raise `ConfigurationError` unless `pool` is one of `POOLS`, or `None`."""
    if pool is not None and pool not in POOLS:
        raise ConfigurationError(f"pool is '{pool}', expected one of {', '.join(POOLS)}.")


def pool_tokens(vectors: numpy.ndarray, pool: str) -> numpy.ndarray:
    """
    Make one vector of those of the tokens.

    # Parameters

    vectors : `numpy.ndarray`
        `(num_tokens, dim)` or `(num_layers, num_tokens, dim)`, without sentence marks. The first half of
        `dim` is the forward direction.
    pool : `str`
        - `mean`: the mean over tokens;
        - `max`: in each dimension the largest value of a token;
        - `first-last`: the forward half of the last token and the backward half of the first token, each of
          which has read the whole sentence: the last states of a bidirectional LSTM.

    # Returns

    Array of shape `(dim,)` or `(num_layers, dim)`. Zeros for a sentence without tokens.
    """
    check_pool(pool)
    if vectors.shape[-2] == 0:
        return numpy.zeros((*vectors.shape[:-2], vectors.shape[-1]), dtype=vectors.dtype)
    if pool == MEAN:
        return vectors.mean(axis=-2)
    if pool == MAX:
        return vectors.max(axis=-2)
    half = vectors.shape[-1] // 2
    return numpy.concatenate([vectors[..., -1, :half], vectors[..., 0, half:]], axis=-1)


def cosine_similarities(vectors: numpy.ndarray, others: numpy.ndarray) -> numpy.ndarray:
    """
    Return the cosine similarity of each vector to each of the others, from -1 to 1; 0 to a vector of zeros.

    # Parameters

    vectors, others : `numpy.ndarray`
        `(num_vectors, dim)` and `(num_others, dim)`.

    # Returns

    Array of shape `(num_vectors, num_others)`.
    """
    return of_length_one(vectors) @ of_length_one(others).T


def of_length_one(vectors: numpy.ndarray) -> numpy.ndarray:
    """Scale each row of `(num_rows, dim)` to length 1. Rows of zeros stay zeros."""
    lengths = numpy.linalg.norm(vectors, axis=1, keepdims=True)  # (num_rows, 1)
    return vectors / numpy.maximum(lengths, numpy.finfo(numpy.float32).tiny)
