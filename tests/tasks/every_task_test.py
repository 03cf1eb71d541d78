"""
What holds for every task with a folder `tiny` in the fixtures: `experiment_elmo.jsonnet` trains in seconds,
and its archive answers the lines of `inputs.jsonl`.
"""

import json
import re
from pathlib import Path
from typing import Any, Dict, List, Tuple

import pytest
import torch
from _pytest.fixtures import SubRequest
from allennlp.commands.train import train_model_from_file
from allennlp.common import Params
from allennlp.common.testing import ModelTestCase
from allennlp.data import DatasetReader
from allennlp.models import Model, load_archive
from allennlp.predictors import Predictor

from elmo_plugin.errors import ConfigurationError
from elmo_plugin.report.runs import RunFolder
from elmo_plugin.report.statistics import item_counts, score
from elmo_plugin.tasks import predicting
from elmo_plugin.tasks.tags import find_tag_fault
from tests.closeness import assert_close
from tests.tasks.task_testing import (
    FIXTURES,
    TASKS,
    TINY_BILM,
    as_tensors,
    build_tiny,
    experiment_of,
    num_terms,
    read_tiny,
    run_predict,
    texts_and_numbers,
)

_ELMO = "model.text_encoder.elmo"

# An experiment of each task, and what is changed in it.
VARIANTS: Dict[str, Tuple[str, Dict[str, Any]]] = {
    "without ELMo": ("experiment", {}),
    "ELMo at the input and the output": ("experiment_elmo", {}),
    "a trainable biLM": ("experiment_elmo", {f"{_ELMO}.requires_grad": True}),
    "ELMo inside the text field embedder": (
        "experiment",
        {
            # AllenNLP's indexer, as in configs of its users.
            "dataset_reader.token_indexers.elmo": {"type": "elmo_characters"},
            "model.text_encoder.text_field_embedder.token_embedders.elmo": {
                "type": "elmo",
                **dict(zip(("options_file", "weight_file"), TINY_BILM)),
            },
        },
    ),
}

# Biases of all scores of a softmax, which AllenNLP's modules have: their gradients are 0, but for rounding.
IGNORED_BY_A_SOFTMAX = {
    "span_representation.attended._global_attention._module.bias",
    "attention.similarity._bias",
    "self_attention.similarity._bias",
}

# Sentences of NER, SRL and SST, premises of SNLI, articles of SQuAD, documents of coreference.
NUM_ITEMS = {"ner": 8, "srl": 6, "sst": 8, "snli": 4, "squad": 2, "coref": 3}


