"""Every config is evaluated, and its model built on fixtures, in each of its variants."""

import json
from pathlib import Path
from typing import Any, Dict

import pytest
import torch
from allennlp.commands.train import train_model
from allennlp.common import Params
from allennlp.data import DatasetReader, Instance, TokenIndexer, Vocabulary
from allennlp.data.fields import TextField
from allennlp.data.tokenizers import Token
from allennlp.models import Model
from allennlp.modules import Seq2SeqEncoder
from allennlp.modules.token_embedders import TokenEmbedder
from allennlp.training.optimizers import Optimizer

from elmo_plugin import BiLM
from elmo_plugin.bilm.model_files import ORIGINAL
from elmo_plugin.modules.text_encoder import PLACES_OF
from tests.closeness import assert_close
from tests.tasks.task_testing import (
    EXT_VARS,
    TASKS,
    TINY_BILM,
    TRAINING_CONFIGS,
    experiment_of,
    published_experiment,
    small_experiment,
    task_of,
)

ALL_CONFIGS = sorted(path.stem for path in TRAINING_CONFIGS.glob("*.jsonnet"))
CONFIGS = [name for name in ALL_CONFIGS if not name.startswith("bilm")]
ELMO = "model.text_encoder.elmo"

# ELMo at each place, with what else RESULTS.md changes.
VARIANTS: Dict[str, Dict[str, Any]] = {
    "unchanged": {},
    "none": {f"{ELMO}.placement": "none"},
    "input": {f"{ELMO}.placement": "input", f"{ELMO}.top_layer_only": True},
    "both": {f"{ELMO}.placement": "both", "model.regularizer.regexes.0.1.alpha": 0.5},
}


@pytest.mark.parametrize("name", CONFIGS)
def test_a_head_comment_says_whether_it_was_run_and_what_differs_from_the_paper(name: str) -> None:
    text = (TRAINING_CONFIGS / f"{name}.jsonnet").read_text(encoding="utf-8")
    head = text.partition("local ")[0].replace("\n// ", " ")
    assert ("Not run here." in head) != name.endswith(("_small", "_mini"))
    if name in TASKS:
        assert "differs from" in head and "see bilm_finetune.jsonnet" in " ".join(head.split())


@pytest.mark.slow
@pytest.mark.parametrize("name", TASKS)
def test_a_config_trains_for_ten_steps(name: str, tmp_path: Path) -> None:
    """At full width, but with the tiny biLM: the published one is a download."""
    data = experiment_of(name)["train_data_path"]
    params = small_experiment(
        name,
        tmp_path,
        **{f"{part}_data_path": data for part in ("train", "validation", "test")},
        **{"trainer.num_epochs": 2, "data_loader.batches_per_epoch": 5, "trainer.patience": 10},
    )
    folder = tmp_path / "run"
    train_model(params, folder)
    losses = [
        json.loads((folder / f"metrics_epoch_{epoch}.json").read_text())["training_loss"]
        for epoch in range(2)
    ]
    assert losses[-1] < losses[0]
    assert (folder / "model.tar.gz").is_file()


@pytest.mark.parametrize("name", CONFIGS)
def test_distributed_validation_reads_all_data(name: str) -> None:
    """Other samplers give the workers different numbers of batches, and AllenNLP ends with the first one."""
    config = published_experiment(name)
    if "validation_data_path" in config or "test_data_path" in config:
        assert config["validation_data_loader"]["batch_sampler"]["type"] == "elmo_even"


@pytest.mark.parametrize(
    "name, variant",
    [
        (name, variant)
        for name in CONFIGS
        for variant in VARIANTS
        # Unchanged, those of the paper are trained above.
        if (variant == "unchanged") != (name in TASKS)
    ],
)
def test_a_config_builds_its_model(name: str, variant: str, tmp_path: Path) -> None:
    params = small_experiment(name, tmp_path, **VARIANTS[variant])
    reader = DatasetReader.from_params(params.pop("dataset_reader"))
    instances = list(reader.read(experiment_of(task_of(name))["train_data_path"]))
    vocab = Vocabulary.from_params(params.pop("vocabulary", Params({})), instances=instances)
    model = Model.from_params(params.pop("model"), vocab=vocab)
    assert len(model.forward_on_instances(instances[:2])) == min(len(instances), 2) > 0
    placed = model.text_encoder.elmo
    if variant != "unchanged":
        assert placed.places == PLACES_OF[variant]
    if variant == "input":  # with the last layer only
        trained = [name for name, p in placed.elmo.named_parameters() if p.requires_grad]
        assert trained == ["scalar_mix_0.gamma"]
        # Initial values of layers do not reach the biLM.
        bilm = dict(placed.elmo.named_parameters())
        for parameter_name, value in BiLM.from_files(*TINY_BILM).named_parameters():
            assert torch.equal(value, bilm[f"_elmo_lstm.{parameter_name}"]), parameter_name
    if variant == "both":
        before = model.get_regularization_penalty()  # the mix weights are zeros at first
        for mix in placed.elmo.scalar_mixes:
            for parameter in mix.scalar_parameters:
                parameter.data.fill_(1.0)
        penalty = model.get_regularization_penalty()
        # Of two mixes of three layers, beside the squares of all other parameters.
        terms = sum(parameter.numel() for parameter in model.parameters())
        assert_close(penalty - before, 0.5 * 2 * 3, terms, float(penalty), torch.float32)


