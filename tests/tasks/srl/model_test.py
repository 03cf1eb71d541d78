import itertools
from pathlib import Path
from typing import List

import pytest
import torch
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from allennlp.data import Batch, Vocabulary
from allennlp.data.tokenizers import Token
from allennlp.models import Model
from numpy.testing import assert_allclose
from torch import Tensor

from elmo_plugin.tasks.srl import SrlReader
from elmo_plugin.tasks.srl.model import BioDecoder
from elmo_plugin.tasks.tags import find_tag_fault
from tests.tasks.task_testing import overfit

TINY = Path(__file__).parents[3] / "fixtures" / "srl" / "tiny"
EXPERIMENT = str(TINY / "experiment.jsonnet")
EXPERIMENT_WITH_ELMO = str(TINY / "experiment_elmo.jsonnet")


def build_model(vocab, text_encoder=None, **model_options):
    """The model of the tiny experiment, without dropout."""
    torch.manual_seed(13)
    params = Params.from_file(EXPERIMENT)["model"].as_dict()
    params["text_encoder"]["dropout"] = 0.0
    params["text_encoder"]["encoder"]["recurrent_dropout_probability"] = 0.0
    params["text_encoder"].update(text_encoder or {})
    return Model.from_params(Params({**params, **model_options}), vocab=vocab)


def read_instances():
    instances = list(SrlReader().read(TINY / "train.gold_conll"))
    return instances, Vocabulary.from_instances(instances)


def read_batch(num_instances=None):
    instances, vocab = read_instances()
    batch = Batch(instances[:num_instances])
    batch.index_instances(vocab)
    return batch.as_tensor_dict(), vocab


def vocabulary_of(*tags, namespace="labels"):
    return Vocabulary(tokens_to_add={"tokens": ["Rain"], namespace: list(tags)})


def predict_always(model, vocab, *tags):
    """Let the model be sure of these tags, whatever it reads."""
    ids = torch.tensor([[vocab.get_token_index(tag, "labels") for tag in tags]])
    logits = 100.0 * torch.nn.functional.one_hot(ids, model.num_tags).float()
    model.tag_projection.forward = lambda encoded: logits


def test_predicates_that_could_not_be_read_are_counted_beside_the_score():
    batch, vocab = read_batch()
    model = build_model(vocab).eval()
    model(**batch)
    assert "num_skipped_predicates" not in model.get_metrics()
    batch["metadata"][0] = {**batch["metadata"][0], "num_skipped_predicates": 2}
    model(**batch)
    assert model.get_metrics(reset=True)["num_skipped_predicates"] == 2
    assert "num_skipped_predicates" not in model.get_metrics()


def test_the_tiny_sentences_can_be_learned_by_heart():
    instances, vocab = read_instances()
    model = build_model(vocab)
    losses = overfit(model, instances, num_steps=80, lr=0.05)
    assert losses[-1] < 0.1 < losses[0]
    model.eval()
    model.forward_on_instances(instances)
    assert model.get_metrics()["f1"] == pytest.approx(1.0)


def test_gradients_reach_all_parameters():
    batch, vocab = read_batch()
    model = build_model(vocab)
    model(**batch)["loss"].backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None and parameter.grad.abs().sum() > 0, name


def test_padding_changes_nothing():
    batch, vocab = read_batch()
    alone, _ = read_batch(num_instances=1)
    model = build_model(vocab)
    model.eval()
    in_batch, single = model(**batch), model(**alone)
    assert in_batch["logits"].size(1) > single["logits"].size(1)
    # Sums of some dozen float32 numbers.
    assert_allclose(
        in_batch["logits"][0, :6].detach(), single["logits"][0].detach(), rtol=1e-5, atol=1e-6
    )
    assert in_batch["tags"][0] == single["tags"][0]


def test_loss_is_the_cross_entropy_averaged_over_tokens_and_then_over_sentences():
    batch, vocab = read_batch()
    model = build_model(vocab)
    output = model(**batch)
    losses = []
    for logits, tags, mask in zip(output["logits"], batch["tags"], output["mask"]):
        log_probabilities = logits.log_softmax(dim=-1)
        length = int(mask.sum())
        losses.append(-sum(log_probabilities[t, tags[t]] for t in range(length)) / length)
    assert_allclose(output["loss"].item(), torch.stack(losses).mean().item(), rtol=1e-5)


