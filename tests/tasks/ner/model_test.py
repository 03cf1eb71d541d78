import itertools
from pathlib import Path

import pytest
import torch
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from allennlp.data import Batch, Vocabulary
from allennlp.data.tokenizers import Token
from allennlp.models import Model
from numpy.testing import assert_allclose

from elmo_plugin.tasks.ner import NerReader
from elmo_plugin.tasks.tags import find_tag_fault

TINY = Path(__file__).parents[3] / "fixtures" / "ner" / "tiny"
EXPERIMENT = str(TINY / "experiment.jsonnet")
EXPERIMENT_WITH_ELMO = str(TINY / "experiment_elmo.jsonnet")


def build_model(vocab, **model_options):
    """The model of the tiny experiment, without dropout, on words alone."""
    torch.manual_seed(13)
    params = Params.from_file(EXPERIMENT)["model"].as_dict()
    params["text_encoder"]["dropout"] = params["dropout"] = 0.0
    params["training_metrics"] = True
    del params["text_encoder"]["text_field_embedder"]["token_embedders"]["token_characters"]
    return Model.from_params(Params({**params, **model_options}), vocab=vocab)


def read_batch(reader, num_sentences=None):
    instances = list(reader.read(TINY / "train.conll"))
    batch = Batch(instances[:num_sentences])
    vocab = Vocabulary.from_instances(instances)
    batch.index_instances(vocab)
    return batch.as_tensor_dict(), vocab


def vocabulary_of(*tags, namespace="labels"):
    return Vocabulary(tokens_to_add={"tokens": ["Mary"], namespace: list(tags)})


@pytest.mark.parametrize("label_scheme", ["BIO", "BIOUL"])
def test_four_sentences_can_be_learned_by_heart(label_scheme):
    batch, vocab = read_batch(NerReader(label_scheme=label_scheme), num_sentences=4)
    model = build_model(vocab, label_scheme=label_scheme)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    for _ in range(40):
        optimizer.zero_grad()
        loss = model(**batch)["loss"]
        loss.backward()
        optimizer.step()
    assert loss.item() < 0.1
    model.get_metrics(reset=True)
    model.eval()
    model(**batch)
    assert model.get_metrics()["f1"] == pytest.approx(1.0)


@pytest.mark.parametrize("include_ends", [True, False])
def test_loss_is_the_mean_over_sentences_of_the_negative_log_likelihood(include_ends):
    vocab = vocabulary_of("O", "B-PER", "I-PER")
    model = build_model(vocab, label_scheme="BIO", include_start_end_transitions=include_ends)
    reader = NerReader(input_scheme="BIO", label_scheme="BIO")
    words, tags = ["Mary", "Smith", "ran", "."], ["B-PER", "I-PER", "O", "O"]
    lengths = [4, 2, 1]
    batch = Batch(
        [reader.text_to_instance([Token(w) for w in words[:n]], tags[:n]) for n in lengths]
    )
    for instance in batch.instances:
        reader.apply_token_indexers(instance)
    batch.index_instances(vocab)
    tensors = batch.as_tensor_dict()
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

    losses = []
    for sentence, length in enumerate(lengths):
        all_sequences = itertools.product(range(3), repeat=length)
        all_scores = torch.stack([score(sentence, sequence) for sequence in all_sequences])
        gold = tensors["tags"][sentence, :length].tolist()
        losses.append(all_scores.logsumexp(0) - score(sentence, gold))
    # Sums of some dozen float32 numbers.
    assert_allclose(output["loss"].item(), torch.stack(losses).mean().item(), rtol=1e-5)


@pytest.mark.parametrize("label_scheme", ["BIO", "BIOUL"])
def test_only_possible_sequences_are_predicted(label_scheme):
    batch, vocab = read_batch(NerReader(label_scheme=label_scheme))
    model = build_model(vocab, label_scheme=label_scheme)
    with torch.no_grad():
        model.tag_projection.weight.mul_(50)  # an untrained model with strong opinions
    output = model.make_output_human_readable(model(**batch))
    assert [len(tags) for tags in output["tags"]] == [6, 4, 4, 8, 7, 6, 7, 1]
    assert [find_tag_fault(tags, label_scheme) for tags in output["tags"]] == [None] * 8


def test_while_training_nothing_is_decoded_unless_asked_for(monkeypatch):
    batch, vocab = read_batch(NerReader())
    model = build_model(vocab, training_metrics=False)
    with monkeypatch.context() as patch:
        patch.setattr(model.crf, "viterbi_tags", None)  # would fail
        output = model(**batch)
    assert set(output) == {"logits", "mask", "words", "loss"}
    assert model.get_metrics() == {}
    # As the predictor's default way with a training model.
    assert len(model.make_output_human_readable(output)["tags"][0]) == 6
    model.eval()
    model(**batch)
    assert model.get_metrics()["f1"] >= 0.0
    assert build_model(vocab, training_metrics=True)(**batch)["tags"]


def test_output_without_gold_tags_has_tags_and_words_but_no_loss():
    batch, vocab = read_batch(NerReader())
    del batch["tags"]
    model = build_model(vocab)
    output = model(**batch)
    assert set(output) == {"logits", "mask", "tags", "words"}
    assert output["words"][7] == ["Rain"]
    assert [len(tags) for tags in output["tags"]] == output["mask"].sum(dim=1).tolist()
    assert model.get_metrics()["f1"] == 0.0


