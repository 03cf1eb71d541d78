import itertools
import random
import shutil
from typing import Dict, List

import pytest
import torch
from allennlp.data import Vocabulary
from allennlp.models import Model
from allennlp.nn.util import get_text_field_mask
from sklearn.metrics import precision_recall_fscore_support
from torch import Tensor

from elmo_plugin.errors import ConfigurationError
from elmo_plugin.tasks.srl.model import Argument, tags_to_arguments
from elmo_plugin.tasks.tags import Span, find_tag_fault, spans_to_tags
from tests.closeness import assert_close
from tests.tasks.task_testing import as_tensors, build_tiny, num_terms, overfit, read_tiny


@pytest.fixture(scope="module")
def data():
    return read_tiny("srl")


@pytest.mark.parametrize("finder_dim", [0, 4])
def test_loss_is_the_cross_entropy_averaged_over_tokens_and_then_over_sentences(data, finder_dim):
    instances, vocab = data
    batch = as_tensors(instances, vocab)
    output = build_tiny("srl", vocab, finder_dim=finder_dim)(**batch)
    losses = []
    for logits, tags, mask in zip(output["logits"], batch["tags"], output["mask"]):
        log_probabilities = logits.log_softmax(dim=-1)
        length = int(mask.sum())
        losses.append(-sum(log_probabilities[t, tags[t]] for t in range(length)) / length)
    expected = torch.stack(losses).mean()
    if finder_dim > 0:  # That of the predicates is added, once for each sentence.
        finder_losses = []
        for row, instance in enumerate(instances):
            length = len(instance["tokens"])
            gold = batch["predicates"][row, :length]
            if gold[0] >= 0:
                found = output["predicate_probabilities"][row, :length]
                finder_losses.append(-torch.where(gold == 1, found, 1 - found).log().mean())
        assert 0 < len(finder_losses) < len(losses)
        expected = expected + torch.stack(finder_losses).mean()
    # Exponentials of tags, then losses of tokens and of sentences.
    terms = output["logits"].shape[2] + output["logits"].shape[1] + len(losses)
    assert_close(output["loss"], expected, terms=terms)


def test_arguments_of_the_best_tags_are_measured(data):
    instances, vocab = data
    model = build_tiny("srl", vocab).eval()
    # Gold: [ARG0 The cat] [V sat] and slept .
    predicted = ["B-ARG0", "I-ARG0", "O", "B-ARG1", "O", "O"]
    ids = torch.tensor([[model.tags.index(tag) for tag in predicted]])
    logits = 100.0 * torch.nn.functional.one_hot(ids, len(model.tags)).bfloat16()
    model.tag_projection.forward = lambda encoded: logits  # as under autocast
    output = model(**as_tensors(instances[:1], vocab))
    assert output["logits"].dtype == output["loss"].dtype == torch.float32
    measured = model.get_metrics(reset=True)
    assert (measured["precision"], measured["recall"], measured["_f1-ARG0"]) == (1 / 2, 1, 1)
    assert model.get_metrics() == {"precision": 0.0, "recall": 0.0, "f1": 0.0}


def test_sentences_without_a_predicate_are_not_measured(data):
    """They are for the finder, though the tagger learns from them too that nothing is an argument."""
    instances, vocab = data
    model = build_tiny("srl", vocab, finder_dim=4).eval()
    batch = as_tensors(instances, vocab)
    model(**batch)
    expected = model.get_metrics(reset=True)
    model(**batch)
    model(**{**batch, "predicate_indicator": torch.zeros_like(batch["predicate_indicator"])})
    found = model.get_metrics(reset=True)
    names = [name for name in expected if "predicate" not in name]
    assert {name: found[name] for name in names} == {name: expected[name] for name in names}


def test_a_text_encoder_without_room_for_the_predicate_is_refused(data):
    message = r"text_encoder\.feature_dim is 0, expected the wid"
    with pytest.raises(ConfigurationError, match=message):
        build_tiny("srl", data[1], **{"text_encoder.feature_dim": 0})


