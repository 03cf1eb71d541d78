import itertools
from typing import List

import pytest
import torch
from torch import Tensor

from elmo_plugin.errors import ConfigurationError
from elmo_plugin.tasks.srl.model import BioDecoder
from elmo_plugin.tasks.tags import find_tag_fault
from tests.closeness import assert_close
from tests.tasks.task_testing import as_tensors, build_tiny, num_terms, overfit, read_tiny


@pytest.fixture(scope="module")
def data():
    return read_tiny("srl")


def test_loss_is_the_cross_entropy_averaged_over_tokens_and_then_over_sentences(data):
    instances, vocab = data
    batch = as_tensors(instances, vocab)
    output = build_tiny("srl", vocab)(**batch)
    losses = []
    for logits, tags, mask in zip(output["logits"], batch["tags"], output["mask"]):
        log_probabilities = logits.log_softmax(dim=-1)
        length = int(mask.sum())
        losses.append(-sum(log_probabilities[t, tags[t]] for t in range(length)) / length)
    # Exponentials of tags, then losses of tokens and of sentences.
    terms = output["logits"].shape[2] + output["logits"].shape[1] + len(losses)
    assert_close(output["loss"], torch.stack(losses).mean(), terms=terms)


def test_the_model_depends_on_the_predicate(data):
    instances, vocab = data
    batch = as_tensors(instances[:2], vocab)
    model = build_tiny("srl", vocab).eval()
    logits = model(**batch)["logits"]
    # The same sentence, with the predicates "sat" and "slept".
    assert batch["tokens"]["tokens"]["tokens"][0].equal(batch["tokens"]["tokens"]["tokens"][1])
    # By more than rounding.
    assert (logits[0] - logits[1]).abs().max() > 1e-3
    batch["predicate_indicator"] = batch["predicate_indicator"][[1, 0]]
    # Outputs of the LSTMs, which the logits sum, are at most 1.
    terms = num_terms(model, logits.size(1))
    assert_close(model(**batch)["logits"], logits[[1, 0]], terms=terms, scale=1.0)


def test_only_possible_sequences_are_predicted(data):
    instances, vocab = data
    model = build_tiny("srl", vocab).eval()
    with torch.no_grad():
        model.tag_projection.weight.mul_(50)  # an untrained model with strong opinions
    output = model.make_output_human_readable(model(**as_tensors(instances, vocab)))
    assert [len(tags) for tags in output["tags"]] == [6, 6, 10, 10, 10, 10, 5, 4, 5]
    assert all(find_tag_fault(tags, "BIO") is None for tags in output["tags"])
    # Each token's best tag alone would not do.
    best_alone = [
        [model.tags[tag_id] for tag_id in tag_ids[: len(tags)]]
        for tag_ids, tags in zip(output["logits"].argmax(dim=-1).tolist(), output["tags"])
    ]
    assert any(find_tag_fault(tags, "BIO") for tags in best_alone)


def test_metrics_count_arguments_overall_and_by_role(data):
    instances, vocab = data
    model = build_tiny("srl", vocab).eval()
    # Gold: [ARG0 The cat] [V sat] and slept .
    predicted = ["B-ARG0", "I-ARG0", "O", "B-ARG1", "O", "O"]
    ids = torch.tensor([[model.tags.index(tag) for tag in predicted]])
    logits = 100.0 * torch.nn.functional.one_hot(ids, len(model.tags)).float()
    model.tag_projection.forward = lambda encoded: logits
    model(**as_tensors(instances[:1], vocab))
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
    measured = model.get_metrics(reset=True)
    assert list(measured) == list(expected)
    assert_close(list(measured.values()), list(expected.values()), terms=3)
    assert model.get_metrics() == {"precision": 0.0, "recall": 0.0, "f1": 0.0}


def test_a_text_encoder_without_room_for_the_predicate_is_refused(data):
    with pytest.raises(
        ConfigurationError, match=r"text_encoder\.feature_dim is 0, expected the wid"
    ):
        build_tiny("srl", data[1], **{"text_encoder.feature_dim": 0})


def test_a_finder_learns_which_words_are_predicates(data):
    instances, vocab = data
    model = build_tiny("srl", vocab, finder_dim=12)
    overfit(model, instances, num_steps=80)
    model.eval()
    batch = as_tensors(instances, vocab)
    probabilities = model(**batch)["predicate_probabilities"]
    gold = batch["predicates"]
    assert ((probabilities > 0.5) == (gold == 1))[gold >= 0].all()
    metrics = model.get_metrics(reset=True)
    assert metrics["predicate_precision"] == metrics["predicate_recall"] == 1
    assert metrics["predicate_f1"] == 1
    # The prediction for a word does not depend on the predicate whose roles are labelled.
    batch["predicate_indicator"] = torch.zeros_like(batch["predicate_indicator"])
    terms = num_terms(model, gold.size(1))
    found = model(**batch)["predicate_probabilities"]
    assert_close(found, probabilities, terms=terms, scale=1.0)


def test_metrics_of_the_finder_do_not_count_training(data):
    instances, vocab = data
    model = build_tiny("srl", vocab, finder_dim=4)
    batch = as_tensors(instances, vocab)
    model.eval()(**batch)
    expected = model.get_metrics(reset=True)
    assert "predicate_f1" in expected
    # As the trainer does: an epoch of training, its metrics, then validation.
    flipped = {**batch, "predicates": (1 - batch["predicates"]).clamp(max=1)}
    model.train()(**flipped)
    assert model.get_metrics(reset=True) == {}
    model.eval()(**batch)
    assert model.get_metrics(reset=True) == expected


def test_a_finder_counts_a_sentence_once(data):
    instances, vocab = data
    model = build_tiny("srl", vocab, finder_dim=4).eval()
    batch = as_tensors(instances, vocab)
    with torch.no_grad():
        model(**batch)
        loss = model(**batch)["loss"]
    first = (batch["predicates"] >= 0).any(dim=1)
    assert 0 < first.sum() < len(first)
    # Labels of sentences that are not counted mean nothing.
    batch["predicates"] = torch.where(first[:, None], batch["predicates"], -7)
    # The losses of the labels of all tokens, as before.
    assert_close(model(**batch)["loss"], loss, terms=batch["tags"].numel())


TAGS = ["I-ARG0", "O", "B-ARG0", "B-V", "I-V"]


def best_by_trying_all(scores: Tensor) -> List[int]:
    allowed = [
        tag_ids
        for tag_ids in itertools.product(range(len(TAGS)), repeat=len(scores))
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
    logits = torch.randn(1, 4, len(TAGS))
    decoded = BioDecoder(TAGS).decode(logits, torch.tensor([[True, True, False, False]]))
    assert decoded == [best_by_trying_all(logits[0, :2].log_softmax(dim=-1))]


def test_sequences_with_similar_scores_are_distinguished():
    # I-ARG0 is the best tag but cannot be first; O and B-ARG0 differ by less than float32 can show beside
    # 100,000.
    for scores, best in (
        ([2.0, 1.001, 1.0, 0.0, 0.0], "O"),
        ([2.0, 1.0, 1.001, 0.0, 0.0], "B-ARG0"),
    ):
        mask = torch.ones(1, 1, dtype=torch.bool)
        [[tag_id]] = BioDecoder(TAGS).decode(torch.tensor([[scores]]), mask)
        assert TAGS[tag_id] == best
