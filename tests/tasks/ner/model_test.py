import itertools

import pytest
import torch
from allennlp.data import Vocabulary

from elmo_plugin.errors import ConfigurationError
from elmo_plugin.tasks.ner import NerReader
from elmo_plugin.tasks.tags import find_tag_fault
from tests.closeness import assert_close
from tests.tasks.task_testing import FIXTURES, as_tensors, build_tiny, read_tiny

DATA = FIXTURES / "ner" / "tiny" / "train.conll"


def read_bio():
    reader = NerReader(label_scheme="BIO")
    reader._token_indexers = read_tiny("ner")[0][0]["tokens"].token_indexers
    instances = list(reader.read(DATA))
    for instance in instances:
        reader.apply_token_indexers(instance)
    return instances, Vocabulary.from_instances(instances)


@pytest.mark.parametrize("include_ends", [True, False])
def test_loss_is_the_mean_over_sentences_of_the_negative_log_likelihood(include_ends):
    instances, vocab = read_bio()
    short = [instance for instance in instances if len(instance["tokens"]) <= 4]
    assert [len(instance["tokens"]) for instance in short] == [4, 4, 1]
    options = {"label_scheme": "BIO", "include_start_end_transitions": include_ends}
    model = build_tiny("ner", vocab, **options)
    tensors = as_tensors(short, vocab)
    output = model(**tensors)
    crf = model.crf

    def score(sentence, tag_ids):
        """Of a sequence of tags: each tag, each step between tags, and, if asked for, both ends."""
        total = torch.tensor(0.0)
        if include_ends:
            total = crf.start_transitions[tag_ids[0]] + crf.end_transitions[tag_ids[-1]]
        for t, tag_id in enumerate(tag_ids):
            total = total + output["logits"][sentence, t, tag_id]
        for tag_id, next_tag_id in itertools.pairwise(tag_ids):
            total = total + crf.transitions[tag_id, next_tag_id]
        return total

    losses, log_sums = [], []
    for sentence, instance in enumerate(short):
        length = len(instance["tokens"])
        all_sequences = itertools.product(range(len(model.tags)), repeat=length)
        all_scores = torch.stack([score(sentence, sequence) for sequence in all_sequences])
        gold = tensors["tags"][sentence, :length].tolist()
        log_sums.append(all_scores.logsumexp(0))
        losses.append(log_sums[-1] - score(sentence, gold))
    # A score sums logits, transitions and both ends; their exponentials are summed over all sequences.
    terms = 4 + 3 + 2 + len(model.tags) ** 4
    scale = max(log_sums).item()
    assert_close(output["loss"], torch.stack(losses).mean(), terms=terms, scale=scale)


@pytest.mark.parametrize("label_scheme", ["BIO", "BIOUL"])
def test_only_possible_sequences_are_predicted(label_scheme):
    instances, vocab = read_bio() if label_scheme == "BIO" else read_tiny("ner")
    model = build_tiny("ner", vocab, label_scheme=label_scheme).eval()
    with torch.no_grad():
        model.tag_projection.weight.mul_(50)  # an untrained model with strong opinions
    output = model.make_output_human_readable(model(**as_tensors(instances, vocab)))
    assert [len(tags) for tags in output["tags"]] == [6, 4, 4, 8, 7, 6, 7, 1]
    assert [find_tag_fault(tags, label_scheme) for tags in output["tags"]] == [None] * 8


def test_in_training_nothing_is_decoded(monkeypatch):
    instances, vocab = read_tiny("ner")
    model = build_tiny("ner", vocab)
    with monkeypatch.context() as patch:
        patch.setattr(model.crf, "viterbi_tags", None)  # would fail
        output = model(**as_tensors(instances, vocab))
    assert set(output) == {"logits", "mask", "words", "loss"}
    assert model.get_metrics() == {}
    # As the predictor's default way with a training model.
    assert len(model.make_output_human_readable(output)["tags"][0]) == 6


def tagger_that_predicts(vocab, *tags):
    model = build_tiny("ner", vocab).eval()
    ids = torch.tensor([[vocab.get_token_index(tag, "labels") for tag in tags]])
    logits = 100.0 * torch.nn.functional.one_hot(ids, len(model.tags)).float()
    model.tag_projection.forward = lambda encoded: logits
    return model


