import copy
import json
from pathlib import Path
from typing import Any, Dict, Optional

import pytest

from elmo_plugin.errors import ConfigurationError
from elmo_plugin.report.variants import (
    ELMO_KEY,
    NO_WORD_VECTORS,
    TaskExperiment,
    TaskOptions,
    Variant,
)
from tests.conftest import REPOSITORY
from tests.tasks.task_testing import TASKS

WORDS = "model.text_encoder.text_field_embedder.token_embedders.tokens"
CONFIGS = REPOSITORY / "training_configs"
TINY = REPOSITORY / "fixtures" / "ner" / "tiny"
# Of each config: where ELMo is, and the L2 of its mix weights.
PLACEMENT_AND_L2 = {
    "ner": ("input", 0.1),
    "srl": ("input", 0.001),
    "sst": ("both", 0.001),
    "snli": ("both", 0.001),
    "squad": ("both", 0.0),
    "coref": ("input", 0.0),
}


@pytest.fixture(autouse=True)
def variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for task in TASKS:
        monkeypatch.setenv(f"{task.upper()}_DATA", f"data/{task}")
    monkeypatch.setenv("ELMO", "elmo_mini")


def experiment(config_file: Path, **options: Any) -> TaskExperiment:
    return TaskExperiment(TaskOptions(config_file=str(config_file), output="results", **options))


def small(task: str, overrides: Optional[Dict[str, Any]] = None) -> TaskExperiment:
    return experiment(CONFIGS / f"{task}_small.jsonnet", overrides=overrides)


def penalties(experiment_or_run: Any) -> Any:
    """The penalties of the weights of mixes, and the entries of other parameters."""
    regexes = experiment_or_run.config["model"]["regularizer"]["regexes"]
    of_mixes = [penalty["alpha"] for regex, penalty in regexes if regex == "scalar_parameters"]
    return of_mixes, [entry for entry in regexes if entry[0] != "scalar_parameters"]