def test_a_finder_learns_which_words_are_predicates(data):
    instances, vocab = data
    model = build_tiny("srl", vocab, finder_dim=12)
    losses = overfit(model, instances, num_steps=80)
    assert losses[-1] < losses[0]
    model.eval()
    batch = as_tensors(instances, vocab)
    probabilities = model(**batch)["predicate_probabilities"]
    gold = batch["predicates"]
    is_counted = get_text_field_mask(batch["tokens"]) & (gold >= 0)
    is_found, is_gold = (probabilities > 0.5)[is_counted], (gold == 1)[is_counted]
    metrics = model.get_metrics(reset=True)
    expected = precision_recall_fscore_support(is_gold, is_found, average="binary")
    names = ("predicate_precision", "predicate_recall", "predicate_f1")
    assert_close([metrics[name] for name in names], expected[:3], terms=3, dtype=torch.float32)
    # A sentence counts once: labels of its other instances mean nothing.
    loss = model(**batch)["loss"]
    is_first = is_counted.any(dim=1, keepdim=True)
    assert 0 < is_first.sum() < len(is_first)
    changed_loss = model(**{**batch, "predicates": torch.where(is_first, gold, -7)})["loss"]
    assert_close(changed_loss, loss, terms=batch["tags"].numel())
    # The prediction for a word does not depend on the predicate whose roles are labeled.
    batch["predicate_indicator"] = torch.zeros_like(batch["predicate_indicator"])
    terms = num_terms(model, gold.size(1))
    found = model(**batch)["predicate_probabilities"]
    assert_close(found, probabilities, terms=terms, scale=1.0)


def test_metrics_of_the_finder_without_gold_predicates_are_zero(data):
    instances, vocab = data
    model = build_tiny("srl", vocab, finder_dim=4).eval()
    batch = as_tensors(instances, vocab)
    del batch["predicates"]
    model(**batch)
    metrics = model.get_metrics(reset=True)
    names = [name for name in metrics if name.startswith("predicate_")]
    assert {name: metrics[name] for name in names} == {
        "predicate_precision": 0.0,
        "predicate_recall": 0.0,
        "predicate_f1": 0.0,
    }


def test_a_found_predicate_counts_whatever_its_logits_add_up_to(data):
    instances, vocab = data
    model = build_tiny("srl", vocab, finder_dim=4).eval()
    last = model.predicate_finder._linear_layers[-1]
    last.weight.data.zero_()
    last.bias.data = torch.tensor([-1.5, 1.5])
    model(**as_tensors(instances, vocab))
    assert model.get_metrics()["predicate_recall"] == 1.0


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


TAGS = ["I-ARG0", "O", "B-ARG0", "B-V", "I-V"]


def tagger(tags: List[str]) -> Model:
    return build_tiny("srl", Vocabulary(tokens_to_add={"labels": tags})).eval()


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
    padded = torch.randn(20, length + 1, len(TAGS))
    # The best tags alone are allowed in the first sentence, and not in the second.
    padded[0, :, TAGS.index("O")] += 100
    padded[1, :, TAGS.index("I-ARG0")] += 100
    logits = padded[:, :length]
    mask = (torch.arange(length + 1) < length).expand(20, -1)
    decoded = tagger(TAGS)._best_tags(padded, mask)
    assert decoded == [best_by_trying_all(scores) for scores in logits.log_softmax(dim=-1)]
    as_they_are = [tags == best for tags, best in zip(decoded, logits.argmax(-1).tolist())]
    assert as_they_are[:2] == [True, False]


def test_sequences_with_similar_scores_are_distinguished():
    # I-ARG0 is the best tag but cannot be first; O and B-ARG0 differ by less than float32 can show beside
    # 100,000.
    logits = torch.tensor([[[2.0, 1.001, 1.0, 0.0, 0.0]], [[2.0, 1.0, 1.001, 0.0, 0.0]]])
    mask = torch.ones(2, 1, dtype=torch.bool)
    best = [[TAGS.index("O")], [TAGS.index("B-ARG0")]]
    assert tagger(TAGS)._best_tags(logits, mask) == best


LABELS = ["ARG0", "ARG1", "C-ARG0", "C-ARG1", "R-ARG0", "C-R-ARG0", "ARGM-TMP", "C-ARGM-TMP", "C-V"]
ALL_TAGS = ["O", *(f"{prefix}-{label}" for label in [*LABELS, "V"] for prefix in "BI")]