def test_metrics_count_exact_spans_overall_and_by_label():
    instances, vocab = read_tiny("ner")
    # Gold: [PER Mary Smith] visited [LOC New York] .
    model = tagger_that_predicts(vocab, "B-PER", "L-PER", "O", "O", "U-LOC", "U-ORG")
    model(**as_tensors(instances[:1], vocab))
    expected = {"precision": 1 / 3, "recall": 1 / 2, "f1": 0.4}
    for label, value in (("LOC", 0.0), ("ORG", 0.0), ("PER", 1.0)):
        for metric in ("precision", "recall", "f1"):
            expected[f"_{metric}-{label}"] = value
    metrics = model.get_metrics(reset=True)
    assert set(metrics) == set(expected)
    for name, value in expected.items():
        assert_close(metrics[name], value, terms=3, dtype=torch.float32)  # AllenNLP adds 1e-13
    assert model.get_metrics() == {"precision": 0.0, "recall": 0.0, "f1": 0.0}


@pytest.mark.parametrize("include_ends", [True, False])
def test_a_token_without_a_tag_may_be_in_an_entity_that_its_file_does_not_mark(include_ends):
    instances, vocab = read_bio()
    short = [instance for instance in instances if len(instance["tokens"]) <= 4]
    options = {"label_scheme": "BIO", "include_start_end_transitions": include_ends}
    model = build_tiny("ner", vocab, **options)
    every_loss = [model(**as_tensors([instance], vocab))["loss"] for instance in short]
    for instance in short:
        # One sentence marks all classes, in a batch with others that do not.
        if instance is not short[1]:
            instance["metadata"].metadata["unmarked"] = ["LOC", "ORG"]
            assert not {"B-LOC", "B-ORG"} & set(instance["tags"].labels)
    tensors = as_tensors(short, vocab)
    output = model(**tensors)
    losses, sizes = [], []
    for sentence, instance in enumerate(short):
        gold = [model.tags[tag] for tag in tensors["tags"][sentence, : len(instance["tokens"])]]
        agreeing = [[model.tags.index(tag)] for tag in gold]
        if instance is not short[1]:
            others = [tag for tag in range(len(model.tags)) if model.tags[tag][1:] != "-PER"]
            agreeing = [others if tag == "O" else [model.tags.index(tag)] for tag in gold]
        sequences = [
            sequence
            for sequence in itertools.product(*agreeing)
            if find_tag_fault([model.tags[tag] for tag in sequence], "BIO") is None
        ]
        logits, mask = output["logits"][sentence, None], output["mask"][sentence, None]
        log_likelihoods = [
            model.crf(logits[:, : len(gold)], torch.tensor([sequence]), mask[:, : len(gold)])
            for sequence in sequences
        ]
        losses.append(-torch.stack(log_likelihoods).logsumexp(0))
        sizes += [-log_likelihood.item() for log_likelihood in log_likelihoods]
    terms = 4 + 3 + 2 + len(model.tags) ** 4
    assert_close(output["loss"], torch.stack(losses).mean(), terms=terms, scale=max(sizes))
    assert_close(losses[1], every_loss[1], terms=terms, scale=max(sizes))
    assert losses[0] < every_loss[0]


def test_metrics_leave_out_classes_that_a_file_does_not_mark():
    instances, vocab = read_tiny("ner")
    # Gold: [PER Mary Smith] visited [LOC New York] .
    predicted = ["B-PER", "L-PER", "U-ORG", "B-LOC", "L-LOC", "U-ORG"]
    model = tagger_that_predicts(vocab, *predicted)
    model(**as_tensors(instances[:1], vocab))
    assert_close(model.get_metrics(reset=True)["precision"], 2 / 4, dtype=torch.float32)
    instances[0]["metadata"].metadata["unmarked"] = ["ORG"]
    output = model(**as_tensors(instances[:1], vocab))
    assert_close(model.get_metrics(reset=True)["precision"], 2 / 2, dtype=torch.float32)
    # The prediction has them.
    assert model.make_output_human_readable(output)["tags"] == [predicted]
    instances[0]["metadata"].metadata["unmarked"] = ["Org"]
    with pytest.raises(
        ConfigurationError, match=r"has the class 'Org', expected .*: LOC, ORG, PER"
    ):
        model(**as_tensors(instances[:1], vocab))


def test_other_schemes_are_refused():
    _, vocab = read_tiny("ner")
    for scheme, message in (
        ("IOB1", "label_scheme is 'IOB1', expected one of: BIO, B"),
        ("BIO", r"has L-LOC, .* expected the tags of data in the BIO sch"),
    ):
        with pytest.raises(ConfigurationError, match=message):
            build_tiny("ner", vocab, label_scheme=scheme)