@pytest.mark.parametrize("task", TASKS)
class TestEveryTask:
    def test_a_variant_changes_only_its_keys_and_the_seeds(self, task: str) -> None:
        experiment = small(task)
        place = PLACEMENT_AND_L2[task][0]
        assert (experiment.task, experiment.name, experiment.placement) == (task, task, place)
        assert experiment.is_larger_better
        assert experiment.metric in ("f1", "accuracy", "coref_f1")
        changes_of: Dict[Variant, Any] = {
            Variant("ELMo"): (place, {}),
            Variant("no ELMo", placement="none"): ("none", {"placement": "none"}),
            Variant("last", last_layer_only=True): (f"{place}-last", {"top_layer_only": True}),
        }
        for variant, (name, changes) in changes_of.items():
            run = experiment.run_of(variant, seed=7)
            expected = copy.deepcopy(experiment.config)
            expected.update(random_seed=7, numpy_seed=7, pytorch_seed=7)
            expected["model"]["text_encoder"]["elmo"].update(changes)
            assert (run.name, run.config) == (f"{task}-{name}-seed7", expected)

    @pytest.mark.parametrize("l2", [1.0, 0.001])
    def test_lambda_is_set_once_and_other_penalties_stay(self, l2: float, task: str) -> None:
        experiment = small(task)
        run = experiment.run_of(Variant("all", last_layer_only=False, scalar_mix_l2=l2), seed=7)
        (penalty, others), (set_penalty, same_others) = map(penalties, (experiment, run))
        assert (penalty, set_penalty) == ([PLACEMENT_AND_L2[task][1]], [l2])
        assert others == same_others
        assert len(others) == (1 if task == "snli" else 0)
        # Where the config has this lambda, the run is that of the config, which other reports need too.
        part = "" if l2 == PLACEMENT_AND_L2[task][1] else f"-l2_{l2:g}"
        assert run.name == f"{task}-{PLACEMENT_AND_L2[task][0]}{part}-seed7"

    def test_a_share_applies_only_to_training_data(self, task: str) -> None:
        experiment = small(task)
        run = experiment.run_of(Variant("no ELMo", placement="none", share=0.05), seed=7)
        assert run.name == f"{task}-none-share_0.05-seed7"
        assert run.config["dataset_reader"] == {
            "type": "elmo_share",
            "reader": experiment.config["dataset_reader"],
            "share": 0.05,
            "seed": 7,
        }
        expected = experiment.config.get(
            "validation_dataset_reader", experiment.config["dataset_reader"]
        )
        assert run.config["validation_dataset_reader"] == expected
        assert expected.get("reader", expected)["type"] == f"elmo_{task}"
        # Nor do the batches of an epoch, where data of both kinds have one loader.
        overrides = {"validation_data_loader": None, "validation_dataset_reader": None}
        variant = Variant("no ELMo", placement="none", share=0.05, batches_per_epoch=3)
        config = small(task, overrides).run_of(variant, seed=7).config
        assert config["data_loader"]["batches_per_epoch"] == 3
        assert "batches_per_epoch" not in config["validation_data_loader"]
        assert config["validation_dataset_reader"]["type"] != "elmo_share" or task == "srl"

    def test_words_without_pretrained_vectors_are_those_of_the_training_data(
        self, task: str, tmp_path: Path
    ) -> None:
        vectors = tmp_path / "own.txt"
        vectors.write_text("the 0.1 0.2\n", encoding="utf-8")
        none = small(task)
        keys = ("vocabulary", "datasets_for_vocab_creation")
        with_vectors = none.run_of(Variant("words", word_vectors=str(vectors)), seed=7).config
        assert "tokens" not in with_vectors["vocabulary"]["min_count"]
        assert with_vectors["datasets_for_vocab_creation"] is None
        # A variant without those of a config has the vocabulary of a config without any.
        overrides: Dict[str, Any] = {f"{WORDS}.pretrained_file": str(vectors)}
        overrides.update({key: with_vectors[key] for key in keys})
        without = Variant("none", word_vectors=NO_WORD_VECTORS)
        again = small(task, overrides).run_of(without, seed=7)
        assert {key: again.config[key] for key in keys} == {key: none.config[key] for key in keys}
        # So has one of a config of one's own, which counts all words, for all embedders of words.
        reader = copy.deepcopy(none.config["dataset_reader"])
        indexers = reader.get("reader", reader)["token_indexers"]
        indexers["others"] = {"namespace": "others"}  # of AllenNLP's default type
        indexers["tags"] = {"type": "single_id", "namespace": "tags", "feature_name": "tag_"}
        embedders = WORDS.rpartition(".")[0]
        plain: Dict[str, Any] = {"dataset_reader": reader, **dict.fromkeys(keys)}
        for name in ("others", "tags"):
            plain[f"{embedders}.{name}"] = {"type": "embedding", "embedding_dim": 2}
        run = small(task, plain).run_of(without, seed=7)
        assert run.name.endswith("-vectors_none-seed7")
        assert run.config["vocabulary"] == {"min_count": {"tokens": 2, "others": 2}}
        assert run.config["datasets_for_vocab_creation"] == ["train"]
        # The least count of a user stays.
        fives = {"tokens": 5, "token_characters": 3}
        users = small(task, {"vocabulary": {"min_count": fives}})
        run = users.run_of(Variant("words", word_vectors=str(vectors)), seed=7)
        assert run.config["vocabulary"] == {"min_count": fives}
        # The default type may be named.
        named = {"vocabulary": {"type": "from_instances"}, "datasets_for_vocab_creation": None}
        run = small(task, named).run_of(without, seed=7)
        assert run.config["vocabulary"] == {"type": "from_instances", "min_count": {"tokens": 2}}
        # One that does not count words stays.
        overrides["vocabulary"] = {"type": "empty"}
        variants = (Variant("a", word_vectors=vector) for vector in (NO_WORD_VECTORS, str(vectors)))
        for variant in variants:
            config = small(task, overrides).run_of(variant, seed=7).config
            assert config["vocabulary"] == {"type": "empty"}


def test_changes_come_after_overrides_of_the_same_keys() -> None:
    overrides = {
        "data_loader": {"batch_size": 3, "batches_per_epoch": 9},
        "random_seed": 5,
        f"{ELMO_KEY}.top_layer_only": True,
    }
    variant = Variant("a", share=0.5, batches_per_epoch=4, last_layer_only=False)
    run = small("ner", overrides).run_of(variant, seed=7)
    assert run.config["data_loader"] == {"batch_size": 3, "batches_per_epoch": 4}
    assert run.config["random_seed"] == 7
    assert run.config["model"]["text_encoder"]["elmo"]["top_layer_only"] is False
    assert run.name == "ner-input-all-share_0.5-batches_4-seed7"


