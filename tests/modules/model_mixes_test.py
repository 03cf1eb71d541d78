"""The mixes of trained models, and copies of their biLMs."""

from typing import Any

import pytest
import torch
from allennlp.data import Vocabulary
from allennlp.models import Model
from allennlp.modules.elmo import Elmo as AllenNlpElmo

from elmo_plugin import BiLM, Elmo, ElmoTokenEmbedder
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.modules.model_mixes import choose_mix, mixes_in
from elmo_plugin.modules.text_encoder import PlacedElmo
from tests.conftest import BiLMFiles


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
        encoder=Holder(elmo=PlacedElmo(*bilm_files, placement="both")),
        embedder=ElmoTokenEmbedder(*bilm_files),
        own=Elmo(*bilm_files, 2),
        baseline=PlacedElmo(placement="none"),
    )


def test_mixes_are_named_after_their_places(model: Holder) -> None:
    mixes = mixes_in(model, "archive")
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
    model = Holder(elmo=PlacedElmo(*bilm_files, placement="output"))
    assert choose_mix(model, "archive").name == "elmo.output"
    with pytest.raises(
        ConfigurationError, match=r"holds 1 mixes \(elmo\.output\), 0 of them named 'input'"
    ):
        choose_mix(model, "archive", "input")


def test_a_model_without_a_mix_is_an_error(bilm_files: BiLMFiles) -> None:
    bilm = BiLM.from_files(*bilm_files)
    for parts, match in [
        ({"bilm": bilm}, "archive: the model holds no mix.*`elmo export`"),
        ({"elmo": AllenNlpElmo(*bilm_files, 1)}, "ELMo is AllenNLP's own.*--overrides"),
    ]:
        with pytest.raises(ConfigurationError, match=match):
            choose_mix(Holder(**parts), "archive")
