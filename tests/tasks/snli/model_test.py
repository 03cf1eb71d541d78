import json
from typing import Any, Dict, List, Tuple

import pytest
import torch
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from allennlp.data import Batch, DatasetReader, Instance, TensorDict, Vocabulary
from allennlp.data.tokenizers import Token
from allennlp.models import Model
from allennlp.nn.util import move_to_device
from torch import Tensor
from torch.testing import assert_close

from elmo_plugin.tasks.snli import SnliClassifier, SnliReader
from elmo_plugin.tasks.snli.model import concatenate_text_fields
from elmo_plugin.tasks.snli.reader import LABELS
from tests.tasks.task_testing import FIXTURES, overfit

TINY = FIXTURES / "snli" / "tiny"
DATA = TINY / "train.jsonl"
EXPERIMENT = str(TINY / "experiment.jsonnet")
EXPERIMENT_WITH_ELMO = str(TINY / "experiment_elmo.jsonnet")

NO_DROPOUT = {
    "text_encoder.dropout": 0.0,
    "attention_dropout": 0.0,
    "inference_dropout": 0.0,
    "dropout": 0.0,
}


def build_model(vocab: Vocabulary, experiment: str = EXPERIMENT, **options: Any) -> SnliClassifier:
    """The model of a tiny experiment, without dropout but for what `options` ask for."""
    torch.manual_seed(13)
    if experiment == EXPERIMENT_WITH_ELMO:
        options = {"text_encoder.elmo.dropout": 0.0, **options}
    overrides = {f"model.{key}": value for key, value in {**NO_DROPOUT, **options}.items()}
    params = Params.from_file(experiment, params_overrides=json.dumps(overrides))
    model = Model.from_params(params["model"], vocab=vocab)
    assert isinstance(model, SnliClassifier)
    return model


def read_pairs(experiment: str = EXPERIMENT) -> Tuple[List[Instance], Vocabulary]:
    reader = DatasetReader.from_params(Params.from_file(experiment)["dataset_reader"])
    instances = list(reader.read(DATA))
    for instance in instances:
        reader.apply_token_indexers(instance)
    return instances, Vocabulary.from_instances(instances)


def as_batch(instances: List[Instance], vocab: Vocabulary) -> TensorDict:
    batch = Batch(instances)
    batch.index_instances(vocab)
    return batch.as_tensor_dict()


def vocabulary_of(*labels: str, namespace: str = "labels") -> Vocabulary:
    return Vocabulary(tokens_to_add={"tokens": ["rain"], namespace: list(labels)})


@pytest.mark.parametrize("experiment", [EXPERIMENT, EXPERIMENT_WITH_ELMO])
def test_all_pairs_can_be_learned_by_heart(experiment: str) -> None:
    instances, vocab = read_pairs(experiment)
    model = build_model(vocab, experiment)
    losses = overfit(model, instances, num_steps=40)
    assert losses[-1] < 0.02 < 1.0 < losses[0]
    model.eval().get_metrics(reset=True)
    model.forward_on_instances(instances)
    assert model.get_metrics()["accuracy"] == 1.0


def slow_logits(model: SnliClassifier, pair: TensorDict) -> Tensor:
    """ESIM for one pair, which has no padding, token by token as Chen et al. write it."""
    premise = model.text_encoder(pair["premise"]).contextualized[0]
    hypothesis = model.text_encoder(pair["hypothesis"]).contextualized[0]
    pooled = []
    for sentence, other in ((premise, hypothesis), (hypothesis, premise)):
        comparisons = []
        for token in sentence:
            similarities = torch.stack([token.dot(other_token) for other_token in other])
            weights = similarities.exp() / similarities.exp().sum()
            aligned = sum(weight * other_token for weight, other_token in zip(weights, other))
            comparisons.append(torch.cat([token, aligned, token - aligned, token * aligned]))
        projected = model.projection(torch.stack(comparisons)).unsqueeze(0)
        mask = torch.ones(1, len(sentence), dtype=torch.bool)
        inferred = model.inference_encoder(projected, mask)[0]
        pooled += [inferred.mean(dim=0), inferred.max(dim=0).values]
    return model.label_projection(model.output_feedforward(torch.cat(pooled)))


@pytest.mark.parametrize("experiment", [EXPERIMENT, EXPERIMENT_WITH_ELMO])
def test_logits_of_a_batch_equal_those_of_a_slow_loop_over_pairs(experiment: str) -> None:
    instances, vocab = read_pairs(experiment)
    model = build_model(vocab, experiment).eval()
    output = model(**as_batch(instances, vocab))
    slow = torch.stack([slow_logits(model, as_batch([pair], vocab)) for pair in instances])
    # float32, sums in another order.
    assert_close(output["logits"], slow, atol=1e-5, rtol=1e-4)
    assert_close(output["probabilities"], slow.softmax(dim=-1), atol=1e-5, rtol=1e-4)
    gold = [vocab.get_token_index(pair["label"].label, "labels") for pair in instances]
    negative_log_likelihoods = -slow.log_softmax(dim=-1)[range(len(gold)), gold]
    assert_close(output["loss"], negative_log_likelihoods.mean(), atol=1e-5, rtol=1e-4)


