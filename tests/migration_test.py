"""`elmo` in place of `elmo_token_embedder`: in configs of others, and in archives that exist already."""

import copy
import json
import shutil
from pathlib import Path
from typing import Any, Callable, Dict, List

import pytest
import torch
from allennlp.commands.train import train_model
from allennlp.common import Params
from allennlp.common.util import import_module_and_submodules, prepare_environment
from allennlp.data import DatasetReader, Vocabulary
from allennlp.data.batch import Batch
from allennlp.models import Model, load_archive

from tests.closeness import assert_accurate
from tests.conftest import BiLMFiles

TAGGED = [
    "The###DT naïve###JJ cat###NN sat###VBD .###.",
    "It###PRP sat###VBD",
    "Why###WRB ?###.",
] * 2

PARAGRAPH = {
    "context": "Rome was not built in a day. Ada was there.",
    "qas": [
        {"id": question, "question": question, "answers": [{"text": text, "answer_start": start}]}
        for question, text, start in [
            ("Who was there?", "Ada", 29),
            ("What was not built in a day?", "Rome", 0),
        ]
    ],
}


def embedders(files: BiLMFiles, **arguments: Any) -> Dict[str, Any]:
    """A text field embedder with words and ELMo, 4 + 12 wide."""
    elmo = {"type": "elmo_token_embedder", **files._asdict(), "dropout": 0.0, **arguments}
    return {"token_embedders": {"tokens": {"type": "embedding", "embedding_dim": 4}, "elmo": elmo}}


INDEXERS = {"tokens": {"type": "single_id"}, "elmo": {"type": "elmo_characters"}}


def lstm(input_size: int) -> Dict[str, Any]:
    return {"type": "lstm", "input_size": input_size, "hidden_size": 5, "bidirectional": True}


def experiment(
    data: Path, reader: Dict[str, Any], model: Dict[str, Any], batch_size: int = 2
) -> Dict[str, Any]:
    return {
        "dataset_reader": {"token_indexers": INDEXERS, **reader},
        "train_data_path": str(data),
        "validation_data_path": str(data),
        "model": model,
        "data_loader": {"batch_size": batch_size},
        "trainer": {"optimizer": {"type": "adam", "lr": 0.01}, "num_epochs": 2, "cuda_device": -1},
    }


def simple_tagger(files: BiLMFiles, folder: Path, batch_size: int = 2) -> Dict[str, Any]:
    data = folder / "tagged.txt"
    data.write_text("\n".join(line.replace(" ", "\t") for line in TAGGED), encoding="utf-8")
    model = {
        "type": "simple_tagger",
        "text_field_embedder": embedders(files),
        "encoder": lstm(16),
        "regularizer": {"regexes": [["scalar_parameters", {"type": "l2", "alpha": 0.1}]]},
    }
    return experiment(data, {"type": "sequence_tagging"}, model, batch_size)


def bidaf(files: BiLMFiles, folder: Path) -> Dict[str, Any]:
    """The embedder runs twice in each pass of this model."""
    data = folder / "squad.json"
    data.write_text(json.dumps({"data": [{"title": "Rome", "paragraphs": [PARAGRAPH]}]}))
    model = {
        "type": "bidaf",
        "text_field_embedder": embedders(files),
        "num_highway_layers": 1,
        "phrase_layer": lstm(16),
        "matrix_attention": {
            "type": "linear",
            "combination": "x,y,x*y",
            "tensor_1_dim": 10,
            "tensor_2_dim": 10,
        },
        "modeling_layer": lstm(40),
        "span_end_encoder": lstm(70),
        "dropout": 0.0,
    }
    return experiment(data, {"type": "squad", "tokenizer": {"type": "elmo_rule_based"}}, model)


@pytest.fixture(params=[simple_tagger, bidaf])
def config(request: Any, bilm_files: BiLMFiles, tmp_path: Path) -> Dict[str, Any]:
    """A complete experiment with AllenNLP's embedder."""
    if request.param is bidaf:
        pytest.importorskip("allennlp_models")
        import_module_and_submodules("allennlp_models")
    return request.param(bilm_files, tmp_path)


def elmo_in(config: Dict[str, Any]) -> Dict[str, Any]:
    return config["model"]["text_field_embedder"]["token_embedders"]["elmo"]


def with_our_embedder(config: Dict[str, Any], **arguments: Any) -> Dict[str, Any]:
    """The one word that a user changes."""
    config = copy.deepcopy(config)
    elmo_in(config).update(type="elmo", **arguments)
    return config


OVERRIDES = json.dumps({"model.text_field_embedder.token_embedders.elmo.type": "elmo"})


def train(config: Dict[str, Any], folder: Path) -> Path:
    params = Params(copy.deepcopy(config))
    prepare_environment(params)
    train_model(params, str(folder))
    return folder / "model.tar.gz"


