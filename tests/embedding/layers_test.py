"""Choices of the layers that are written."""

import pickle

import numpy
import pytest
import torch

from elmo_plugin.embedding.layers import layer_choice, learnt_mix
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.modules import ScalarMix
from tests.closeness import assert_close

LAYERS = numpy.random.default_rng(0).normal(size=(3, 4, 5)).astype("float32")
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
    assert average.vector_shape(3, 5) == (5,) == layer_choice("average").vector_shape(3, 5)
    every = layer_choice("all", "mean")
    assert every(LAYERS).shape == (3, 5) == every.vector_shape(3, 5)
    mix = learnt_mix(ScalarMix(3), "input", "mean")
    # And the mean of four tokens.
    assert_close(mix(LAYERS), LAYERS.mean(axis=(0, 1)), MIX_TERMS + 4, LARGEST)


def test_a_learned_mix_equals_the_scalar_mix_module() -> None:
    mix = ScalarMix(3, initial_scalar_parameters=[0.3, -1.0, 2.0])
    mix.gamma.data.fill_(1.7)
    expected = mix([torch.from_numpy(layer) for layer in LAYERS]).detach().numpy()
    mixed = learnt_mix(mix, "input")(LAYERS)
    assert mixed.dtype == numpy.float32
    assert_close(mixed, expected, MIX_TERMS, 1.7 * LARGEST)
    assert learnt_mix(mix, "input")(LAYERS[:, :0]).shape == (0, 5)


def test_a_mix_that_depends_on_the_batch_is_an_error() -> None:
    with pytest.raises(ConfigurationError, match=r"'input' was learned with do_layer_norm.*--all"):
        learnt_mix(ScalarMix(3, do_layer_norm=True), "input")


def test_an_unknown_choice_is_an_error() -> None:
    with pytest.raises(ConfigurationError, match="'last', expected one of all, top, average"):
        layer_choice("last")
