"""Every experiment file is evaluated, and its model built on fixtures, in each of its variants."""

import json
from pathlib import Path
from typing import Any, Dict

import pytest
import torch
from allennlp.common import Params
from allennlp.data import DatasetReader, Vocabulary
from allennlp.models import Model
from allennlp.modules import Seq2SeqEncoder

from elmo_plugin.modules.elmo_token_embedder import ORIGINAL_MODEL
from tests.closeness import assert_close

REPOSITORY = Path(__file__).parents[1]
ALL_CONFIGS = sorted((REPOSITORY / "training_configs").glob("*.jsonnet"))
CONFIGS = [path for path in ALL_CONFIGS if not path.stem.startswith("bilm")]
TINY_BILM = REPOSITORY / "fixtures" / "bilm" / "tiny"
ELMO = "model.text_encoder.elmo"

# Width of the word vectors that a task's configs expect.
WORD_DIMS = {"ner": 50, "srl": 100, "sst": 300, "snli": 300, "squad": 300, "coref": 300}

# ELMo in each place, with what else RESULTS.md changes; baselines differ from experiments in the place alone.
VARIANTS: Dict[str, Dict[str, Any]] = {
    "unchanged": {},
    "none": {f"{ELMO}.placement": "none"},
    "input": {f"{ELMO}.placement": "input", f"{ELMO}.top_layer_only": True},
    "output": {f"{ELMO}.placement": "output"},
    "both": {f"{ELMO}.placement": "both", "model.regularizer.regexes.0.1.alpha": 0.5},
}


@pytest.fixture
def ext_vars(tmp_path: Path) -> Dict[str, str]:
    """The external variables that the head comments of the configs name."""
    return {
        **{f"{task.upper()}_DATA": "data" for task in WORD_DIMS},
        "WORD_VECTORS": str(tmp_path / "vectors.txt"),
        "ELMO": str(TINY_BILM),
        "LM_TRAIN": "data",
        "LM_HELDOUT": "data",
        "LM_START": str(TINY_BILM),
        "LM_VOCABULARY": str(REPOSITORY / "fixtures" / "lm" / "vocab.txt"),
    }


def test_the_original_model_is_the_same_for_configs_and_for_the_embedder() -> None:
    library = (REPOSITORY / "training_configs" / "lib" / "elmo.libsonnet").read_text()
    address, model = ORIGINAL_MODEL.rsplit("/", 1)
    assert f"'{address}/'" in library
    assert f"'{model}'" in library


def test_every_task_has_its_experiment_and_its_baseline() -> None:
    names = {path.stem for path in CONFIGS}
    tasks = {
        path.name for path in (REPOSITORY / "elmo_plugin" / "tasks").iterdir() if path.is_dir()
    }
    for task in tasks - {"__pycache__"}:
        assert {task, f"{task}_baseline", f"{task}_small"} <= names


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_a_head_comment_says_whether_it_was_run(path: Path) -> None:
    head = path.read_text(encoding="utf-8").partition("local ")[0].replace("\n// ", " ")
    assert ("Not run here." in head) != path.stem.endswith(("_small", "_mini"))


@pytest.mark.parametrize(
    "path, variant",
    [
        (path, variant)
        for path in CONFIGS
        for variant in VARIANTS
        if variant == "unchanged" or path.stem in WORD_DIMS
    ],
    ids=lambda value: getattr(value, "stem", value),
)
def test_a_config_builds_its_model(path: Path, variant: str, ext_vars: Dict[str, str]) -> None:
    task = path.stem.split("_")[0]
    vector = " ".join(["0.1"] * WORD_DIMS[task])
    Path(ext_vars["WORD_VECTORS"]).write_text(f"rain {vector}\n")
    overrides = {
        f"{ELMO}.options_file": str(TINY_BILM / "options.json"),
        f"{ELMO}.weight_file": str(TINY_BILM / "weights.hdf5"),
        **VARIANTS[variant],
    }
    params = Params.from_file(path, params_overrides=json.dumps(overrides), ext_vars=ext_vars)
    reader = DatasetReader.from_params(params.pop("dataset_reader"))
    tiny = Params.from_file(REPOSITORY / "fixtures" / task / "tiny" / "experiment.jsonnet")
    instances = list(reader.read(tiny["train_data_path"]))
    vocab = Vocabulary.from_instances(instances)
    model = Model.from_params(params.pop("model"), vocab=vocab)
    assert len(model.forward_on_instances(instances[:2])) == 2
    placed = model.text_encoder.elmo
    if variant != "unchanged":
        places = {"none": (), "both": ("input", "output")}
        assert placed.places == places.get(variant, (variant,))
    if variant == "input":  # with the last layer only
        trained = [name for name, p in placed.elmo.named_parameters() if p.requires_grad]
        assert trained == ["scalar_mix_0.gamma"]
    if variant == "both":
        before = model.get_regularization_penalty()  # the mix weights are zeros at first
        for mix in placed.elmo.scalar_mixes:
            for parameter in mix.scalar_parameters:
                parameter.data.fill_(1.0)
        penalty = model.get_regularization_penalty()
        # Of two mixes of three layers, beside the squares of all other parameters.
        terms = sum(parameter.numel() for parameter in model.parameters())
        assert_close(penalty - before, 0.5 * 2 * 3, terms, float(penalty), torch.float32)


