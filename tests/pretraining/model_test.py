import copy
import json
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Dict, List, Optional

import numpy
import pytest
import torch
from allennlp.commands.train import train_model
from allennlp.common import Params
from allennlp.data import Vocabulary
from allennlp.nn.regularizers import L2Regularizer, RegularizerApplicator
from torch import Tensor

from elmo_plugin import BiLM
from elmo_plugin.bilm import BiLMOptions
from elmo_plugin.bilm.lm_vocabulary import LMVocabulary
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.pretraining import (
    BiLMReader,
    BiLMStateCallback,
    BiLMTrainingModel,
    FullSoftmax,
    LMWordVocabulary,
    SampledSoftmax,
    StreamDataLoader,
)
from elmo_plugin.pretraining.model import BiLMPerplexity
from tests.bilm.slow_bilm import SlowBiLM
from tests.closeness import assert_close, assert_share
from tests.conftest import TINY_OPTIONS, randomize
from tests.pretraining.conftest import HELD_OUT, VOCABULARY_FILE, num_terms
from tests.tasks.task_testing import as_tensors

NUM_WORDS = len(LMVocabulary.from_file(VOCABULARY_FILE))
TENSORS = ("forward_inputs", "forward_targets", "backward_inputs", "backward_targets")
OPTIONS = replace(TINY_OPTIONS, cell_clip=0.5, proj_clip=0.5)


def assert_close_losses(actual: float, expected: float, steps: int, scale: float = 1.0) -> None:
    """
    Check the mean negative log-likelihood after that many steps of the LSTMs; of a loss, which is
    the mean times the steps of a window, `scale` is the steps.

    A state is at most 1, as two layers are clipped to 0.5 each and added; and the sum of
    exponentials, relative to its size, is 1.
    """
    terms = num_terms(steps, NUM_WORDS, OPTIONS.cell_size, OPTIONS.projection_dim)
    assert_close(actual, expected, terms=terms, scale=scale, dtype=torch.float32)


def windows(num_batches: Optional[int] = None, rows: int = 3) -> List[Dict[str, Any]]:
    """Return the first batches of the held-out text, of four steps; by default all."""
    reader = BiLMReader(VOCABULARY_FILE)
    return list(StreamDataLoader(reader, HELD_OUT, rows, 4, shuffle=False))[:num_batches]


def build(options: BiLMOptions = OPTIONS, **settings: Any) -> BiLMTrainingModel:
    """Return a model with random weights."""
    vocab = LMWordVocabulary.from_vocabulary_file(VOCABULARY_FILE)
    torch.manual_seed(0)
    bilm = randomize(BiLM(options))
    softmax = FullSoftmax(NUM_WORDS, options.projection_dim)
    return BiLMTrainingModel(vocab, bilm, softmax, **{"dropout": 0.0, **settings})


def one_layer(slow: SlowBiLM, layer: int) -> SlowBiLM:
    """Return a biLM with one of the layers."""
    alone = copy.copy(slow)
    alone.options = {"lstm": {**slow.options["lstm"], "n_layers": 1}}
    cell = f"Cell{layer}/"
    alone.weights = {
        name.replace(cell, "Cell0/"): weight
        for name, weight in slow.weights.items()
        if cell in name
    }
    return alone


