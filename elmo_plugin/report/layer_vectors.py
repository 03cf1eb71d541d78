"""Vectors of tokens, layer by layer, for probes."""

from typing import Iterator, List, Optional, Sequence, Tuple

import numpy
from allennlp.common.tqdm import Tqdm
from more_itertools import chunked

from elmo_plugin.embedding.elmo_embedder import ElmoEmbedder

# What tables call the plain mean of all layers, and the layer below the LSTMs.
MEAN = "mean of all"
CHARACTERS = "0 (characters)"


def layer_names(num_layers: int) -> List[str]:
    """What tables call the layers of a biLM, the token representation counted, and last their mean."""
    return [CHARACTERS, *(str(number) for number in range(1, num_layers)), MEAN]


def embed_tokens(
    embedder: ElmoEmbedder,
    sentences: Sequence[Sequence[str]],
    positions: Optional[Sequence[int]] = None,
    description: str = "embedding",
) -> numpy.ndarray:
    """
    The vectors of one token of each sentence, or of all tokens. Of the others nothing is kept.

    # Parameters

    embedder : `ElmoEmbedder`
        One that is not stateful.
    sentences : `Sequence[Sequence[str]]`
        The tokens of each.
    positions : `Sequence[int]`, optional (default = all tokens)
        Which token of each sentence.
    description : `str`, optional
        For the progress bar.

    # Returns

    float32 array of shape `(num_layers, num_tokens, dim)`, in the order of the sentences: 4 bytes for each
    element, and hardly more is needed on the way.
    """
    bilm = embedder.elmo_bilm
    num_tokens = (
        sum(len(sentence) for sentence in sentences) if positions is None else len(sentences)
    )
    vectors = numpy.empty((bilm.num_layers, num_tokens, bilm.get_output_dim()), dtype=numpy.float32)
    row = 0
    for number, layers in enumerate(_embed(embedder, sentences, description)):
        if positions is not None:
            layers = layers[:, positions[number]][:, None]
        vectors[:, row : row + layers.shape[1]] = layers
        row += layers.shape[1]
    return vectors


def embed_in_blocks(
    embedder: ElmoEmbedder,
    sentences: Sequence[Sequence[str]],
    block_size: int,
    description: str = "embedding",
) -> Iterator[numpy.ndarray]:
    """
    The vectors of all tokens, for so many sentences at a time that they need not all be held.

    # Parameters

    embedder, sentences, description
        See `embed_tokens`.
    block_size : `int`
        Sentences of a block; the last has the rest.

    # Returns

    For each block what `embed_tokens` gives for its sentences.
    """
    for block in chunked(_embed(embedder, sentences, description), block_size):
        yield numpy.concatenate(block, axis=1)


def named_layers(vectors: numpy.ndarray) -> Iterator[Tuple[str, numpy.ndarray]]:
    """
    Each of `layer_names` with its vectors.

    # Parameters

    vectors : `numpy.ndarray`
        `(num_layers, num_tokens, dim)`

    # Returns

    Pairs of a name and an array `(num_tokens, dim)`.
    """
    yield from zip(layer_names(len(vectors)), vectors)
    yield MEAN, vectors.mean(axis=0)


def _embed(
    embedder: ElmoEmbedder, sentences: Sequence[Sequence[str]], description: str
) -> Iterator[numpy.ndarray]:
    """The layers of each sentence, `(num_layers, len(sentence), dim)`."""
    return Tqdm.tqdm(
        embedder.embed_sentences([list(sentence) for sentence in sentences]),
        total=len(sentences),
        unit=" sentences",
        desc=description,
    )