def test_a_baseline_differs_from_its_experiment_only_in_elmo(ext_vars: Dict[str, str]) -> None:
    for baseline in CONFIGS:
        if not baseline.stem.endswith("_baseline"):
            continue
        experiment = baseline.with_name(baseline.name.replace("_baseline", ""))
        one = Params.from_file(baseline, ext_vars=ext_vars).as_dict()
        other = Params.from_file(experiment, ext_vars=ext_vars).as_dict()
        assert one["model"]["text_encoder"].pop("elmo")["placement"] == "none"
        assert other["model"]["text_encoder"].pop("elmo")["placement"] != "none"
        assert one == other


def test_the_srl_experiments_have_no_bias_on_the_input_and_forget_biases_of_1(
    ext_vars: Dict[str, str],
) -> None:
    for name in ("srl", "srl_small"):
        path = REPOSITORY / "training_configs" / f"{name}.jsonnet"
        encoder = Params.from_file(path, ext_vars=ext_vars)["model"]["text_encoder"]["encoder"]
        size = encoder["hidden_size"]
        lstm = Seq2SeqEncoder.from_params(encoder, input_size=7)._module
        for layer in lstm.lstm_layers:
            assert layer.cell.input_linearity.bias is None
            biases = layer.cell.state_linearity.bias.detach().view(5, size)
            assert (biases[1] == 1).all() and not biases[[0, 2, 3, 4]].any()


@pytest.mark.parametrize(
    "name, num_parameters",
    [("bilm", 93_600_848), ("bilm_small", 13_593_296), ("bilm_mini", 2_740_048)],
)
def test_a_pretraining_config_has_the_released_size(
    name: str, num_parameters: int, ext_vars: Dict[str, str]
) -> None:
    path = REPOSITORY / "training_configs" / f"{name}.jsonnet"
    # The vocabulary of the fixture has fewer words than the paper's negatives.
    overrides = json.dumps({"model.softmax.num_samples": 100})
    params = Params.from_file(path, params_overrides=overrides, ext_vars=ext_vars)
    vocab = Vocabulary.from_params(params.pop("vocabulary"))
    bilm = Model.from_params(params.pop("model"), vocab=vocab).bilm
    # Row 0 of the character embedding is padding, which is no parameter of the file, as in the count.
    assert sum(parameter.numel() for parameter in bilm.parameters()) - 16 == num_parameters


@pytest.mark.parametrize(
    "start, expected",
    [
        ("a/model.tar.gz", {"archive_file": "a/model.tar.gz"}),
        ("a/b", {"options_file": "a/b"}),
        ("elmo_mini", {"options_file": "elmo_mini"}),
    ],
)
def test_finetuning_starts_from_an_archive_a_folder_or_a_name(
    start: str, expected: Dict[str, str], ext_vars: Dict[str, str]
) -> None:
    path = REPOSITORY / "training_configs" / "bilm_finetune.jsonnet"
    params = Params.from_file(path, ext_vars={**ext_vars, "LM_START": start})
    model = params["model"].as_dict(quiet=True)
    assert {key: value for key, value in model.items() if key.endswith("_file")} == expected


@pytest.mark.parametrize("path", ALL_CONFIGS, ids=lambda path: path.stem)
def test_files_come_from_external_variables_or_urls(path: Path, ext_vars: Dict[str, str]) -> None:
    files = {
        key: value
        for key, value in Params.from_file(path, ext_vars=ext_vars).as_flat_dict().items()
        if key.endswith(("_path", "_file")) and value is not None
    }
    assert len(files) >= 3
    for key, value in files.items():
        for path_or_url in value if isinstance(value, list) else [value]:
            assert path_or_url.startswith(("https://", *ext_vars.values())), key