def test_making_output_readable_leaves_the_output_as_it_was():
    batch, vocab = read_batch(NerReader())
    model = build_model(vocab)
    output = model(**batch)
    readable = model.make_output_human_readable(output)
    assert isinstance(output["tags"][7][0], int)
    assert set(readable["tags"][7]) <= set(vocab.get_token_to_index_vocabulary("labels"))


def test_metrics_count_exact_spans_overall_and_by_label():
    batch, vocab = read_batch(NerReader(), num_sentences=1)
    model = build_model(vocab)
    # Gold: [PER Mary Smith] visited [LOC New York] .
    predicted = ["B-PER", "L-PER", "O", "O", "U-LOC", "U-ORG"]
    ids = torch.tensor([[vocab.get_token_index(tag, "labels") for tag in predicted]])
    logits = 100.0 * torch.nn.functional.one_hot(ids, model.num_tags).float()
    model.tag_projection.forward = lambda encoded: logits
    model(**batch)
    expected = {
        "precision": 1 / 3,
        "recall": 1 / 2,
        "f1": 0.4,
        "_precision-LOC": 0.0,
        "_recall-LOC": 0.0,
        "_f1-LOC": 0.0,
        "_precision-ORG": 0.0,
        "_recall-ORG": 0.0,
        "_f1-ORG": 0.0,
        "_precision-PER": 1.0,
        "_recall-PER": 1.0,
        "_f1-PER": 1.0,
    }
    metrics = model.get_metrics(reset=True)
    assert metrics == pytest.approx(expected)
    assert list(metrics) == list(expected)
    assert model.get_metrics() == {"precision": 0.0, "recall": 0.0, "f1": 0.0}


def test_verbose_metrics_shows_those_of_labels():
    batch, vocab = read_batch(NerReader())
    model = build_model(vocab, verbose_metrics=True)
    model(**batch)
    metrics = model.get_metrics()
    assert {"f1", "f1-PER", "recall-LOC", "precision-ORG"} <= set(metrics)
    assert not any(name.startswith("_") for name in metrics)


def test_dropout_is_on_the_output_of_the_text_encoder():
    batch, vocab = read_batch(NerReader())
    model = build_model(vocab, dropout=0.5)
    assert not torch.equal(model(**batch)["logits"], model(**batch)["logits"])
    model.eval()
    assert torch.equal(model(**batch)["logits"], model(**batch)["logits"])


def test_initializer_reaches_the_parameters():
    zero = {"regexes": [["tag_projection.weight", {"type": "constant", "val": 0.0}]]}
    model = build_model(vocabulary_of("O", "U-PER"), initializer=zero)
    assert (model.tag_projection.weight == 0).all()


def test_default_predictor_is_the_tasks_own():
    assert build_model(vocabulary_of("O", "U-PER")).default_predictor == "elmo_ner"


@pytest.mark.parametrize(
    "tags, message",
    [
        ([], "namespace 'labels' is empty, expected the labels of the training"),
        (["U-PER"], "has no tag 'O'"),
        (["O", "B-PER", "I-PER"], "has 'B-PER' but not 'L-PER'"),
        (["O", "B-PER"], "has 'B-PER' but not 'L-PER'"),
        (["O", "L-PER"], "has 'L-PER' but not 'B-PER'"),
        (["O", "S-PER", "PER"], "has 'PER', 'S-PER', expected only tags of the BIOUL scheme"),
    ],
)
def test_a_vocabulary_without_the_tags_of_the_scheme_is_refused(tags, message):
    with pytest.raises(ConfigurationError, match=message):
        build_model(vocabulary_of(*tags))


def test_tags_of_bioul_in_a_model_of_bio_are_refused():
    with pytest.raises(ConfigurationError, match="has 'L-PER', expected only tags of the BIO sch"):
        build_model(vocabulary_of("O", "B-PER", "L-PER"), label_scheme="BIO")


def test_a_namespace_with_padding_is_refused():
    with pytest.raises(ConfigurationError, match="has an entry for padding, expected only labels"):
        build_model(vocabulary_of("O", namespace="entities"), label_namespace="entities")


def test_a_wrong_namespace_is_refused():
    with pytest.raises(ConfigurationError, match="namespace 'ner_tags' is empty"):
        build_model(vocabulary_of("O", "U-PER"), label_namespace="ner_tags")


def test_an_unknown_scheme_is_refused():
    with pytest.raises(ConfigurationError, match="label_scheme is 'IOB1', expected one of: BIO, B"):
        build_model(vocabulary_of("O"), label_scheme="IOB1")


def test_gold_tags_that_the_model_was_not_built_for_are_refused():
    batch, vocab = read_batch(NerReader())
    model = build_model(vocab)
    model.eval()
    batch["tags"][0, 0] = vocab.add_token_to_namespace("U-EVENT", "labels")
    with pytest.raises(ConfigurationError, match="Found the gold label 'U-EVENT', expected one of"):
        model(**batch)