@pytest.fixture(scope="module", params=TASKS)
def trained(request: SubRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the archive of a task, named as the task is."""
    folder = tmp_path_factory.mktemp("trained") / request.param
    experiment = FIXTURES / request.param / "tiny" / "experiment_elmo.jsonnet"
    # In less training it finds no cluster.
    more = {"trainer.num_epochs": 12, "trainer.optimizer.lr": 0.05}
    overrides = more if request.param == "coref" else {}
    train_model_from_file(experiment, folder, overrides)
    return folder


@pytest.fixture(scope="module")
def predictor(trained: Path) -> Predictor:
    return Predictor.from_archive(load_archive(trained))


@pytest.fixture(scope="module")
def inputs(trained: Path) -> List[Dict[str, Any]]:
    lines = (FIXTURES / trained.name / "tiny" / "inputs.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def assert_same_answers(actual: Any, expected: Any, model: Model) -> None:
    """Compare JSON. Rounding depends on the batch."""
    texts, numbers = zip(texts_and_numbers(actual), texts_and_numbers(expected))
    assert texts[0] == texts[1]
    # Probabilities, of texts of up to 50 tokens.
    terms = num_terms(model, num_steps=50)
    assert_close(*numbers, terms=terms, scale=1.0, dtype=torch.float32)


class TestTraining(ModelTestCase):
    """AllenNLP's test: a model trains, its gradients are there, and loaded it predicts the same."""

    test_model_batch_norm_verification = None  # of a model that this class does not have

    @pytest.mark.parametrize(
        "task, variant",
        [
            (task, variant)
            for task in TASKS
            for variant, (_, overrides) in VARIANTS.items()
            # What is changed concerns all tasks in the same way, but for documents, which are read in
            # segments, and for two texts with averaged weights.
            if not overrides or task in ("coref", "squad")
        ],
    )
    def test_a_model_trains_is_saved_and_loaded(self, task: str, variant: str) -> None:
        experiment, overrides = VARIANTS[variant]
        self.ensure_model_can_train_save_and_load(
            FIXTURES / task / "tiny" / f"{experiment}.jsonnet",
            overrides=json.dumps({"trainer.num_epochs": 1, **overrides}),
            gradients_to_ignore=IGNORED_BY_A_SOFTMAX,
            seed=13,
        )


# What is replaced in the file of a task, and the error with its place.
NO_DOCUMENT = "#begin document (a/b); part 000\n#end document\n#begin"
UNUSABLE = {
    "coref no sentence": (
        "#begin",
        NO_DOCUMENT,
        "line 1, document a/b, part 000: found a document with",
    ),
    "coref": (
        "lives",
        "@@PADDING@@",
        "line 1, document bc/tiny/00/tiny_0001, part 000: found the token",
    ),
    "ner": ("visited", "@@PADDING@@", "line 3: found the token"),
    "snli": ("Nobody reads.", "@@PADDING@@", "line 3: found the token @@PADDING@@ in a hypothesis"),
    "squad": ('"question": "Where', '"question": "@@PADDING@@', "found the token"),
    "srl": ("slept", "@@PADDING@@", "line 2, document fx/tale/cat, part 000: found the token"),
    "sst": ("awful", "@@PADDING@@", "line 2: found the token"),
}


def test_every_task_has_a_case_of_text_that_cannot_be_used() -> None:
    assert {case.split()[0] for case in UNUSABLE} == set(TASKS)


@pytest.mark.parametrize("case", UNUSABLE)
def test_text_that_cannot_be_used_is_refused_with_its_place(case: str, tmp_path: Path) -> None:
    task, _, _ = case.partition(" ")
    params = experiment_of(task)
    source = Path(params["train_data_path"])
    old, new, message = UNUSABLE[case]
    text = source.read_text(encoding="utf-8")
    assert old in text
    path = tmp_path / source.name
    path.write_text(text.replace(old, new, 1), encoding="utf-8")
    reader = DatasetReader.from_params(params["dataset_reader"])
    with pytest.raises(
        ConfigurationError, match=f"^{re.escape(f'{path}, ')}.*{re.escape(message)}"
    ):
        list(reader.read(path))


@pytest.mark.parametrize("task", TASKS)
def test_an_initializer_reaches_all_parameters(task: str) -> None:
    zero = {"regexes": [[".*", {"type": "constant", "val": 0.0}]]}
    model = build_tiny(task, read_tiny(task)[1], initializer=zero)
    assert not any(parameter.any() for parameter in model.parameters())


def test_the_counts_of_items_give_the_score_of_a_run(trained: Path) -> None:
    config = json.loads((trained / "config.json").read_text())
    metric = config["trainer"]["validation_metric"].removeprefix("+")
    counts = item_counts(RunFolder(trained, config), metric)
    assert counts is not None and len(counts) == NUM_ITEMS[trained.name]
    expected = json.loads((trained / "metrics.json").read_text())[f"best_validation_{metric}"]
    assert expected > 0.0
    assert_close(score(counts.sum(axis=0)), expected, terms=counts.size)


def dropouts_of(params: Any, prefix: str = "") -> List[str]:
    """The keys of all dropouts of a model."""
    if not isinstance(params, dict):
        return [prefix[:-1]] if "dropout" in prefix.split(".")[-2] else []
    return [key for name in params for key in dropouts_of(params[name], f"{prefix}{name}.")]


@pytest.mark.parametrize("task", TASKS)
def test_each_dropout_is_active_only_in_training(task: str) -> None:
    instances, vocab = read_tiny(task)
    tensors = as_tensors(instances, vocab)
    model_params = experiment_of(task)["model"].as_dict(quiet=True)
    dropouts = [key for key in dropouts_of(model_params) if "variational" not in key]
    assert dropouts
    for dropout in dropouts:
        options = {"max_training_sentences": 100} if task == "coref" else {}
        model = build_tiny(task, vocab, **{dropout: 0.5}, **options)
        losses = [model(**tensors)["loss"].item() for _ in range(2)]
        assert losses[0] != losses[1], dropout
        model.eval()
        losses = [model(**tensors)["loss"].item() for _ in range(2)]
        assert losses[0] == losses[1], dropout


@pytest.mark.parametrize("task", ["ner", "srl"])
def test_only_possible_sequences_of_tags_are_predicted(task: str) -> None:
    instances, vocab = read_tiny(task)
    model = build_tiny(task, vocab).eval()
    with torch.no_grad():
        model.tag_projection.weight.mul_(50)  # an untrained model with strong opinions
        inside = torch.tensor([tag.startswith("I-") for tag in model.tags])
        model.tag_projection.bias[inside] += 1000  # of which no sentence can consist
    output = model.make_output_human_readable(model(**as_tensors(instances, vocab)))
    assert list(map(len, output["tags"])) == [len(instance["tokens"]) for instance in instances]
    assert not any(find_tag_fault(tags, model.label_scheme) for tags in output["tags"])


def test_reader_model_and_predictor_share_the_tasks_name(
    trained: Path, predictor: Predictor
) -> None:
    params = Params.from_file(trained / "config.json")
    name = f"elmo_{trained.name}"
    assert params["dataset_reader"]["type"] == params["model"]["type"] == name
    assert type(predictor) is Predictor.by_name(name)
    assert predictor._model.default_predictor == name


def test_without_gold_labels_there_is_no_loss_and_nothing_to_measure(
    predictor: Predictor, inputs: List[Dict[str, Any]]
) -> None:
    model = predictor._model
    model.get_metrics(reset=True)
    instances = predictor.instances_from_json(inputs[0])
    for instance in instances:
        predictor._dataset_reader.apply_token_indexers(instance)
    output = model(**as_tensors(instances, model.vocab))
    assert "loss" not in output
    readable = model.make_output_human_readable(output)
    assert readable.keys() - output.keys() <= {"label"}
    assert set(model.get_metrics().values()) == {0.0}


_SRL = "'predicates' is .*, expected a list of different indices of the 1 tokens, 0 to 0"
WRONG_INPUTS: Dict[str, List[Tuple[Dict[str, Any], str]]] = {
    "coref": [
        ({"document": "Rain", "sentences": [["Rain"]]}, "Found the keys 'document', 'sentences'"),
        ({"sentences": "Rain"}, "'sentences' is \"Rain\", expected a list of sentences"),
        ({"sentences": [["Rain"], []]}, r"'sentences\[1\]' is \[\], expected a list of words"),
        ({"sentences": [["Rain", 3]]}, r"'sentences\[0\]'\[1\] is 3, expected a word"),
        ({"sentences": [["Rain"]], "genre": 3}, "'genre' is 3, expected a text"),
    ],
    "ner": [({"tokens": []}, r"'tokens' is \[\], expected a list of words")],
    "snli": [
        ({"hypothesis": "Rain"}, "Found the keys 'hypothesis' .* one of 'premise', 'sentence1'"),
        ({"sentence1": "Rain", "hypothesis": "Rain"}, "expected 'sentence2'"),
    ],
    "squad": [({"passage": "It rained.", "question": ""}, "'question' is \"\", expected a text")],
    "srl": [
        *(
            ({"tokens": ["Rain"], "predicates": predicates}, _SRL)
            for predicates in (None, [0, 1], [-1], [True], [0, 0], [0.0])
        ),
        ({"sentence": "Rain."}, "expected 'predicates', as in"),
    ],
    "sst": [({"sentence": "Rain", "tokens": ["Rain"]}, "Found the keys 'sentence', 'tokens'")],
}


def test_wrong_input_is_refused_with_an_example(trained: Path, predictor: Predictor) -> None:
    for wrong, message in WRONG_INPUTS[trained.name]:
        with pytest.raises(ConfigurationError, match=message) as error:
            predictor.predict_json(wrong)
        assert predictor.example in str(error.value)


@pytest.mark.parametrize("batch_size", [1, 3])
def test_a_bad_line_is_answered_with_an_error_and_stops_no_other(
    batch_size: int,
    trained: Path,
    predictor: Predictor,
    inputs: List[Dict[str, Any]],
    tmp_path: Path,
) -> None:
    lines = [
        json.dumps(inputs[0]),
        "Not JSON",
        "[1]",
        json.dumps({"wrong key": 1}),
        json.dumps(inputs[-1]),
    ]
    input_file, output_file = tmp_path / "inputs.jsonl", tmp_path / "outputs.jsonl"
    input_file.write_text("\n".join(lines) + "\n")
    run_predict(
        *(trained / "model.tar.gz", input_file, "--output-file", output_file),
        *("--batch-size", batch_size, "--silent"),
    )
    outputs = [json.loads(line) for line in output_file.read_text().splitlines()]
    assert len(outputs) == len(lines)
    for index in (0, -1):
        expected = predictor.predict_json(inputs[index])
        assert_same_answers(outputs[index], expected, predictor._model)
    for output, found in zip(outputs[1:-1], ("not JSON", "The input is [1]", "wrong key")):
        assert list(output) == ["error"]
        assert found in output["error"] and predictor.example in output["error"]


def test_batches_of_similar_length_change_no_answer(
    predictor: Predictor, inputs: List[Dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    one_by_one = [predictor.predict_json(one_input) for one_input in inputs]
    batches: List[None] = []
    hook = predictor._model.register_forward_hook(lambda *_: batches.append(None))
    monkeypatch.setattr(predicting, "_MAX_TOKENS", 30)
    together = predictor.predict_batch_json(inputs * 3)
    hook.remove()
    assert_same_answers(together, one_by_one * 3, predictor._model)
    assert 1 < len(batches) < len(inputs * 3)


def test_the_command_predicts_from_a_data_file(
    trained: Path, predictor: Predictor, tmp_path: Path
) -> None:
    data = Params.from_file(trained / "config.json")["validation_data_path"]
    output_file = tmp_path / "outputs.jsonl"
    run_predict(
        *(trained / "model.tar.gz", data, "--output-file", output_file),
        *("--use-dataset-reader", "--batch-size", 2, "--silent"),
    )
    outputs = [json.loads(line) for line in output_file.read_text().splitlines()]
    instances = list(predictor._dataset_reader.read(data))
    expected = [predictor.predict_instance(instance) for instance in instances]
    assert_same_answers(outputs, expected, predictor._model)


@pytest.mark.parametrize("task", TASKS)
def test_files_of_other_tasks_are_refused(task: str) -> None:
    reader = DatasetReader.from_params(Params({"type": f"elmo_{task}"}))
    same_format = {"srl": "coref", "coref": "srl"}
    for other in TASKS:
        if other not in (task, same_format.get(task)):
            path = experiment_of(other)["train_data_path"]
            with pytest.raises(ConfigurationError, match=rf"{Path(path).name}.*(found|Found)"):
                list(reader.read(path))
