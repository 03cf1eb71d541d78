"""What training_configs/snli*.jsonnet promise, beyond what holds for the configs of every task."""

import json
from pathlib import Path
from typing import Any, Dict, Optional

import pytest
import torch
from allennlp.common import Params
from allennlp.data import DatasetReader, Vocabulary
from allennlp.models import Model
from torch.nn import Parameter

from elmo_plugin import BiLM
from elmo_plugin.tasks.snli.reader import LABELS
from tests.tasks.task_testing import FIXTURES

CONFIGS = FIXTURES.parent / "training_configs"
TINY_BILM = FIXTURES / "bilm" / "tiny"
TINY_ELMO_DIM = 16
ELMO = "model.text_encoder.elmo"
LAYERS = (
    "text_encoder.encoder.",
    "projection.",
    "inference_encoder.",
    "output_feedforward.",
    "label_projection.",
)


def config(name: str, tmp_path: Path, overrides: Optional[Dict[str, Any]] = None) -> Params:
    vectors = tmp_path / "vectors.txt"
    vectors.write_text("rain " + " ".join(["0.1"] * 300) + "\n")
    ext_vars = {"SNLI_DATA": "data", "WORD_VECTORS": str(vectors), "ELMO": str(TINY_BILM)}
    overrides = {
        f"{ELMO}.options_file": str(TINY_BILM / "options.json"),
        f"{ELMO}.weight_file": str(TINY_BILM / "weights.hdf5"),
        **(overrides or {}),
    }
    return Params.from_file(
        CONFIGS / f"{name}.jsonnet", params_overrides=json.dumps(overrides), ext_vars=ext_vars
    )


def model_of(params: Params) -> Model:
    tokens_to_add = {**params["vocabulary"]["tokens_to_add"].as_dict(), "tokens": ["rain"]}
    return Model.from_params(params["model"], vocab=Vocabulary(tokens_to_add=tokens_to_add))


def trainable(model: Model) -> Dict[str, Parameter]:
    return {name: value for name, value in model.named_parameters() if value.requires_grad}


def strengths_of_l2(model: Model) -> Dict[str, float]:
    """Of each regularized parameter the factor of its squares in the penalty."""
    with torch.no_grad():
        for parameter in trainable(model).values():
            parameter.fill_(1.0)
    penalty = model.get_regularization_penalty()
    assert penalty is not None
    penalty.backward()
    return {
        name: parameter.grad.mean().item() / 2
        for name, parameter in model.named_parameters()
        if parameter.grad is not None
    }


@pytest.mark.parametrize(
    "name, is_bilm_trained",
    [("snli", False), ("snli", True), ("snli_baseline", False), ("snli_small", True)],
)
def test_l2_is_on_mix_weights_and_on_weight_matrices_of_layers(
    name: str, is_bilm_trained: bool, tmp_path: Path
) -> None:
    model = model_of(config(name, tmp_path, {f"{ELMO}.requires_grad": is_bilm_trained}))
    strengths = strengths_of_l2(model)
    mix_weights = {name for name in strengths if "scalar_parameters" in name}
    assert len(mix_weights) == (0 if name == "snli_baseline" else 6)
    others = set(strengths) - mix_weights
    assert {name.rsplit(".", 1)[1].split("_")[0] for name in others} == {"weight"}
    assert others == {
        name
        for name in trainable(model)
        if name.startswith(LAYERS) and name.rsplit(".", 1)[1].startswith("weight")
    }
    for name, strength in strengths.items():
        assert strength == pytest.approx(0.001 if name in mix_weights else 0.0001), name


def test_the_model_has_the_size_that_the_paper_reports(tmp_path: Path) -> None:
    model = model_of(config("snli", tmp_path))
    num_parameters = sum(parameter.numel() for parameter in trainable(model).values())
    # Into each gate of both directions of the first biLSTM, and into the projection, twice of four parts.
    num_weights_of_elmo_unit = 2 * 4 * 300 + 4 * 300
    with_original = num_parameters + (1024 - TINY_ELMO_DIM) * num_weights_of_elmo_unit
    assert round(with_original / 1e6, 1) == 8.0


@pytest.mark.parametrize("name", ["snli", "snli_small"])
def test_all_labels_are_known_even_from_few_pairs(name: str, tmp_path: Path) -> None:
    params = config(name, tmp_path, {"dataset_reader.max_instances": 1})
    reader = DatasetReader.from_params(params["dataset_reader"])
    instances = list(reader.read(FIXTURES / "snli" / "tiny" / "train.jsonl"))
    vocab = Vocabulary.from_params(params["vocabulary"], instances=instances)
    assert len(instances) == 1
    assert set(vocab.get_token_to_index_vocabulary("labels")) == set(LABELS)


def test_lstms_start_with_open_forget_gates_and_the_bilm_as_it_is_in_its_file(
    tmp_path: Path,
) -> None:
    model = model_of(config("snli", tmp_path))
    parameters = dict(model.named_parameters())
    for encoder in ("text_encoder.encoder", "inference_encoder"):
        bias = parameters[f"{encoder}._module.bias_hh_l0"]
        assert (
            bias.tolist() == [0.0] * 300 + [1.0] * 300 + [0.0] * 600
        )  # input, forget, cell, output
    bilm = BiLM.from_files(str(TINY_BILM / "options.json"), str(TINY_BILM / "weights.hdf5"))
    for name, weight in bilm.named_parameters():
        assert torch.equal(weight, parameters[f"text_encoder.elmo.elmo._elmo_lstm.{name}"]), name