def test_padding_changes_nothing() -> None:
    instances, vocab = read_pairs()
    model = build_model(vocab).eval()
    words = [Token(word) for word in ["a", "dog", "sleeps", "."] * 10]
    long_pair = SnliReader().text_to_instance(words, words, "neutral")
    SnliReader().apply_token_indexers(long_pair)
    alone = model(**as_batch(instances, vocab))["logits"]
    padded = model(**as_batch([*instances, long_pair], vocab))["logits"][:-1]
    assert_close(padded, alone, atol=1e-6, rtol=1e-5)


def test_tokens_are_aligned_however_unlike_those_of_the_other_sentence_are() -> None:
    model = build_model(vocabulary_of(*LABELS))
    # Both similarities are far below what the exponential of a float32 can be told from 0.
    premise, hypothesis = torch.tensor([[[40.0], [20.0]]]), torch.tensor([[[-40.0], [-20.0]]])
    mask = torch.ones(2, 2, dtype=torch.bool)
    aligned = model._align(torch.cat([premise, hypothesis]), mask)
    assert_close(aligned, torch.tensor([[[-20.0], [-20.0]], [[20.0], [20.0]]]))


def test_the_two_sentences_have_different_roles() -> None:
    instances, vocab = read_pairs()
    model = build_model(vocab).eval()
    batch = as_batch(instances, vocab)
    swapped = {**batch, "premise": batch["hypothesis"], "hypothesis": batch["premise"]}
    assert not torch.allclose(model(**batch)["logits"], model(**swapped)["logits"], atol=1e-3)


def test_the_bilm_runs_once_for_a_batch() -> None:
    instances, vocab = read_pairs(EXPERIMENT_WITH_ELMO)
    model = build_model(vocab, EXPERIMENT_WITH_ELMO)
    passes = []
    placed_elmo = model.text_encoder.elmo
    assert placed_elmo is not None and placed_elmo.elmo is not None
    placed_elmo.elmo.bilm.register_forward_hook(lambda *_: passes.append(1))
    model(**as_batch(instances, vocab))
    assert len(passes) == 1