@pytest.mark.parametrize(
    "use_skip_connections, dropout", [(True, 0.0), (False, 0.0), (True, 0.5), (False, 0.5)]
)
def test_perplexity_is_that_of_a_slow_float64_loop(
    use_skip_connections: bool, dropout: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dropout, here without chance, is on the inputs of layers, with what skips a layer, and on the top."""

    def scaled(vectors: Tensor, share: float, is_training: bool) -> Tensor:
        assert (share, is_training) == (dropout, dropout > 0)
        return (1 - share) * vectors

    monkeypatch.setattr("elmo_plugin.pretraining.model.dropout", scaled)
    options = replace(OPTIONS, use_skip_connections=use_skip_connections)
    model = build(options, dropout=dropout).train(dropout > 0)
    batches = windows(3)
    for batch in batches:
        with torch.no_grad():
            model(**batch)
    metrics = model.get_metrics()

    model.bilm.save(tmp_path / "options.json", tmp_path / "weights.hdf5")
    slow = SlowBiLM(str(tmp_path / "options.json"), str(tmp_path / "weights.hdf5"))
    layers = [one_layer(slow, layer) for layer in range(options.num_lstm_layers)]
    weight, bias = (
        value.detach().double().numpy() for value in (model.softmax.weight, model.softmax.bias)
    )
    for number, direction in enumerate(("forward", "backward")):
        negative_log_likelihoods = []
        for row in range(3):
            states: List[dict] = [{} for _ in layers]
            for batch in batches:
                characters = batch[f"{direction}_inputs"][row].numpy()
                vectors = numpy.array([slow.token_vector(word) for word in characters])
                # The slow loop turns a backward sentence around itself; the stream is turned already.
                vectors = vectors[::-1] if number == 1 else vectors
                for index, layer in enumerate(layers):
                    inputs = (1 - dropout) * vectors
                    [vectors] = layer.run_direction(inputs, number, states[index])
                    if use_skip_connections and index > 0:
                        vectors = vectors + inputs
                top = vectors[::-1] if number == 1 else vectors
                logits = (1 - dropout) * top @ weight.T + bias
                log_sums = numpy.log(numpy.exp(logits).sum(axis=1))
                targets = batch[f"{direction}_targets"][row].numpy()
                negative_log_likelihoods.extend(log_sums - logits[range(len(targets)), targets])
        found = numpy.log(metrics[f"{direction}_perplexity"])
        assert_close_losses(found, numpy.mean(negative_log_likelihoods), steps=3 * 4)
    mean = (metrics["forward_perplexity"] + metrics["backward_perplexity"]) / 2
    assert_close(metrics["perplexity"], mean, terms=2)


@pytest.mark.parametrize("rows", [7, 70])
def test_every_held_out_prediction_counts_for_any_number_of_rows(rows: int) -> None:
    batches = windows(rows=rows)
    model = build().eval()
    with torch.no_grad():
        for batch in batches:
            model(**batch)
    metrics = model.get_metrics(reset=True)
    lines = Path(HELD_OUT).read_text().splitlines()
    num_predictions = sum(len(line.split()) + 1 for line in lines)
    assert metrics["num_predictions"] == num_predictions
    # Each row as one long window.
    with torch.no_grad():
        for row in range(rows):
            long_row = {
                name: torch.cat([batch[name][row, : batch["lengths"][row]] for batch in batches])
                for name in TENSORS
            }
            if len(long_row["forward_targets"]) > 0:
                model(**{name: tensor.unsqueeze(0) for name, tensor in long_row.items()})
    expected = model.get_metrics(reset=True)
    for name in ("forward_perplexity", "backward_perplexity"):
        found, expected_mean = numpy.log(metrics[name]), numpy.log(expected[name])
        assert_close_losses(found, expected_mean, steps=-(-num_predictions // rows))


@pytest.mark.parametrize("is_training", [True, False])
def test_a_batch_without_words_changes_nothing(is_training: bool) -> None:
    model = build().train(is_training)
    empty = {name: value[:, :0] for name, value in windows(1)[0].items() if name in TENSORS}
    empty["lengths"] = [0, 0, 0]
    loss = model(**empty)["loss"]
    assert loss.item() == 0
    assert model.get_metrics() == {}
    loss.backward()  # of every parameter, as DistributedDataParallel expects
    assert all(parameter.grad is not None for parameter in model.parameters())
    model.softmax = SampledSoftmax(NUM_WORDS, OPTIONS.projection_dim, 5, sparse_gradients=True)
    refused = pytest.raises(ConfigurationError, match=r"a batch without words.*sparse_gradients to")
    with refused if is_training else nullcontext():
        model(**empty)


def test_sums_of_workers_come_back_from_the_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    # As with NCCL, whose result is on the GPU.
    monkeypatch.setattr(
        "elmo_plugin.pretraining.model.dist_reduce_sum",
        lambda sums: SimpleNamespace(cpu=lambda: 2 * sums),
    )
    perplexity = BiLMPerplexity()
    for _ in range(2):
        perplexity(torch.tensor([1.0, 2.0]), torch.tensor([3.0, 0.0]))
        assert perplexity.get_metric(reset=True)["num_predictions"] == 4
        assert perplexity.sums.tolist() == [0, 0, 0]


def test_loss_is_the_mean_of_both_directions_times_the_steps() -> None:
    model = build()
    loss = model(**windows(1)[0])["loss"]
    metrics = model.get_metrics()
    mean = sum(numpy.log(metrics[f"{name}_perplexity"]) for name in ("forward", "backward")) / 2
    # The mean over three rows of four steps, in two directions.
    assert_close(loss, 4 * mean, terms=2 * 3 * 4)


def loss_of(model: BiLMTrainingModel, *batches: Dict[str, Any]) -> float:
    """Return the loss of the last of some batches."""
    return [model(**batch)["loss"].item() for batch in batches][-1]


def test_evaluation_has_separate_states_which_a_reset_clears() -> None:
    model = build()
    first, second, third = windows(3)
    expected = loss_of(model.eval(), first)
    model.get_metrics(reset=True)
    loss_of(model.train(), second)
    assert_close_losses(loss_of(model.eval(), first), expected, steps=4, scale=4)
    # Without a reset the state continues.
    assert loss_of(model, first) != expected
    # And training continues where it was.
    continued = loss_of(model.train(), third)
    assert_close_losses(continued, loss_of(build(), second, third), steps=2 * 4, scale=4)


def test_dropout_and_resets_of_rows_are_for_training_only() -> None:
    batches = windows(2)
    dropping, resetting = build(dropout=0.5), build(state_reset=1.0)
    assert len({loss_of(dropping, batches[0]) for _ in range(3)}) == 3
    loss = loss_of(resetting, *batches)
    assert_close_losses(loss, loss_of(build(), batches[1]), steps=4, scale=4)
    with pytest.raises(AssertionError, match="not close"):
        assert_close_losses(loss, loss_of(build(), *batches), steps=2 * 4, scale=4)
    # Each row is reset with this probability, independently of the others.
    model, num_rows = build(state_reset=0.3), 10_000
    model._training_states.states = [(torch.ones(num_rows, 1), torch.ones(num_rows, 1))]
    [(state, _)] = model._states_for(num_rows).states
    assert_share(state == 0, 0.3)
    for model in (dropping, resetting):  # The same operations, and so the same bits.
        assert loss_of(model.eval(), *batches) == loss_of(build().eval(), *batches)


def test_a_regularizer_does_not_change_a_frozen_bilm() -> None:
    regularizer = RegularizerApplicator([("", L2Regularizer(0.1))])
    model = build(softmax_first=1, regularizer=regularizer)
    frozen = copy.deepcopy(model.bilm.state_dict())
    optimizer = torch.optim.Adam(model.parameters())
    BiLMStateCallback("").on_start(SimpleNamespace(model=model, optimizer=optimizer))
    loss_of(model.eval(), *windows(2))  # batches of evaluation do not count
    model.train()
    for number, batch in enumerate(windows(2)):
        optimizer.zero_grad()
        (model(**batch)["loss"] + model.get_regularization_penalty()).backward()
        optimizer.step()
        for name, tensor in model.bilm.state_dict().items():
            assert torch.equal(tensor, frozen[name]) == (number == 0), name


def test_a_training_is_not_resumed_with_other_words(tmp_path: Path) -> None:
    model, words = build(), LMVocabulary.from_file(VOCABULARY_FILE).words
    LMVocabulary([*words[:3], *reversed(words[3:])]).to_file(tmp_path / "vocab.txt")
    state = model.training_state()
    model.load_training_state(state)
    model.vocab = LMWordVocabulary.from_vocabulary_file(str(tmp_path / "vocab.txt"))
    with pytest.raises(
        ConfigurationError, match="has other words, or another order, than when this"
    ):
        model.load_training_state(state)


def test_another_number_of_rows_starts_from_zeros() -> None:
    two_rows = windows(1, rows=2)[0]
    loss = loss_of(build().eval(), windows(1, rows=3)[0], two_rows)
    assert_close_losses(loss, loss_of(build().eval(), two_rows), steps=4, scale=4)


def sentences(texts: List[str]) -> Dict[str, Tensor]:
    """Return a batch as AllenNLP's loaders make it, with padding."""
    reader = BiLMReader(vocabulary_file=VOCABULARY_FILE)
    return as_tensors([reader.text_to_instance(text.split()) for text in texts], Vocabulary())


TEXTS = ["the rain fell .", "he", "they went out into the street", "it was late ."]
LONGEST = 7  # steps: six words and a boundary


# Their perplexity: tests/embedding/scoring_test.py.
def test_the_loss_of_whole_sentences_is_the_mean_of_their_own() -> None:
    model = build().eval()
    together = loss_of(model, sentences(TEXTS))
    alone = [loss_of(model, sentences([text])) for text in TEXTS]
    assert_close_losses(together, numpy.mean(alone), steps=LONGEST, scale=LONGEST)


def test_whole_sentences_neither_read_nor_write_the_states_of_streams() -> None:
    first, second = windows(2)
    model = build()
    loss_of(model, first)
    lone, expected_lone = (loss_of(one, sentences(TEXTS[:3])) for one in (model, build()))
    assert_close_losses(lone, expected_lone, steps=LONGEST, scale=LONGEST)
    expected = loss_of(build(), first, second)
    assert_close_losses(loss_of(model, second), expected, steps=2 * 4, scale=4)


def test_directions_of_other_lengths_are_refused() -> None:
    batch = sentences(TEXTS)
    batch["backward_inputs"] = batch["backward_inputs"].flip(0)
    with pytest.raises(ValueError, match=r"padding"):
        build()(**batch)


def test_allennlps_loaders_train_on_whole_sentences(tmp_path: Path) -> None:
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("\n".join(TEXTS * 4) + "\n")
    params = Params(
        {
            "dataset_reader": {"type": "elmo_bilm", "vocabulary_file": VOCABULARY_FILE},
            "vocabulary": {"type": "elmo_lm_words", "vocabulary_file": VOCABULARY_FILE},
            "train_data_path": str(corpus),
            "validation_data_path": str(corpus),
            "model": {
                "type": "elmo_bilm",
                "options": TINY_OPTIONS.to_dict(),
                "softmax": {"type": "elmo_full"},
            },
            "data_loader": {"batch_sampler": {"type": "bucket", "batch_size": 4}},
            "trainer": {"optimizer": {"type": "adam", "lr": 0.02}, "num_epochs": 8},
        }
    )
    train_model(params, str(tmp_path / "run"))
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())
    first = json.loads((tmp_path / "run" / "metrics_epoch_0.json").read_text())
    assert metrics["validation_perplexity"] < 0.5 * first["validation_perplexity"]


