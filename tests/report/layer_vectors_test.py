from typing import List

import numpy
import pytest

from elmo_plugin import ElmoEmbedder
from elmo_plugin.report.layer_vectors import (
    embed_in_blocks,
    embed_tokens,
    layer_names,
    named_layers,
)
from tests.conftest import BiLMFiles

SENTENCES: List[List[str]] = [["the", "cat", "sat"], ["no"], ["a", "b", "c", "d"], ["the", "end"]]
# Batches of other sizes round otherwise.
TOLERANCE = 1e-5


@pytest.fixture
def embedder(bilm_files: BiLMFiles) -> ElmoEmbedder:
    return ElmoEmbedder(*bilm_files)


def all_vectors(embedder: ElmoEmbedder) -> numpy.ndarray:
    return numpy.concatenate([embedder.embed_sentence(sentence) for sentence in SENTENCES], axis=1)


def test_all_tokens_come_in_the_order_of_the_text(embedder: ElmoEmbedder) -> None:
    vectors = embed_tokens(embedder, SENTENCES)
    assert vectors.shape == (3, 10, 12) and vectors.dtype == numpy.float32
    numpy.testing.assert_allclose(vectors, all_vectors(embedder), atol=TOLERANCE)


def test_one_token_of_each_sentence_is_the_one_at_its_position(embedder: ElmoEmbedder) -> None:
    vectors = embed_tokens(embedder, SENTENCES, [1, 0, 3, 1])
    assert vectors.shape == (3, 4, 12)
    expected = all_vectors(embedder)[:, [1, 3, 7, 9]]
    numpy.testing.assert_allclose(vectors, expected, atol=TOLERANCE)


def test_blocks_are_the_same_vectors_some_sentences_at_a_time(embedder: ElmoEmbedder) -> None:
    blocks = list(embed_in_blocks(embedder, SENTENCES, 3))
    assert [block.shape[1] for block in blocks] == [8, 2]
    numpy.testing.assert_allclose(
        numpy.concatenate(blocks, axis=1), all_vectors(embedder), atol=TOLERANCE
    )


def test_layers_have_names_and_the_last_is_their_mean() -> None:
    vectors = numpy.arange(12.0).reshape(3, 2, 2)
    named = dict(named_layers(vectors))
    assert list(named) == layer_names(3) == ["0 (characters)", "1", "2", "mean of all"]
    numpy.testing.assert_array_equal(named["2"], [[8, 9], [10, 11]])
    numpy.testing.assert_array_equal(named["mean of all"], [[4, 5], [6, 7]])