def test_layer_norm_is_over_premises_and_hypotheses_together() -> None:
    instances, vocab = read_pairs(EXPERIMENT_WITH_ELMO)
    model = build_model(vocab, EXPERIMENT_WITH_ELMO, **{"text_encoder.elmo.do_layer_norm": True})
    batch = as_batch(instances, vocab)
    swapped = {**batch, "premise": batch["hypothesis"], "hypothesis": batch["premise"]}
    embedded: List[Tensor] = []
    model.text_encoder.register_forward_hook(lambda _, __, text: embedded.append(text.embedded))
    model.eval()
    model(**batch)
    model(**swapped)
    assert_close(embedded[0], embedded[1].roll(len(instances), dims=0), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(
    "placement, num_places", [("none", 0), ("input", 0), ("output", 1), ("both", 1)]
)
def test_widths_follow_the_placement_of_elmo(placement: str, num_places: int) -> None:
    vocab = vocabulary_of(*LABELS)
    options = {"text_encoder.elmo.placement": placement}
    model = build_model(vocab, EXPERIMENT_WITH_ELMO, **options)
    elmo_dim = 16  # of fixtures/bilm/tiny
    assert model.projection.get_input_dim() == 4 * (2 * 6 + num_places * elmo_dim)
    assert model.inference_encoder.get_input_dim() == model.projection.get_output_dim() == 7
    assert model.output_feedforward.get_input_dim() == 4 * 2 * 5


@pytest.mark.parametrize("dropout", NO_DROPOUT)
def test_each_dropout_is_there_in_training_alone(dropout: str) -> None:
    instances, vocab = read_pairs()
    model = build_model(vocab, **{dropout: 0.5})
    batch = as_batch(instances, vocab)
    assert not torch.equal(model(**batch)["logits"], model(**batch)["logits"])
    model.eval()
    assert torch.equal(model(**batch)["logits"], model(**batch)["logits"])


def test_inference_dropout_drops_the_same_units_at_all_steps() -> None:
    model = build_model(vocabulary_of(*LABELS), inference_dropout=0.5)
    ones = torch.ones(2, 5, 7)
    dropped = model.inference_dropout(ones)
    assert torch.equal(dropped, dropped[:, :1].expand(2, 5, 7))
    assert set(dropped.unique().tolist()) == {0.0, 2.0}


def test_output_without_gold_labels_has_no_loss() -> None:
    instances, vocab = read_pairs()
    batch = as_batch(instances, vocab)
    del batch["label"]
    model = build_model(vocab)
    output = model(**batch)
    assert set(output) == {"logits", "probabilities", "premise_words", "hypothesis_words"}
    assert output["premise_words"][6] == output["hypothesis_words"][6] == ["Rain"]
    del batch["metadata"]
    assert set(model(**batch)) == {"logits", "probabilities"}


def test_making_output_readable_names_labels_and_leaves_the_output_as_it_was() -> None:
    model = build_model(vocabulary_of("neutral", "entailment", "contradiction"))
    probabilities = torch.tensor([[0.25, 0.5, 0.25], [0.75, 0.125, 0.125]])
    output = {"probabilities": probabilities}
    assert model.make_output_human_readable(output) == {
        "label": ["entailment", "neutral"],
        "probabilities": [
            {"neutral": 0.25, "entailment": 0.5, "contradiction": 0.25},
            {"neutral": 0.75, "entailment": 0.125, "contradiction": 0.125},
        ],
    }
    assert output == {"probabilities": probabilities}


def test_metrics_are_accuracy_and_those_of_each_label() -> None:
    instances, vocab = read_pairs()
    model = build_model(vocab, verbose_metrics=True)
    # Gold: e n c e c n e c. Four are right: two of e, one of n, one of c.
    predicted = ["entailment"] * 2 + ["neutral"] * 4 + ["entailment", "contradiction"]
    ids = torch.tensor([vocab.get_token_index(label, "labels") for label in predicted])
    logits = 100.0 * torch.nn.functional.one_hot(ids, 3).float()
    model.label_projection.forward = lambda hidden: logits  # type: ignore[method-assign]
    model(**as_batch(instances, vocab))
    metrics = model.get_metrics(reset=True)
    expected = {
        "accuracy": 4 / 8,
        "recall-entailment": 2 / 3,
        "recall-neutral": 1 / 2,
        "recall-contradiction": 1 / 3,
        "precision-neutral": 1 / 4,
    }
    assert {name: metrics[name] for name in expected} == pytest.approx(expected)
    assert model.get_metrics()["accuracy"] == 0.0


def test_initializer_reaches_the_parameters() -> None:
    zero = {"regexes": [["projection.*weight", {"type": "constant", "val": 0.0}]]}
    model = build_model(vocabulary_of(*LABELS), initializer=zero)
    assert (model.label_projection.weight == 0).all()


@pytest.mark.parametrize(
    "labels, found",
    [
        ([], "has no labels"),
        (["neutral"], "has 'neutral'"),
        ([*LABELS, "maybe"], "has 'entailment', 'neutral', 'contradiction', 'maybe'"),
    ],
)
def test_a_vocabulary_without_the_three_labels_is_refused(labels: List[str], found: str) -> None:
    message = f"'labels' {found}, expected 'entailment', 'neutral', 'contradiction'"
    with pytest.raises(ConfigurationError, match=message):
        build_model(vocabulary_of(*labels))


def test_a_namespace_with_padding_is_refused() -> None:
    vocab = vocabulary_of(*LABELS, namespace="relations")
    with pytest.raises(
        ConfigurationError, match=r"'relations' has '@@PADDING@@', .*ends in 'label"
    ):
        build_model(vocab, label_namespace="relations")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_gives_what_a_cpu_gives() -> None:
    instances, vocab = read_pairs(EXPERIMENT_WITH_ELMO)
    model = build_model(vocab, EXPERIMENT_WITH_ELMO).eval()
    batch: Dict[str, Any] = as_batch(instances, vocab)
    on_cpu = model(**batch)["logits"]
    on_gpu = model.cuda()(**move_to_device(batch, torch.device("cuda")))["logits"].cpu()
    assert_close(on_gpu, on_cpu, atol=1e-4, rtol=1e-3)


def test_rows_follow_each_other_and_the_shorter_ones_are_padded() -> None:
    first = {"words": {"tokens": torch.tensor([[1, 2, 3]])}}
    second = {"words": {"tokens": torch.tensor([[4], [5]])}}
    both = concatenate_text_fields(first, second)
    assert both["words"]["tokens"].tolist() == [[1, 2, 3], [4, 0, 0], [5, 0, 0]]
    both = concatenate_text_fields(second, first)
    assert both["words"]["tokens"].tolist() == [[4, 0, 0], [5, 0, 0], [1, 2, 3]]


def test_all_tensors_of_all_indexers_are_padded_in_every_dimension() -> None:
    first = {
        "characters": {"token_characters": torch.tensor([[[1, 2]]])},
        "pieces": {"mask": torch.tensor([[True]]), "offsets": torch.tensor([[[1, 1]]])},
    }
    second = {
        "characters": {"token_characters": torch.tensor([[[3], [4]]])},
        "pieces": {
            "mask": torch.tensor([[True, True]]),
            "offsets": torch.tensor([[[1, 2], [3, 3]]]),
        },
    }
    both = concatenate_text_fields(first, second)
    assert both["characters"]["token_characters"].tolist() == [[[1, 2], [0, 0]], [[3, 0], [4, 0]]]
    assert both["pieces"]["mask"].tolist() == [[True, False], [True, True]]
    assert both["pieces"]["offsets"].tolist() == [[[1, 1], [0, 0]], [[1, 2], [3, 3]]]


def test_what_is_given_is_not_changed() -> None:
    first = {"words": {"tokens": torch.tensor([[1]])}}
    second = {"words": {"tokens": torch.tensor([[2, 3]])}}
    concatenate_text_fields(first, second)["words"]["tokens"].zero_()
    assert first["words"]["tokens"].tolist() == [[1]]
    assert second["words"]["tokens"].tolist() == [[2, 3]]