def test_the_model_is_told_the_predicate():
    batch, vocab = read_batch(num_instances=2)
    model = build_model(vocab)
    model.eval()
    logits = model(**batch)["logits"]
    # The same sentence, with the predicates "sat" and "slept".
    assert batch["tokens"]["tokens"]["tokens"][0].equal(batch["tokens"]["tokens"]["tokens"][1])
    assert not torch.allclose(logits[0], logits[1])
    batch["predicate_indicator"] = batch["predicate_indicator"][[1, 0]]
    swapped = model(**batch)["logits"].detach()
    # Sums of some dozen float32 numbers.
    assert_allclose(swapped, logits[[1, 0]].detach(), rtol=1e-5, atol=1e-6)


def test_only_possible_sequences_are_predicted():
    batch, vocab = read_batch()
    model = build_model(vocab)
    with torch.no_grad():
        model.tag_projection.weight.mul_(50)  # an untrained model with strong opinions
    model.eval()
    output = model.make_output_human_readable(model(**batch))
    assert [len(tags) for tags in output["tags"]] == [6, 6, 10, 10, 10, 10, 5, 4, 5]
    assert all(find_tag_fault(tags, "BIO") is None for tags in output["tags"])
    # Each token's best tag alone would not do.
    best = output["logits"].argmax(dim=-1).tolist()
    names = vocab.get_index_to_token_vocabulary("labels")
    best_alone = [
        [names[tag_id] for tag_id in tag_ids[: len(tags)]]
        for tag_ids, tags in zip(best, output["tags"])
    ]
    assert any(find_tag_fault(tags, "BIO") for tags in best_alone)


def test_nothing_is_decoded_or_measured_while_training():
    batch, vocab = read_batch()
    model = build_model(vocab)
    output = model(**batch)
    assert set(output) == {"logits", "mask", "words", "loss"}
    assert model.get_metrics() == {}
    model.eval()
    assert model.get_metrics() == {"precision": 0.0, "recall": 0.0, "f1": 0.0}
    # Only readable output asks for it.
    readable = model.make_output_human_readable(output)
    assert [len(tags) for tags in readable["tags"]] == output["mask"].sum(dim=1).tolist()


def test_output_without_gold_tags_has_tags_and_words_but_no_loss():
    batch, vocab = read_batch()
    del batch["tags"]
    model = build_model(vocab)
    model.eval()
    output = model(**batch)
    assert set(output) == {"logits", "mask", "tags", "words"}
    assert output["words"][0] == ["The", "cat", "sat", "and", "slept", "."]
    assert [len(tags) for tags in output["tags"]] == output["mask"].sum(dim=1).tolist()
    assert model.get_metrics()["f1"] == 0.0


def test_making_output_readable_leaves_the_output_as_it_was():
    batch, vocab = read_batch()
    model = build_model(vocab)
    model.eval()
    output = model(**batch)
    readable = model.make_output_human_readable(output)
    assert isinstance(output["tags"][0][0], int)
    assert set(readable["tags"][0]) <= set(vocab.get_token_to_index_vocabulary("labels"))


def test_metrics_count_arguments_overall_and_by_role():
    batch, vocab = read_batch(num_instances=1)
    model = build_model(vocab)
    model.eval()
    # Gold: [ARG0 The cat] [V sat] and slept .
    predict_always(model, vocab, "B-ARG0", "I-ARG0", "O", "B-ARG1", "O", "O")
    model(**batch)
    expected = {
        "precision": 1 / 2,
        "recall": 1.0,
        "f1": 2 / 3,
        "_precision-ARG0": 1.0,
        "_recall-ARG0": 1.0,
        "_f1-ARG0": 1.0,
        "_precision-ARG1": 0.0,
        "_recall-ARG1": 0.0,
        "_f1-ARG1": 0.0,
    }
    metrics = model.get_metrics(reset=True)
    assert metrics == pytest.approx(expected)
    assert list(metrics) == list(expected)
    assert model.get_metrics() == {"precision": 0.0, "recall": 0.0, "f1": 0.0}


def test_verbose_metrics_shows_those_of_roles():
    batch, vocab = read_batch()
    model = build_model(vocab, verbose_metrics=True)
    model.eval()
    model(**batch)
    metrics = model.get_metrics()
    assert {"f1", "f1-ARG0", "recall-ARGM-TMP", "precision-R-ARG1"} <= set(metrics)
    assert not any(name.startswith("_") for name in metrics)


def test_initializer_reaches_the_parameters():
    zero = {"regexes": [["tag_projection.weight", {"type": "constant", "val": 0.0}]]}
    model = build_model(vocabulary_of("O", "B-V"), initializer=zero)
    assert (model.tag_projection.weight == 0).all()