@pytest.mark.parametrize("name", CONFIGS)
def test_only_pretrained_vectors_are_of_words_that_the_training_data_lack(name: str) -> None:
    config = published_experiment(name)
    embedders = config["model"]["text_encoder"]["text_field_embedder"]
    if embedders is None:  # only ELMo
        return
    texts = {"train": "once twice twice", "validation": "other other twice"}
    params = config["dataset_reader"]
    params = params.get("reader", params)["token_indexers"]
    indexers = {key: TokenIndexer.from_params(params[key]) for key in params}
    instances = [
        Instance({"words": TextField([Token(word) for word in texts[part].split()], indexers)})
        for part in config.get("datasets_for_vocab_creation", list(texts))
    ]
    vocabulary = config.get("vocabulary", Params({}))
    vocab = Vocabulary.from_params(vocabulary, instances=instances)
    known = set(vocab.get_token_to_index_vocabulary("tokens")) - {"@@PADDING@@", "@@UNKNOWN@@"}
    is_pretrained = embedders["token_embedders"]["tokens"].get("pretrained_file") is not None
    assert known == ({"once", "twice", "other"} if is_pretrained else {"twice"})


@pytest.mark.parametrize(
    "name", ["ner", "ner_small", "squad", "squad_small", "coref", "coref_small"]
)
def test_characters_of_short_words_are_read(name: str) -> None:
    config = published_experiment(name)
    indexer = config["dataset_reader"]["token_indexers"]["token_characters"]
    embedders = config["model"]["text_encoder"]["text_field_embedder"]["token_embedders"]
    words = [Token("I"), Token("a"), Token("London")]
    field = TextField(words, {"characters": TokenIndexer.from_params(indexer)})
    vocab = Vocabulary.from_instances([Instance({"words": field})])
    field.index(vocab)
    characters = field.as_tensor(field.get_padding_lengths())["characters"]["token_characters"]
    embedder = TokenEmbedder.from_params(embedders["token_characters"], vocab=vocab).eval()
    # They differ, and each is more than zeros.
    vectors = embedder(characters[None])[0]  # (num_words, dim)
    assert len(torch.cat([vectors, vectors * 0]).unique(dim=0)) == len(words) + 1


def test_the_srl_experiments_have_no_bias_on_the_input_and_forget_biases_of_1() -> None:
    for name in ("srl", "srl_small"):
        encoder = published_experiment(name)["model"]["text_encoder"]["encoder"]
        size = encoder["hidden_size"]
        lstm = Seq2SeqEncoder.from_params(encoder, input_size=7)._module
        for layer in lstm.lstm_layers:
            assert layer.cell.input_linearity.bias is None
            biases = layer.cell.state_linearity.bias.detach().view(5, size)
            assert (biases[1] == 1).all() and not biases[[0, 2, 3, 4]].any()


def test_the_indicator_of_the_srl_experiment_starts_as_in_allennlp(tmp_path: Path) -> None:
    params = small_experiment("srl", tmp_path)
    reader = DatasetReader.from_params(params.pop("dataset_reader"))
    instances = list(reader.read(experiment_of("srl")["train_data_path"]))
    vocab = Vocabulary.from_instances(instances)
    weight = Model.from_params(params.pop("model"), vocab=vocab).predicate_embedding.weight
    # Glorot's limit for a matrix of 2 x 100; a normal distribution exceeds it in most of the 200 numbers.
    assert 0 < weight.abs().max() <= (6 / (2 + 100)) ** 0.5


@pytest.mark.parametrize(
    "name, num_parameters",
    [("bilm", 93_600_848), ("bilm_small", 11_902_800), ("bilm_mini", 2_740_048)],
)
def test_a_pretraining_config_has_the_released_size(name: str, num_parameters: int) -> None:
    # The vocabulary of the fixture has fewer words than the paper's negatives.
    params = published_experiment(name, {"model.softmax.num_samples": 100})
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
    start: str, expected: Dict[str, str]
) -> None:
    model = published_experiment("bilm_finetune", LM_START=start)["model"].as_dict(quiet=True)
    assert {key: value for key, value in model.items() if key.endswith("_file")} == expected


@pytest.mark.parametrize("name", ["bilm_mini", "bilm_finetune"])
def test_adam_of_a_bilm_is_fused(name: str) -> None:
    params = published_experiment(name, LM_START="elmo_mini")["trainer"]["optimizer"]
    weights = [("weight", torch.nn.Parameter(torch.zeros(2)))]
    optimizer = Optimizer.from_params(params, model_parameters=weights)
    assert [group["fused"] for group in optimizer.param_groups if group["params"]] == [True]


@pytest.mark.parametrize("name", ALL_CONFIGS)
def test_files_come_from_external_variables_or_urls(name: str) -> None:
    files = {
        key: value
        for key, value in published_experiment(name).as_flat_dict().items()
        if key.endswith(("_path", "_file")) and value is not None
    }
    assert len(files) >= 2
    for key, value in files.items():
        for path_or_url in value if isinstance(value, list) else [value]:
            assert path_or_url.startswith((ORIGINAL, "https://", *EXT_VARS.values())), key