def test_products_in_bfloat16_train_like_those_in_float32_where_there_are_any(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    batch = windows(1)[0]
    gradients, evaluated = [], []
    for precision, has_products in (("float32", True), ("bfloat16", False), ("bfloat16", True)):
        monkeypatch.setattr(
            "elmo_plugin.pretraining.model.has_bfloat16_products",
            lambda device, has=has_products: has,
        )
        model = build(precision=precision)
        torch.manual_seed(0)
        model.bilm = BiLM(TINY_OPTIONS)  # initial values, which no clip holds
        model(**batch)["loss"].backward()
        gradients.append([parameter.grad for parameter in model.parameters()])
        assert {gradient.dtype for gradient in gradients[-1]} == {torch.float32}
        model(**batch)
        evaluated.append(model.eval()(**batch)["loss"].item())
    float32, without_products, bfloat16 = gradients
    assert all(map(torch.equal, without_products, float32))
    assert caplog.text.count("training uses float32.") == 1
    assert not all(map(torch.equal, bfloat16, float32))
    # Forwards and backwards, each step of two layers rounds what both its products multiply. Gradients are
    # sums over the steps of all rows, in both directions.
    num_rows, steps = batch["forward_targets"].shape
    sizes = (NUM_WORDS, TINY_OPTIONS.cell_size, TINY_OPTIONS.projection_dim)
    terms, roundings = 2 * num_terms(steps, *sizes) + 2 * num_rows * steps, 2 * 2 * 2 * steps
    for ours, theirs in zip(bfloat16, float32, strict=True):
        assert_close(ours, theirs, terms, dtype=torch.bfloat16, roundings=roundings)
    # Evaluation always uses float32, also where the trainer uses autocast (use_amp).
    model.get_metrics(reset=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        evaluated.append(model(**batch)["loss"].item())
    assert len(set(evaluated)) == 1
