import math

import pytest
import torch
from allennlp.data.tokenizers import Token
from allennlp.nn.util import get_text_field_mask

from elmo_plugin.errors import ConfigurationError
from elmo_plugin.tasks.coref import CoreferenceReader
from elmo_plugin.tasks.coref import model as coref_model
from elmo_plugin.tasks.coref import spans as coref_spans
from tests.closeness import assert_close
from tests.tasks.task_testing import (
    as_tensors,
    build_tiny,
    num_terms,
    overfit,
    published_experiment,
    read_tiny,
)

LONGEST_SENTENCE = 13  # words, in fixtures/coref/tiny


@pytest.fixture(scope="module")
def data():
    return read_tiny("coref")


@pytest.fixture(scope="module")
def instances(data):
    return data[0]


@pytest.fixture(scope="module")
def vocab(data):
    return data[1]


def test_documents_in_a_batch_equal_single_ones(instances, vocab):
    """Which also says that padding of sentences, of documents and of mentions changes nothing."""
    model = build_tiny("coref", vocab)
    overfit(model, instances, num_steps=10)
    model.eval()
    together = model(**as_tensors(instances, vocab))
    single = [model(**as_tensors([instance], vocab)) for instance in instances]
    for key in ("clusters", "kept_spans", "words"):
        assert together[key] == [output[key][0] for output in single]
    losses = torch.stack([output["loss"] for output in single])
    # A loss sums over the kept spans of a document.
    terms = num_terms(model, LONGEST_SENTENCE) + max(map(len, together["kept_spans"]))
    assert_close(together["loss"], losses.mean(), terms=terms, scale=losses.max().item())


@pytest.mark.parametrize(
    "module, block, size",
    [
        (coref_model, "_SPANS_PER_BLOCK", 7),
        (coref_model, "_SENTENCES_PER_BLOCK", 2),
        (coref_spans, "_MENTIONS_PER_BLOCK", 1),
        (coref_spans, "_MENTIONS_PER_BLOCK", 3),
    ],
)
def test_blocks_equal_the_whole_in_values_and_gradients(
    instances, vocab, module, block, size, monkeypatch
):
    tensors = as_tensors(instances, vocab)
    results = []
    for block_size in (size, 10**6):
        monkeypatch.setattr(module, block, block_size)
        model = build_tiny("coref", vocab, max_training_sentences=100)
        output = model(**tensors)
        output["loss"].backward()
        gradients = [parameter.grad for parameter in model.parameters()]
        results.append((output["clusters"], output["kept_spans"], output["loss"], gradients))
    assert results[0][:2] == results[1][:2]
    terms = num_terms(model, LONGEST_SENTENCE) + max(map(len, output["kept_spans"]))
    assert_close(results[0][2], results[1][2], terms=terms)
    # The gradients of some parameters are small, or 0 but for rounding, as what they sum cancels.
    largest = max(gradient.abs().max().item() for gradient in gradients)
    for one, other in zip(results[0][3], results[1][3], strict=True):
        assert_close(one, other, terms=2 * terms, scale=largest)


@pytest.mark.parametrize("spans_per_word", [0.3, 1.0, 1e-9])
def test_kept_spans_are_as_wide_and_as_many_as_the_config_says(instances, vocab, spans_per_word):
    settings = {"max_span_width": 1, "spans_per_word": spans_per_word}
    model = build_tiny("coref", vocab, **settings).eval()
    output = model(**as_tensors(instances, vocab))
    is_kept = []
    for spans, instance in zip(output["kept_spans"], instances, strict=True):
        metadata = instance["metadata"].metadata
        assert len(spans) == max(1, int(spans_per_word * len(metadata["words"])))
        assert all(end - start == 1 for start, end in spans)
        is_kept += [mention in spans for cluster in metadata["clusters"] for mention in cluster]
    # Longer gold mentions count as missed.
    assert 0 < sum(is_kept) < len(is_kept) or spans_per_word < 0.1
    assert model.get_metrics()["mention_recall"] == sum(is_kept) / len(is_kept)


def test_loss_sums_over_kept_spans_the_likelihood_of_all_gold_antecedents(instances, vocab):
    model = build_tiny("coref", vocab, max_training_sentences=100)
    tensors = as_tensors(instances[:1], vocab)
    tensors["speakers"] = torch.arange(tensors["speakers"].size(1)).unsqueeze(0)
    scored = []
    model.antecedent_scorer.register_forward_hook(
        lambda module, args, out: scored.append((args[2], out))
    )
    output = model(**tensors)
    spans, [(speakers, scores)] = output["kept_spans"][0], scored
    # The speaker of a span is that of its first word.
    assert speakers.tolist() == [start for start, _ in spans]
    cluster_of = {
        (start, end): cluster for start, end, cluster in instances[0]["mentions"].tensor.tolist()
    }
    expected = torch.tensor(0.0)
    num_gold_pairs = 0
    for i, span in enumerate(spans):
        candidates = range(max(0, i - scores.size(1)), i)
        gold = [
            j
            for j in candidates
            if span in cluster_of and cluster_of.get(spans[j]) == cluster_of[span]
        ]
        num_gold_pairs += len(gold)
        weights = {None: torch.tensor(1.0), **{j: scores[i, i - 1 - j].exp() for j in candidates}}
        right = sum(weights[j] for j in gold or [None])
        expected = expected - (right / sum(weights.values())).log()
    assert num_gold_pairs > 0
    # Exponentials over the antecedents of a span, then losses of spans.
    assert_close(output["loss"], expected, terms=scores.size(1) + len(spans))
    # The first span has no antecedent, also where it is a gold mention.
    pair = [(0, 1), (1, 2)]
    loss = coref_model._loss(pair, torch.tensor([[-torch.inf], [0.0]]), [pair])
    assert_close(loss, math.log(2), terms=2)


