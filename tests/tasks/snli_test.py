import json
from pathlib import Path
from typing import Any, Dict, List

import pytest
import torch
from allennlp.data import Instance, TensorDict, Vocabulary
from allennlp.models import Model
from torch import Tensor
from torch.nn import Parameter

from elmo_plugin.errors import ConfigurationError
from elmo_plugin.tasks.snli import LABELS, SnliClassifier, SnliPredictor, SnliReader
from tests.closeness import assert_close
from tests.tasks.task_testing import (
    FIXTURES,
    as_tensors,
    build_tiny,
    num_terms,
    read_tiny,
    small_experiment,
)

TINY_FILE = FIXTURES / "snli" / "tiny" / "train.jsonl"

PAIR = {"gold_label": "neutral", "sentence1": "It rains.", "sentence2": "It rains hard."}


def words_of(instance: Instance) -> List[str]:
    return [" ".join(map(str, instance[name])) for name in ("premise", "hypothesis")]


def read(file_path: Path, **reader_options: Any) -> List[Instance]:
    return list(SnliReader(**reader_options).read(file_path))


def test_pairs_and_labels_are_read(caplog: pytest.LogCaptureFixture) -> None:
    instances = read(TINY_FILE)
    assert [instance["label"].label for instance in instances] == [
        *("entailment", "neutral", "contradiction", "entailment"),
        *("contradiction", "neutral", "entailment", "contradiction"),
    ]
    sentences = ["São Paulo 's buses do n't run at night .", "Buses rest at night ."]
    assert words_of(instances[3]) == sentences
    assert words_of(instances[7]) == ["A dog sleeps .", "The dog is awake ."]
    metadata = instances[6]["metadata"].metadata
    assert metadata == {"premise_words": ["Rain"], "hypothesis_words": ["Rain"]}
    left_out = "2 pairs without a gold label left out (10 records read)"
    assert caplog.messages == [f"{TINY_FILE}: {left_out}"]


@pytest.mark.parametrize(
    "line, message",
    [
        ({**PAIR, "gold_label": "Neutral"}, "found the gold_label 'Neutral', expected entailment"),
        ({**PAIR, "gold_label": None}, "'gold_label' is null, expected a text that is not empty"),
        ('{"gold_label": "neutral", "sentence1": "It', "Found a line that is not JSON"),
        (["neutral", "It rains."], r"The input is \[.*, expected a JSON object"),
    ],
)
def test_an_invalid_line_is_named(tmp_path: Path, line: Any, message: str) -> None:
    text = line if isinstance(line, str) else json.dumps(line)
    file_path = tmp_path / "data.jsonl"
    file_path.write_text(f"{json.dumps(PAIR)}\n{text}\n")
    with pytest.raises(ConfigurationError, match=rf"data\.jsonl, line 2: {message}"):
        read(file_path)


VOCABULARY = Vocabulary(tokens_to_add={"tokens": ["rain"], "labels": list(LABELS)})


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


# What is asserted holds for any weights.
OVERFITTING = {"num_steps": 1}


def test_a_pair_is_split_and_labeled(predictor: SnliPredictor) -> None:
    premise, hypothesis = "Two women are reading in a park.", "Nobody reads."
    output = predictor.predict_json({"premise": premise, "hypothesis": hypothesis})
    assert list(output) == ["label", "probabilities", "premise_words", "hypothesis_words"]
    probabilities = output["probabilities"]
    assert output["label"] == max(probabilities, key=probabilities.get)
    assert set(probabilities) == set(LABELS)
    assert_close(sum(probabilities.values()), 1.0, terms=3, dtype=torch.float32)
    assert output["premise_words"] == ["Two", "women", "are", "reading", "in", "a", "park", "."]
    assert output["hypothesis_words"] == ["Nobody", "reads", "."]
    # The keys of SNLI are accepted.
    pair = {"sentence1": premise, "sentence2": hypothesis, "gold_label": "-", "pairID": 3}
    assert predictor.predict_json(pair) == output


ELMO_DIM = 16  # of the tiny biLM
LAYERS = (
    "text_encoder.encoder.",
    "projection.",
    "inference_encoder.",
    "output_feedforward.",
    "label_projection.",
)


def published_model(folder: Path, name: str, **overrides: Any) -> Model:
    params = small_experiment(name, folder, **overrides)
    return Model.from_params(params["model"], vocab=VOCABULARY)


def trainable(model: Model) -> Dict[str, Parameter]:
    return {name: value for name, value in model.named_parameters() if value.requires_grad}


@pytest.mark.parametrize("placement, num_mix_weights", [("both", 6), ("none", 0)])
def test_l2_is_on_mix_weights_and_on_weight_matrices_of_layers(
    placement: str, num_mix_weights: int, tmp_path: Path
) -> None:
    elmo = {"placement": placement, "requires_grad": bool(num_mix_weights)}
    overrides = {f"model.text_encoder.elmo.{key}": value for key, value in elmo.items()}
    model = published_model(tmp_path, "snli", **overrides)
    parameters = trainable(model)
    with torch.no_grad():
        for parameter in parameters.values():
            parameter.fill_(1.0)
    model.get_regularization_penalty().backward()
    # The penalty is the sum of squares, times a factor.
    factors = {
        name: parameter.grad.mean().item() / 2
        for name, parameter in parameters.items()
        if parameter.grad is not None
    }
    mix_weights = {name for name in parameters if "scalar_parameters" in name}
    assert len(mix_weights) == num_mix_weights
    matrices = {
        name
        for name in parameters
        if name.startswith(LAYERS) and name.rpartition(".")[2].startswith("weight")
    }
    expected = {**dict.fromkeys(mix_weights, 0.001), **dict.fromkeys(matrices, 0.0001)}
    assert factors == pytest.approx(expected)


def test_the_model_has_the_size_that_the_paper_reports(tmp_path: Path) -> None:
    model = published_model(tmp_path, "snli")
    num_parameters = sum(parameter.numel() for parameter in trainable(model).values())
    # Into each gate of both directions of the first biLSTM, and into the projection, twice of four parts.
    num_weights_of_elmo_unit = 2 * 4 * 300 + 4 * 300
    with_original = num_parameters + (1024 - ELMO_DIM) * num_weights_of_elmo_unit
    assert round(with_original / 1e6, 1) == 8.0


def test_lstms_start_with_open_forget_gates(tmp_path: Path) -> None:
    parameters = dict(published_model(tmp_path, "snli").named_parameters())
    for encoder in ("text_encoder.encoder", "inference_encoder"):
        bias = parameters[f"{encoder}._module.bias_hh_l0"]
        # Input, forget, cell and output.
        assert bias.tolist() == [0.0] * 300 + [1.0] * 300 + [0.0] * 600
