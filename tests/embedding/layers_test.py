import numpy
import pytest
import torch
from allennlp.common.checks import ConfigurationError

from elmo_plugin.embedding.layers import layer_choice, learnt_mix
from elmo_plugin.modules import ScalarMix

LAYERS = numpy.random.default_rng(0).normal(size=(3, 4, 5)).astype("float32")


def test_all_top_and_average() -> None:
    assert layer_choice("all")(LAYERS) is LAYERS
    assert (layer_choice("top")(LAYERS) == LAYERS[2]).all()
    assert (layer_choice("average")(LAYERS) == LAYERS.mean(axis=0)).all()


def test_a_learnt_mix_is_what_the_module_computes() -> None:
    mix = ScalarMix(3, initial_scalar_parameters=[0.3, -1.0, 2.0])
    mix.gamma.data.fill_(1.7)
    expected = mix([torch.from_numpy(layer) for layer in LAYERS]).detach().numpy()
    mixed = learnt_mix(mix, "input")(LAYERS)
    assert mixed.dtype == numpy.float32
    # Sums of three float32 numbers in another order.
    numpy.testing.assert_allclose(mixed, expected, atol=1e-6)
    assert learnt_mix(mix, "input")(LAYERS[:, :0]).shape == (0, 5)


def test_a_mix_that_depends_on_the_batch_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"'input' was learnt with do_layer_norm.*--all"):
        learnt_mix(ScalarMix(3, do_layer_norm=True), "input")


def test_an_unknown_choice_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="'last', expected one of all, top, average"):
        layer_choice("last")