def test_default_predictor_is_the_tasks_own():
    assert build_model(vocabulary_of("O", "B-V")).default_predictor == "elmo_srl"


def test_a_sentence_of_one_token_is_labelled():
    _, vocab = read_instances()
    model = build_model(vocab)
    model.eval()
    reader = SrlReader()
    instance = reader.text_to_instance([Token("Run")], 0)
    reader.apply_token_indexers(instance)
    assert len(model.forward_on_instance(instance)["tags"]) == 1


@pytest.mark.parametrize(
    "tags, message",
    [
        ([], "namespace 'labels' is empty, expected the labels of the training"),
        (["O", "U-ARG0", "ARG1"], "has 'ARG1', 'U-ARG0', expected only tags of the BIO scheme"),
    ],
)
def test_a_vocabulary_without_bio_tags_is_refused(tags, message):
    with pytest.raises(ConfigurationError, match=message):
        build_model(vocabulary_of(*tags))


def test_a_namespace_with_padding_is_refused():
    with pytest.raises(ConfigurationError, match="has an entry for padding, expected only labels"):
        build_model(vocabulary_of("O", namespace="roles"), label_namespace="roles")


def test_a_text_encoder_without_room_for_the_predicate_is_refused():
    with pytest.raises(
        ConfigurationError, match=r"text_encoder\.feature_dim is 0, expected the wid"
    ):
        build_model(vocabulary_of("O", "B-V"), text_encoder={"feature_dim": 0})


def test_gold_tags_that_the_model_was_not_built_for_are_refused():
    batch, vocab = read_batch()
    model = build_model(vocab)
    model.eval()
    batch["tags"][0, 0] = vocab.add_token_to_namespace("B-ARG5", "labels")
    with pytest.raises(ConfigurationError, match="Found the gold label 'B-ARG5', expected one of"):
        model(**batch)


TAGS = dict(enumerate(["I-ARG0", "O", "B-ARG0", "B-V", "I-V"]))


def best_by_trying_all(scores: Tensor) -> List[int]:
    allowed = [
        tag_ids
        for tag_ids in itertools.product(TAGS, repeat=len(scores))
        if find_tag_fault([TAGS[tag_id] for tag_id in tag_ids], "BIO") is None
    ]
    return list(max(allowed, key=lambda tag_ids: sum(scores[range(len(scores)), tag_ids].tolist())))


@pytest.mark.parametrize("length", [1, 2, 4])
def test_the_best_allowed_sequence_is_found(length):
    torch.manual_seed(13)
    logits = torch.randn(20, length, len(TAGS))
    mask = torch.ones(20, length, dtype=torch.bool)
    decoded = BioDecoder(TAGS).decode(logits, mask)
    assert decoded == [best_by_trying_all(scores) for scores in logits.log_softmax(dim=-1)]
    # Both ways are taken: the best tags alone are allowed in some sentences only.
    as_they_are = [tags == best for tags, best in zip(decoded, logits.argmax(-1).tolist())]
    assert any(as_they_are) and not all(as_they_are)


def test_padding_is_not_decoded():
    torch.manual_seed(13)
    logits = torch.randn(2, 4, len(TAGS))
    mask = torch.tensor([[True, True, True, True], [True, True, False, False]])
    decoded = BioDecoder(TAGS).decode(logits, mask)
    assert [len(tags) for tags in decoded] == [4, 2]
    assert decoded[1] == best_by_trying_all(logits[1, :2].log_softmax(dim=-1))


def test_sequences_that_differ_little_are_told_apart():
    # I-ARG0 is the best tag but cannot be first; O is better than B-ARG0 by less than float32 can
    # show beside 100,000.
    scores = torch.tensor([[[2.0, 1.001, 1.0, 0.0, 0.0]]])
    [tags] = BioDecoder(TAGS).decode(scores, torch.ones(1, 1, dtype=torch.bool))
    assert [TAGS[tag_id] for tag_id in tags] == ["O"]
    scores = torch.tensor([[[2.0, 1.0, 1.001, 0.0, 0.0]]])
    [tags] = BioDecoder(TAGS).decode(scores, torch.ones(1, 1, dtype=torch.bool))
    assert [TAGS[tag_id] for tag_id in tags] == ["B-ARG0"]


def test_decoding_leaves_the_logits_as_they_are_and_needs_no_gradients():
    logits = torch.randn(1, 3, len(TAGS), requires_grad=True)
    before = logits.detach().clone()
    BioDecoder(TAGS).decode(logits, torch.ones(1, 3, dtype=torch.bool))
    assert torch.equal(logits, before)