def test_a_span_is_linked_to_its_best_antecedent_if_that_beats_none():
    spans = [(0, 1), (1, 2), (2, 3), (3, 4)]
    # Of the span just before, and of the one before that.
    scores = [[-torch.inf] * 2, [-0.5, -torch.inf], [0.2, 0.5], [0.0, -0.1]]
    assert coref_model._best_clusters(spans, torch.tensor(scores)) == [[(0, 1), (2, 3)]]


def test_the_experiments_initialize_layers_but_not_the_zeros_of_the_unknown_genre(vocab):
    initializer = published_experiment("coref")["model"]["initializer"].as_dict()
    for regex in initializer["regexes"]:
        regex[1] = {"type": "constant", "val": 7.0}
    model = build_tiny("coref", vocab, initializer=initializer)
    scorer = model.antecedent_scorer
    assert not scorer.genre_embedding.weight[scorer.unknown_genre].any()
    initialized = {name for name, value in model.named_parameters() if (value == 7).all()}
    assert initialized == {
        *(
            f"text_encoder.encoder._module.weight_{kind}_l0{end}"
            for kind in ("ih", "hh")
            for end in ("", "_reverse")
        ),
        "mention_feedforward._linear_layers.0.weight",
        "mention_score.weight",
        "antecedent_scorer.distance_embedding.weight",
        "antecedent_scorer.speaker_embedding.weight",
        "antecedent_scorer.first_layer.weight",
        "antecedent_scorer.further_layers._linear_layers.0.weight",
        "antecedent_scorer.score.weight",
    }


@pytest.mark.parametrize("words", [["Rain"], ["Rain", "fell", "."]])
def test_a_document_without_mentions_and_one_of_one_word_are_learned_from(vocab, words):
    reader = CoreferenceReader()
    instance = reader.text_to_instance([[Token(word) for word in words]], clusters=[])
    reader.apply_token_indexers(instance)
    model = build_tiny("coref", vocab)
    output = model(**as_tensors([instance], vocab))
    output["loss"].backward()
    assert torch.isfinite(output["loss"])
    # Workers of distributed training wait for each other's gradients.
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_in_training_a_random_part_of_long_documents_is_read(instances, vocab):
    """Parts are whole sentences, with the mentions in them."""
    tensors = as_tensors(instances[:1], vocab)
    words = instances[0]["metadata"].metadata["words"]
    ids = torch.tensor([vocab.get_token_index(word) for word in words])
    clusters = instances[0]["metadata"].metadata["clusters"]
    inputs = [tensors[name] for name in ("speakers", "genre", "mentions")]
    mask = get_text_field_mask(tensors["sentences"], num_wrapping_dims=1)
    firsts = set()
    for _ in range(30):
        part = coref_model._document_of_batch(0, tensors["sentences"], mask, *inputs, 2)
        part_ids = part.sentences["tokens"]["tokens"][part.mask]
        last_of = {
            first: first + len(part_ids)
            for first in (0, 6, 12, 18)
            if torch.equal(ids[first : first + len(part_ids)], part_ids)
        }
        [(first, last)] = last_of.items()
        firsts.add(first)
        assert len(part.mask) == 2
        assert torch.equal(part.speakers, tensors["speakers"][0, first:last])
        inside = [
            [(a - first, b - first) for a, b in cluster if a >= first and b <= last]
            for cluster in clusters
        ]
        assert part.gold_clusters == [cluster for cluster in inside if len(cluster) > 1]
    assert firsts == {0, 6, 12, 18}
    whole = coref_model._document_of_batch(0, tensors["sentences"], mask, *inputs, None)
    assert len(whole.mask) == 5
    model = build_tiny("coref", vocab, max_training_sentences=2)
    kept = [model.train(is_training)(**tensors)["kept_spans"] for is_training in (True, False)]
    assert len(kept[0][0]) < len(kept[1][0])


@pytest.mark.parametrize(
    "key, value, message",
    [
        ("max_span_width", 0, "max_span_width is 0, expected a positive"),
        ("max_training_sentences", 0, "max_training_sentences is 0, expected a positive"),
        ("spans_per_word", 0.0, "spans_per_word is 0.0, expected a positive number"),
        ("antecedent_scorer.max_antecedents", 0, "max_antecedents is 0, expected a positive"),
        ("antecedent_scorer.hidden_dims", [], "hidden_dims is empty, expected at least one width"),
        ("mention_feedforward.input_dim", 3, "span representation must match mention_feedforward"),
    ],
)
def test_numbers_of_a_config_that_cannot_be(key, value, message, vocab):
    with pytest.raises(ConfigurationError, match=message):
        build_tiny("coref", vocab, **{key: value})
