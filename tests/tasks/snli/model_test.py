from typing import List

import pytest
import torch
from allennlp.data import TensorDict, Vocabulary
from torch import Tensor

from elmo_plugin.errors import ConfigurationError
from elmo_plugin.tasks.snli import SnliClassifier
from elmo_plugin.tasks.snli.model import concatenate_text_fields
from elmo_plugin.tasks.snli.reader import LABELS
from tests.closeness import assert_close
from tests.tasks.task_testing import as_tensors, build_tiny, num_terms, read_tiny


def vocabulary_of(*labels: str) -> Vocabulary:
    return Vocabulary(tokens_to_add={"tokens": ["rain"], "labels": list(labels)})


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


@pytest.mark.parametrize("experiment", ["experiment", "experiment_elmo"])
def test_logits_of_a_batch_equal_those_of_a_slow_loop_over_pairs(experiment: str) -> None:
    instances, vocab = read_tiny("snli", experiment)
    model = build_tiny("snli", vocab, experiment).eval()
    output = model(**as_tensors(instances, vocab))
    slow = torch.stack([slow_logits(model, as_tensors([pair], vocab)) for pair in instances])
    # Attention sums products of two tokens, then tokens. Outputs of the LSTMs are at most 1.
    longest = max(len(pair[name]) for pair in instances for name in ("premise", "hypothesis"))
    terms = num_terms(model, longest) + 12 + longest
    assert_close(output["logits"], slow, terms=terms, scale=1.0)
    assert_close(output["probabilities"], slow.softmax(dim=-1), terms=terms, scale=1.0)
    gold = [vocab.get_token_index(pair["label"].label, "labels") for pair in instances]
    negative_log_likelihoods = -slow.log_softmax(dim=-1)[range(len(gold)), gold]
    assert_close(output["loss"], negative_log_likelihoods.mean(), terms=terms + len(gold))


def test_tokens_are_aligned_however_unlike_those_of_the_other_sentence_are() -> None:
    model = build_tiny("snli", vocabulary_of(*LABELS))
    # Both similarities are so low that their exponential is 0 in float32.
    premise, hypothesis = torch.tensor([[[40.0], [20.0]]]), torch.tensor([[[-40.0], [-20.0]]])
    mask = torch.ones(2, 2, dtype=torch.bool)
    aligned = model._align(torch.cat([premise, hypothesis]), mask)
    assert_close(aligned, torch.tensor([[[-20.0], [-20.0]], [[20.0], [20.0]]]), terms=2)


def test_the_bilm_runs_once_for_a_batch() -> None:
    instances, vocab = read_tiny("snli", "experiment_elmo")
    model = build_tiny("snli", vocab, "experiment_elmo")
    passes = []
    placed_elmo = model.text_encoder.elmo
    assert placed_elmo is not None and placed_elmo.elmo is not None
    placed_elmo.elmo.bilm.register_forward_hook(lambda *_: passes.append(1))
    model(**as_tensors(instances, vocab))
    assert len(passes) == 1


def test_layer_norm_is_over_premises_and_hypotheses_together() -> None:
    instances, vocab = read_tiny("snli", "experiment_elmo")
    model = build_tiny(
        "snli", vocab, "experiment_elmo", **{"text_encoder.elmo.do_layer_norm": True}
    )
    batch = as_tensors(instances, vocab)
    swapped = {**batch, "premise": batch["hypothesis"], "hypothesis": batch["premise"]}
    embedded: List[Tensor] = []
    model.text_encoder.register_forward_hook(lambda _, __, text: embedded.append(text.embedded))
    model.eval()
    model(**batch)
    model(**swapped)
    # The mean and the deviation of a layer sum the units of all tokens.
    expected = embedded[1].roll(len(instances), dims=0)
    assert_close(embedded[0], expected, terms=expected.numel())


def test_inference_dropout_drops_the_same_units_at_all_steps() -> None:
    model = build_tiny("snli", vocabulary_of(*LABELS), inference_dropout=0.5)
    ones = torch.ones(2, 5, 7)
    dropped = model.inference_dropout(ones)
    assert torch.equal(dropped, dropped[:, :1].expand(2, 5, 7))
    assert set(dropped.unique().tolist()) == {0.0, 2.0}


@pytest.mark.parametrize(
    "labels, found",
    [
        (["neutral"], "neutral"),
        ([*LABELS, "maybe"], "entailment, neutral, contradiction, maybe"),
    ],
)
def test_a_vocabulary_without_the_three_labels_is_refused(labels: List[str], found: str) -> None:
    message = f"'labels' has {found}, expected entailment, neutral, contradiction"
    with pytest.raises(ConfigurationError, match=message):
        build_tiny("snli", vocabulary_of(*labels))


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
