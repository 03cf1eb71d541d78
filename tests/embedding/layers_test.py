"""Choices of layers, and the mixes of trained models."""

import pickle
from typing import Any, List

import numpy
import pytest
import torch
from allennlp.data import Vocabulary
from allennlp.models import Model
from allennlp.modules.elmo import Elmo as AllenNlpElmo

from elmo_plugin import BiLM, Elmo, ElmoTokenEmbedder, batch_to_ids
from elmo_plugin.embedding.layers import (
    choose_mix,
    frozen_copy,
    layer_choice,
    learnt_mix,
    mixes_in,
)
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.modules import ScalarMix
from elmo_plugin.modules.placed_elmo import PlacedElmo
from tests.conftest import SENTENCES, BiLMFiles

LAYERS = numpy.random.default_rng(0).normal(size=(3, 4, 5)).astype("float32")


def test_all_top_and_average() -> None:
    assert layer_choice("all")(LAYERS) is LAYERS
    assert (layer_choice("top")(LAYERS) == LAYERS[2]).all()
    average = pickle.loads(pickle.dumps(layer_choice("average")))
    assert (average(LAYERS) == LAYERS.mean(axis=0)).all()


def test_tokens_are_pooled_after_the_choice_of_layers() -> None:
    average = pickle.loads(pickle.dumps(layer_choice("average", "max")))
    assert (average(LAYERS) == LAYERS.mean(axis=0).max(axis=0)).all()
    assert average.vector_shape(3, 5) == (5,) == layer_choice("average").vector_shape(3, 5)
    every = layer_choice("all").pooled("mean")
    assert every(LAYERS).shape == (3, 5) == every.vector_shape(3, 5)
    mix = learnt_mix(ScalarMix(3), "input").pooled("mean")
    numpy.testing.assert_allclose(mix(LAYERS), LAYERS.mean(axis=(0, 1)), atol=1e-6)


def test_a_learned_mix_equals_the_scalar_mix_module() -> None:
    mix = ScalarMix(3, initial_scalar_parameters=[0.3, -1.0, 2.0])
    mix.gamma.data.fill_(1.7)
    expected = mix([torch.from_numpy(layer) for layer in LAYERS]).detach().numpy()
    mixed = learnt_mix(mix, "input")(LAYERS)
    assert mixed.dtype == numpy.float32
    # Sums of three float32 numbers in another order.
    numpy.testing.assert_allclose(mixed, expected, atol=1e-6)
    assert learnt_mix(mix, "input")(LAYERS[:, :0]).shape == (0, 5)


def test_a_mix_that_depends_on_the_batch_is_an_error() -> None:
    with pytest.raises(ConfigurationError, match=r"'input' was learned with do_layer_norm.*--all"):
        learnt_mix(ScalarMix(3, do_layer_norm=True), "input")


def test_an_unknown_choice_is_an_error() -> None:
    with pytest.raises(ConfigurationError, match="'last', expected one of all, top, average"):
        layer_choice("last")


class Holder(Model):
    """A model of nothing but its parts."""

    def __init__(self, **parts: torch.nn.Module) -> None:
        super().__init__(Vocabulary())
        for name, part in parts.items():
            self.add_module(name, part)

    def forward(self, **inputs: Any) -> Any:
        raise NotImplementedError


@pytest.fixture
def model(bilm_files: BiLMFiles) -> Holder:
    return Holder(
        encoder=Holder(elmo=PlacedElmo(Elmo(*bilm_files, 2), placement="both")),
        embedder=ElmoTokenEmbedder(*bilm_files),
        own=Elmo(*bilm_files, 2),
        baseline=PlacedElmo(None, placement="none"),
    )


def test_mixes_are_named_after_their_places(model: Holder) -> None:
    mixes = mixes_in(model)
    assert [mix.name for mix in mixes] == [
        "encoder.elmo.input",
        "encoder.elmo.output",
        "embedder",
        "own.0",
        "own.1",
    ]
    placed = model.encoder.elmo.elmo
    assert [mix.mix for mix in mixes[:2]] == placed.scalar_mixes
    assert mixes[0].bilm is mixes[1].bilm is placed.bilm


@pytest.mark.parametrize("name", ["output", "elmo.output", "encoder.elmo.output"])
def test_the_last_part_of_a_name_is_enough(model: Holder, name: str) -> None:
    assert choose_mix(model, "archive", name).name == "encoder.elmo.output"


def test_the_only_mix_needs_no_name(bilm_files: BiLMFiles) -> None:
    model = Holder(elmo=PlacedElmo(Elmo(*bilm_files, 1), placement="output"))
    assert choose_mix(model, "archive").name == "elmo.output"
    with pytest.raises(
        ConfigurationError, match=r"holds 1 mixes \(elmo\.output\), 0 of them named 'input'"
    ):
        choose_mix(model, "archive", "input")


def test_a_model_without_a_mix_is_an_error(bilm_files: BiLMFiles) -> None:
    bilm = BiLM.from_files(*bilm_files)
    for parts, match in [
        ({"bilm": bilm}, "archive: the model holds no mix.*elmo-export"),
        ({"elmo": AllenNlpElmo(*bilm_files, 1)}, "ELMo is AllenNLP's own.*--overrides"),
    ]:
        with pytest.raises(ConfigurationError, match=match):
            choose_mix(Holder(**parts), "archive")


def test_the_copy_is_frozen_and_computes_the_same(bilm_files: BiLMFiles) -> None:
    words: List[str] = ["@@PADDING@@", "the"]
    bilm = Elmo(*bilm_files, 1, requires_grad=True, stateful=True, vocab_to_cache=words).bilm
    copy = frozen_copy(bilm)
    assert copy.is_frozen and not bilm.is_frozen
    assert not copy.stateful
    character_ids = batch_to_ids(SENTENCES)
    for ours, theirs in zip(copy(character_ids)["activations"], bilm(character_ids)["activations"]):
        # Another kernel, which rounds differently.
        assert torch.allclose(ours, theirs, atol=1e-5)
    assert frozen_copy(bilm, stateful=True, kernel="reference").stateful
    with pytest.raises(ConfigurationError, match="precision"):
        frozen_copy(bilm, precision="float8")