@pytest.mark.parametrize(
    "regexes",
    [
        [],
        [["tag", {"type": "l2", "alpha": 1.0}]],
        # The first regex that matches decides.
        [
            ["scalar_mix", {"type": "l2", "alpha": 0.5}],
            ["scalar_parameters", {"type": "l1", "alpha": 1}],
        ],
    ],
)
def test_lambda_comes_before_penalties_of_other_parameters(regexes: Any) -> None:
    experiment = small("ner", {"model.regularizer": {"regexes": regexes}})
    run = experiment.run_of(Variant("all", scalar_mix_l2=1.0), seed=7)
    entry = ["scalar_parameters", {"type": "l2", "alpha": 1.0}]
    others = [regex for regex in regexes if regex[0] != "scalar_parameters"]
    assert run.config["model"]["regularizer"]["regexes"] == [entry, *others]
    assert run.name == "ner-input-l2_1-seed7"


def test_the_variables_that_the_config_and_its_imports_read_are_known(tmp_path: Path) -> None:
    lib = json.dumps(str(CONFIGS / "ner_small.jsonnet"))
    (tmp_path / "config.jsonnet").write_text(f"local ner = import {lib};\nner")
    read = experiment(tmp_path / "config.jsonnet").variables()
    assert read == {"ELMO": "elmo_mini", "NER_DATA": "data/ner"}
    assert experiment(TINY / "experiment_elmo.jsonnet").variables() == {}


@pytest.mark.parametrize(
    "task, overrides, message",
    [
        ("ner", {"model.type.a": 1}, r"ner_small\.jsonnet: cannot be evaluated"),
        (
            "ner",
            {"model.text_encoder.elmo": None},
            r"text_encoder\.elmo is null, expected an object",
        ),
        ("ner", {"model.text_encoder": "x"}, r'model\.text_encoder is "x", expected an object'),
        ("ner", {"trainer": "x"}, r'trainer is "x", expected an object'),
        ("ner", {"data_loader": None}, r"data_loader is null, expected an object"),
        (
            "ner",
            {"dataset_reader.token_indexers": None},
            r"token_indexers is null, expected an obj",
        ),
        ("ner", {f"{ELMO_KEY}.indexer": "other"}, "the reader lack 'other'"),
        ("squad", {"validation_dataset_reader": {"type": "elmo_squad"}}, "the reader lack 'elmo'"),
        ("ner", {f"{ELMO_KEY}.placement": "inside"}, r"placement is 'inside', .* one of none"),
        ("ner", {"validation_data_path": None}, "found no validation_data_path"),
        ("ner", {"trainer.validation_metric": ["+f1", "+a"]}, "validation_metric is .*one metric"),
    ],
)
def test_overrides_that_make_no_experiment(
    task: str, overrides: Dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        small(task, overrides)


@pytest.mark.parametrize(
    "text, message",
    [
        (None, r"config\.json: cannot be evaluated .*not found"),
        ('{"validation_data_path": "dev", "trainer": {"a": 1}}', "placement is 'missing', and"),
        (
            "{a: std.extVar('NO_SUCH')}",
            r"config\.json: cannot be evaluated \(RUNTIME ERROR: [^\n]*NO_SUCH\)\. Set the environment "
            "variable NO_SUCH, which",
        ),
    ],
)
def test_files_that_are_no_experiment(text: Optional[str], message: str, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / "config.json").write_text(text)
    with pytest.raises(ConfigurationError, match=message):
        experiment(tmp_path / "config.json")


def test_allennlps_own_metric_is_the_loss() -> None:
    experiment = small("ner", {"trainer": {"optimizer": "adam"}})
    assert (experiment.metric, experiment.is_larger_better) == ("loss", False)


def test_a_name_that_files_cannot_have_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="--name: found the name 'a/b'"):
        experiment(CONFIGS / "ner_small.jsonnet", name="a/b")


@pytest.mark.parametrize(
    "files, known",
    [
        ({"options_file": "elmo_mini"}, "elmo_mini"),
        ({"weight_file": "elmo_mini"}, "elmo_mini"),
        ({"options_file": "elmo_mini", "weight_file": "elmo_mini"}, "elmo_mini"),
        # Not the folder, which can have other weights.
        ({"options_file": "own/options.json", "weight_file": "own/tuned.hdf5"}, None),
    ],
)
def test_a_variant_trains_its_own_bilm(files: Dict[str, str], known: Optional[str]) -> None:
    task = small("ner", {ELMO_KEY: {"options_file": None, "weight_file": None, **files}})
    assert task.placement == "input"  # the default of `TextEncoder`
    assert task.bilm == known
    for bilm in ("elmo_mini", "own"):
        run = task.run_of(Variant("other", bilm=bilm), seed=7)
        elmo = run.config["model"]["text_encoder"]["elmo"]
        if bilm == known:
            assert {**files, **elmo} == elmo
        else:
            assert (elmo["options_file"], elmo["weight_file"]) == (bilm, None)
