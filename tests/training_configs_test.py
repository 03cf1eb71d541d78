"""Every experiment file is evaluated, and its model built on fixtures, in each of its variants."""

import json
from pathlib import Path
from typing import Any, Dict

import pytest
from allennlp.common import Params
from allennlp.data import DatasetReader, Vocabulary
from allennlp.models import Model

from elmo_plugin.modules.elmo_token_embedder import ORIGINAL_MODEL

REPOSITORY = Path(__file__).parents[1]
ALL_CONFIGS = sorted((REPOSITORY / "training_configs").glob("*.jsonnet"))
CONFIGS = [path for path in ALL_CONFIGS if not path.stem.startswith("bilm")]
TINY_BILM = REPOSITORY / "fixtures" / "bilm" / "tiny"
ELMO = "model.text_encoder.elmo"

# What a user may define: see the head comment of each config.
DATA = {"ner": REPOSITORY / "fixtures" / "ner" / "tiny" / "train.conll"}

VARIANTS: Dict[str, Dict[str, Any]] = {
    "as it is": {},
    **{
        f"placement {word}": {f"{ELMO}.placement": word}
        for word in ("none", "input", "output", "both")
    },
    "last layer": {f"{ELMO}.top_layer_only": True},
    "lambda 1": {"model.regularizer.regexes.0.1.alpha": 1.0},
    "lambda 0.001": {"model.regularizer.regexes.0.1.alpha": 0.001},
}


@pytest.fixture
def ext_vars(tmp_path: Path) -> Dict[str, str]:
    vectors = tmp_path / "vectors.txt"
    vectors.write_text("rain " + " ".join(["0.1"] * 50) + "\n")
    return {
        "NER_DATA": "data",
        "NER_SCHEME": "IOB1",
        "WORD_VECTORS": str(vectors),
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


def test_there_are_configs() -> None:
    assert {path.name for path in CONFIGS} >= {"ner.jsonnet", "ner_baseline.jsonnet"}


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_a_config_builds_its_model(path: Path, variant: str, ext_vars: Dict[str, str]) -> None:
    overrides = {
        f"{ELMO}.options_file": str(TINY_BILM / "options.json"),
        f"{ELMO}.weight_file": str(TINY_BILM / "weights.hdf5"),
        **VARIANTS[variant],
    }
    params = Params.from_file(path, params_overrides=json.dumps(overrides), ext_vars=ext_vars)
    reader = DatasetReader.from_params(params.pop("dataset_reader"))
    instances = list(reader.read(DATA[path.stem.split("_")[0]]))
    vocab = Vocabulary.from_instances(instances)
    model = Model.from_params(params.pop("model"), vocab=vocab)
    outputs = model.forward_on_instances(instances[:2])
    assert len(outputs) == 2

    text_encoder = model.text_encoder
    if variant.startswith("placement"):
        word = variant.split()[1]
        assert text_encoder.elmo.places == {"both": ("input", "output"), "none": ()}.get(
            word, (word,)
        )
    if variant.startswith("lambda"):
        if text_encoder.elmo.elmo is None:
            assert model.get_regularization_penalty() == 0.0
        else:
            for mix in text_encoder.elmo.elmo.scalar_mixes:
                for parameter in mix.scalar_parameters:
                    parameter.data.fill_(1.0)
            expected = float(variant.split()[1]) * 3
            assert model.get_regularization_penalty().item() == pytest.approx(expected)


def test_a_baseline_differs_from_its_experiment_in_elmo_alone(ext_vars: Dict[str, str]) -> None:
    for baseline in CONFIGS:
        if not baseline.stem.endswith("_baseline"):
            continue
        experiment = baseline.with_name(baseline.name.replace("_baseline", ""))
        one = Params.from_file(baseline, ext_vars=ext_vars).as_dict()
        other = Params.from_file(experiment, ext_vars=ext_vars).as_dict()
        assert one["model"]["text_encoder"].pop("elmo")["placement"] == "none"
        assert other["model"]["text_encoder"].pop("elmo")["placement"] != "none"
        assert one == other


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
        ("a/b", {"options_file": "a/b/options.json", "weight_file": "a/b/weights.hdf5"}),
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
    assert len(files) >= 4
    for key, value in files.items():
        for path_or_url in value if isinstance(value, list) else [value]:
            assert path_or_url.startswith(("https://", *ext_vars.values())), key
