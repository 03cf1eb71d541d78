"""Vectors that are written: choices of layers, pooling over tokens, and similarity."""

import pickle
from typing import List

import numpy
import pytest
import torch

from elmo_plugin import ElmoEmbedder
from elmo_plugin.embedding.layers import (
    POOLS,
    cosine_similarities,
    layer_choice,
    learned_mix,
    of_length_one,
    pool_tokens,
)
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.modules import ScalarMix
from tests.closeness import assert_close
from tests.conftest import BiLMFiles

LAYERS = numpy.random.default_rng(0).normal(size=(3, 4, 6)).astype("float32")
LARGEST = float(abs(LAYERS).max())
# A softmax and a sum of three layers.
MIX_TERMS = 3 + 3


def test_all_top_and_average() -> None:
    assert layer_choice("all")(LAYERS) is LAYERS
    assert (layer_choice("top")(LAYERS) == LAYERS[2]).all()
    assert layer_choice("top")(LAYERS).base is None  # a view would keep all layers in memory
    average = pickle.loads(pickle.dumps(layer_choice("average")))
    assert_close(average(LAYERS), LAYERS.mean(axis=0), 3, LARGEST)


def test_tokens_are_pooled_after_the_choice_of_layers() -> None:
    average = pickle.loads(pickle.dumps(layer_choice("average", "max")))
    assert_close(average(LAYERS), LAYERS.mean(axis=0).max(axis=0), 3, LARGEST)
    assert average.vector_shape(3, 6) == (6,) == layer_choice("average").vector_shape(3, 6)
    every = layer_choice("all", "mean")
    assert every(LAYERS).shape == (3, 6) == every.vector_shape(3, 6)
    mix = ScalarMix(3)
    learned = learned_mix(mix, "input", "mean")
    torch.nn.init.constant_(mix.gamma, 2.0)  # what the model learns later changes nothing
    # And the mean of four tokens.
    assert_close(learned(LAYERS), LAYERS.mean(axis=(0, 1)), MIX_TERMS + 4, LARGEST)
    # By the name, runs that are resumed find that the mix is another one.
    assert learned_mix(mix, "input", "mean").name != learned.name


@pytest.mark.parametrize(
    "pool, expected", [("mean", [2, 2, 1, 4]), ("max", [5, 4, 3, 8]), ("first-last", [0, 4, 3, 4])]
)
def test_tokens_are_pooled(pool: str, expected: List[float]) -> None:
    # Three tokens, of two numbers in each direction.
    tokens = numpy.array([[1, 2, 3, 4], [5, 0, -1, 8], [0, 4, 1, 0]], dtype="float32")
    assert pool_tokens(tokens, pool).tolist() == expected
    of_layers = pool_tokens(numpy.stack([tokens, numpy.ones_like(tokens)]), pool)
    assert of_layers.tolist() == [expected, [1, 1, 1, 1]]
    assert of_layers.dtype == numpy.float32


@pytest.mark.parametrize("pool", POOLS)
def test_a_sentence_of_one_token_is_its_token_and_one_without_is_zeros(pool: str) -> None:
    assert (pool_tokens(LAYERS[:, :1], pool) == LAYERS[:, 0]).all()
    empty = pool_tokens(LAYERS[:, :0], pool)
    assert empty.shape == (3, 6)
    assert not empty.any()


def test_unknown_choices_and_pools_are_refused_at_once(bilm_files: BiLMFiles) -> None:
    embedder = ElmoEmbedder(*bilm_files)
    for refused in (
        lambda: embedder.embed_sentences(iter([]), pool="sum"),
        lambda: layer_choice("top", "sum"),
        lambda: pool_tokens(LAYERS, "sum"),
    ):
        with pytest.raises(ConfigurationError, match="pool is 'sum', expected one of mean, max, f"):
            refused()
    with pytest.raises(ConfigurationError, match="'last', expected one of all, top, average"):
        layer_choice("last")


def test_cosine_similarities() -> None:
    vectors = numpy.array([[3.0, 4.0], [-6.0, -8.0], [4.0, -3.0], [0.0, 0.0]])
    expected = [[1, -1, 0, 0], [-1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 0]]
    # Two products in the dot product and in each norm, of vectors of length 1.
    found = cosine_similarities(vectors, vectors)
    assert found.dtype == numpy.float64
    assert_close(found, numpy.array(expected, dtype=float), terms=3 * 2)
    assert cosine_similarities(vectors[:1], vectors).shape == (1, 4)
    # Squares of these are too large for float16, too small or too large for float32.
    for dtype, scale in (("float16", 2.0**12), ("float32", 2.0**-80), ("float32", 2.0**80)):
        scaled = (scale * vectors).astype(dtype)
        assert_close(cosine_similarities(scaled, scaled), found, terms=3 * 2)
    assert_close(of_length_one(vectors)[0], numpy.array([0.6, 0.8]), terms=2)