def tags_of(num_tokens: int, *spans: Span) -> List[str]:
    return spans_to_tags(spans, num_tokens, "BIO")


def measured(predicted: List[List[str]], gold: List[List[str]]) -> Dict[str, float]:
    """The metrics of a model that predicts these tags."""
    model = tagger(ALL_TAGS)
    for predicted_tags, gold_tags in zip(predicted, gold):
        ids = [[ALL_TAGS.index(tag) for tag in tags] for tags in (predicted_tags, gold_tags)]
        model._measure(ids[0], [*ids[1], ALL_TAGS.index("B-ARG0")], {})  # with padding
    return model.get_metrics()


def test_a_continued_argument_is_right_as_a_whole_or_not_at_all():
    # [ARG1 The plan] , [ARG0 Ann] [V said] , [C-ARG1 was good]
    ann, said = Span(3, 4, "ARG0"), Span(4, 5, "V")
    gold = tags_of(8, Span(0, 2, "ARG1"), ann, said, Span(6, 8, "C-ARG1"))
    assert tags_to_arguments(gold) == [
        Argument("ARG1", ((0, 2), (6, 8))),
        Argument("ARG0", ((3, 4),)),
        Argument("V", ((4, 5),)),
    ]
    expected = {
        **dict.fromkeys(("precision", "recall", "f1"), 1 / 2),
        **dict.fromkeys(("_precision-ARG0", "_recall-ARG0", "_f1-ARG0"), 1.0),
        **dict.fromkeys(("_precision-ARG1", "_recall-ARG1", "_f1-ARG1"), 0.0),
    }
    assert measured([tags_of(8, Span(0, 2, "ARG1"), ann, said)], [gold]) == expected


def random_spans(random_numbers: random.Random, num_tokens: int, predicate: int) -> List[Span]:
    spans, start = [Span(predicate, predicate + 1, "V")], 0
    while start < num_tokens:
        end = min(start + random_numbers.choice([1, 1, 2, 3]), num_tokens)
        if start <= predicate < end:
            start = predicate + 1
            continue
        if random_numbers.random() < 0.7:
            spans.append(Span(start, end, random_numbers.choice(LABELS)))
        start = end
    return sorted(spans)


def changed(random_numbers: random.Random, spans: List[Span]) -> List[Span]:
    """Some spans shorter, with another label, or missing, as a model may predict them."""
    predicted = []
    for start, end, label in spans:
        change = random_numbers.choice(["keep"] * 5 + ["drop", "cut", "relabel"])
        if change == "cut" and end - start > 1:
            end -= 1
        elif change == "relabel":
            label = random_numbers.choice(LABELS)
        if change != "drop":
            predicted.append(Span(start, end, label))
    return predicted


@pytest.mark.skipif(shutil.which("perl") is None, reason="needs perl")
def test_counts_equal_those_of_the_scorer_of_conll_2005():
    srl = pytest.importorskip("allennlp_models.structured_prediction")
    random_numbers = random.Random(13)
    sentences, predicates, predicted_tags, gold_tags = [], [], [], []
    for _ in range(2000):
        num_tokens = random_numbers.randint(1, 12)
        predicate = random_numbers.randrange(num_tokens)
        gold = random_spans(random_numbers, num_tokens, predicate)
        predicted = changed(random_numbers, gold)
        sentences.append(["run"] * num_tokens)
        predicates.append(predicate)
        predicted_tags.append(tags_of(num_tokens, *predicted))
        gold_tags.append(tags_of(num_tokens, *gold))
    in_brackets = srl.models.srl.convert_bio_tags_to_conll_format
    scorer = srl.metrics.SrlEvalScorer(ignore_classes=["V"])
    scorer(predicates, sentences, *(map(in_brackets, tags) for tags in (predicted_tags, gold_tags)))
    expected: Dict[str, float] = {}
    for name, value in scorer.get_metric().items():
        measure, _, role = name.replace("f1-measure", "f1").partition("-")
        expected[measure if role == "overall" else f"_{measure}-{role}"] = value
    assert len(expected) == 3 * 5  # overall, ARG0, ARG1, ARGM-TMP, R-ARG0
    assert measured(predicted_tags, gold_tags) == pytest.approx(expected)