def predictions(model: Model, config: Dict[str, Any]) -> List[Dict[str, Any]]:
    reader = DatasetReader.from_params(Params(copy.deepcopy(config["dataset_reader"])))
    outputs = model.forward_on_instances(list(reader.read(config["validation_data_path"])))
    for output in outputs:
        output.pop("loss", None)
    return outputs


def assert_same(ours: Any, theirs: Any) -> None:
    """The same words and labels, and numbers within the promised accuracy."""
    if isinstance(ours, dict):
        assert ours.keys() == theirs.keys()
        ours, theirs = list(ours.values()), list(theirs.values())
    if isinstance(ours, (list, tuple)):
        for a, b in zip(ours, theirs, strict=True):
            assert_same(a, b)
    elif hasattr(ours, "dtype") or isinstance(ours, float):
        assert_accurate(ours, theirs)
    else:
        assert ours == theirs


def test_a_trained_archive_loads_with_the_type_overridden_and_predicts_the_same(
    config: Dict[str, Any], tmp_path: Path
) -> None:
    archive_file = train(config, tmp_path / "theirs")
    theirs = load_archive(archive_file).model
    ours = load_archive(archive_file, overrides=OVERRIDES).model
    their_mix = [p for name, p in theirs.named_parameters() if "scalar_mix" in name]
    our_mix = [p for name, p in ours.named_parameters() if "scalar_mix" in name]
    assert all(torch.equal(a, b) for a, b in zip(our_mix, their_mix, strict=True))  # copies
    # Their first pass starts from zero states, as all of ours do; bidaf takes more passes than one.
    for module in theirs.modules():
        if hasattr(module, "stateful"):
            module.stateful = False
    assert_same(predictions(ours, config), predictions(theirs, config))


def test_training_has_the_same_losses(config: Dict[str, Any]) -> None:
    """
    From the same initial weights, five steps of both give the same losses. SGD moves weights by gradients,
    which are as accurate as values.
    """
    reader = DatasetReader.from_params(Params(copy.deepcopy(config["dataset_reader"])))
    instances = list(reader.read(config["train_data_path"]))
    vocab = Vocabulary.from_instances(instances)
    theirs = Model.from_params(Params(copy.deepcopy(config["model"])), vocab=vocab)
    # AllenNLP carries states from batch to batch; so do we, if asked.
    ours_config = with_our_embedder(config, stateful=True)
    ours = Model.from_params(Params(ours_config["model"]), vocab=vocab)
    ours.load_state_dict(theirs.state_dict())
    batch = Batch(instances)
    batch.index_instances(vocab)
    tensors = batch.as_tensor_dict()
    losses: List[List[float]] = []
    for model in (ours, theirs):
        model.train()
        optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
        losses.append([])
        for _ in range(5):
            optimizer.zero_grad()
            penalty = model.get_regularization_penalty()
            loss = model(**tensors)["loss"] + (0.0 if penalty is None else penalty)
            loss.backward()
            optimizer.step()
            losses[-1].append(loss.item())
    assert_same(losses[0], losses[1])
    assert losses[0][-1] < losses[0][0]


def test_an_archive_with_a_fine_tuned_bilm_loads_too(bilm_files: BiLMFiles, tmp_path: Path) -> None:
    config = simple_tagger(bilm_files, tmp_path, batch_size=6)
    elmo_in(config)["requires_grad"] = True
    archive_file = train(config, tmp_path / "theirs")
    theirs = load_archive(archive_file).model
    ours = load_archive(archive_file, overrides=OVERRIDES).model
    assert_same(predictions(ours, config), predictions(theirs, config))


def test_an_archive_holds_the_weights_of_its_bilm_once_and_needs_no_other_files(
    bilm_files: BiLMFiles, write_bilm: Callable[..., BiLMFiles], tmp_path: Path
) -> None:
    config = with_our_embedder(simple_tagger(bilm_files, tmp_path))
    archive_file = train(config, tmp_path / "run")
    model = load_archive(archive_file).model
    expected = predictions(model, config)
    state_dict = model.state_dict()
    bilm = model.text_field_embedder.token_embedder_elmo.elmo.bilm
    for name, parameter in bilm.named_parameters():
        assert [key for key in state_dict if key.endswith(f"_elmo_lstm.{name}")]
        same = [key for key, value in state_dict.items() if value.equal(parameter)]
        assert len(same) == 1 or not parameter.any(), name
    # Other files that overrides name give the shape, and the archive's weights fill it.
    overrides = {
        f"model.text_field_embedder.token_embedders.elmo.{key}": file
        for key, file in write_bilm(seed=3, name="other")._asdict().items()
    }
    filled = load_archive(archive_file, overrides=json.dumps(overrides)).model
    assert_same(predictions(filled, config), expected)
    for file in bilm_files:
        Path(file).unlink()
    elsewhere = shutil.move(archive_file, tmp_path / "elsewhere.tar.gz")
    for path in (tmp_path / "run", elsewhere):
        assert_same(predictions(load_archive(path).model, config), expected)
