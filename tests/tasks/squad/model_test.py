import json
from pathlib import Path

import pytest
import torch
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from allennlp.data import Batch, DatasetReader, Vocabulary
from allennlp.models import Model
from allennlp.nn import Initializer
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from elmo_plugin.bilm import BiLM
from elmo_plugin.tasks.squad.model import best_span
from tests.tasks.task_testing import overfit

REPOSITORY = Path(__file__).parents[3]
TINY = REPOSITORY / "fixtures" / "squad" / "tiny"
TINY_BILM = REPOSITORY / "fixtures" / "bilm" / "tiny"
EXPERIMENT = str(TINY / "experiment.jsonnet")
EXPERIMENT_WITH_ELMO = str(TINY / "experiment_elmo.jsonnet")


def read_questions(experiment=EXPERIMENT):
    reader = DatasetReader.from_params(Params.from_file(experiment)["dataset_reader"])
    instances = list(reader.read(TINY / "train.json"))
    return instances, Vocabulary.from_instances(instances)


def build_model(vocab, experiment=EXPERIMENT, dropout=0.0, overrides=None):
    """The model of the tiny experiment."""
    torch.manual_seed(13)
    params = Params.from_file(experiment, params_overrides=json.dumps(overrides or {}))["model"]
    params["dropout"] = params["text_encoder"]["dropout"] = dropout
    return Model.from_params(params, vocab=vocab)


def tensors_of(instances, vocab):
    batch = Batch(instances)
    batch.index_instances(vocab)
    return batch.as_tensor_dict()


def tiny_bilm():
    return BiLM.from_files(TINY_BILM / "options.json", TINY_BILM / "weights.hdf5")


def test_the_questions_can_be_learned_by_heart():
    instances, vocab = read_questions()
    model = build_model(vocab)
    assert overfit(model, instances)[-1] < 0.2
    model.get_metrics(reset=True)
    model.eval()
    model(**tensors_of(instances, vocab))
    metrics = model.get_metrics(reset=True)
    # The answer `6` stands inside of the token `6½`.
    assert metrics.pop("em") == pytest.approx(7 / 8)
    assert metrics.pop("f1") == pytest.approx(7 / 8)
    assert metrics == {"start_accuracy": 1.0, "end_accuracy": 1.0, "span_accuracy": 1.0}
    assert model.get_metrics()["em"] == 0.0


def test_gradients_reach_all_trainable_parameters():
    instances, vocab = read_questions(EXPERIMENT_WITH_ELMO)
    model = build_model(vocab, EXPERIMENT_WITH_ELMO, dropout=0.1)
    model(**tensors_of(instances, vocab))["loss"].backward()
    without = {
        name
        for name, parameter in model.named_parameters()
        if parameter.requires_grad and (parameter.grad is None or not parameter.grad.any())
    }
    # A softmax ignores a bias of all its scores, but for rounding; AllenNLP's module has one.
    assert without <= {"attention.similarity._bias"}


def test_loss_is_the_mean_over_questions_of_both_cross_entropies():
    instances, vocab = read_questions()
    model = build_model(vocab)
    output = model(**tensors_of(instances, vocab))
    losses = []
    for row, instance in enumerate(instances):
        length = len(instance["passage"])
        for logits, span in (("start_logits", "span_start"), ("end_logits", "span_end")):
            scores = output[logits][row, :length]
            losses.append(scores.logsumexp(0) - scores[instance[span].sequence_index])
    assert_allclose(output["loss"].item(), sum(losses).item() / len(instances), rtol=1e-5)


def test_padding_changes_nothing_and_is_never_an_answer():
    instances, vocab = read_questions(EXPERIMENT_WITH_ELMO)
    model = build_model(vocab, EXPERIMENT_WITH_ELMO).eval()
    short = instances[3]
    alone = model(**tensors_of([short], vocab))
    with_others = model(**tensors_of(instances, vocab))
    length = len(short["passage"])
    assert with_others["start_logits"].size(1) > length
    for name in ("start_logits", "end_logits"):
        # As sums may be added in another order.
        assert_allclose(with_others[name][3, :length].detach(), alone[name][0].detach(), atol=1e-5)
        assert (with_others[name][3, length:].exp() == 0).all()
    assert with_others["best_span"][3].tolist() == alone["best_span"][0].tolist()


def test_output_without_answers_has_the_best_span_but_no_loss():
    _, vocab = read_questions()
    model = build_model(vocab)
    reader = DatasetReader.from_params(Params.from_file(EXPERIMENT)["dataset_reader"])
    passage = "It  rained in Paris."
    instance = reader.text_to_instance("Where did it rain?", passage)
    reader.apply_token_indexers(instance)
    [output] = model.forward_on_instances([instance])
    assert set(output) == {
        *("start_logits", "end_logits", "best_span", "span_probability"),
        *("best_span_text", "best_span_characters"),
    }
    first, last = output["best_span"]
    start_char, end_char = output["best_span_characters"]
    assert passage[start_char:end_char] == output["best_span_text"]
    starts, ends = (torch.tensor(output[f"{side}_logits"]).softmax(0) for side in ("start", "end"))
    assert output["span_probability"] == pytest.approx(float(starts[first] * ends[last]), rel=1e-5)
    assert model.get_metrics()["em"] == 0.0


def test_answers_are_not_longer_than_allowed():
    instances, vocab = read_questions()
    for max_answer_tokens in (1, 2):
        model = build_model(vocab, overrides={"model.max_answer_tokens": max_answer_tokens})
        spans = model(**tensors_of(instances, vocab))["best_span"]
        lengths = spans[:, 1] - spans[:, 0] + 1
        assert lengths.min() >= 1 and lengths.max() <= max_answer_tokens


def test_no_answer_of_nothing():
    _, vocab = read_questions()
    with pytest.raises(ConfigurationError, match="max_answer_tokens is 0, expected at least 1"):
        build_model(vocab, overrides={"model.max_answer_tokens": 0})


@pytest.mark.parametrize(
    "placement, input_dim, output_dim",
    [("none", 0, 0), ("input", 1, 0), ("output", 0, 1), ("both", 1, 1)],
)
def test_widths_follow_the_placement_of_elmo(placement, input_dim, output_dim):
    _, vocab = read_questions()
    elmo_dim = 2 * tiny_bilm().options.projection_dim
    overrides = {"model.text_encoder.elmo.placement": placement}
    model = build_model(vocab, EXPERIMENT_WITH_ELMO, overrides=overrides)
    rnn_dim = 12
    assert model.text_encoder.get_input_dim() == 8 + 6 + input_dim * elmo_dim
    assert model.attention.get_input_dim() == rnn_dim + output_dim * elmo_dim
    assert model.projection.get_input_dim() == 4 * model.attention.get_input_dim()


def test_elmo_may_stand_inside_the_text_field_embedder():
    instances, vocab = read_questions(EXPERIMENT_WITH_ELMO)
    elmo = {
        "type": "elmo",
        "options_file": str(TINY_BILM / "options.json"),
        "weight_file": str(TINY_BILM / "weights.hdf5"),
    }
    embedders = "model.text_encoder.text_field_embedder.token_embedders"
    model = build_model(vocab, overrides={f"{embedders}.elmo": elmo})
    assert model.text_encoder.get_input_dim() == 8 + 6 + 2 * tiny_bilm().options.projection_dim
    assert len(model.forward_on_instances(instances)) == 8


def test_question_and_passage_share_the_mix_of_each_place():
    _, vocab = read_questions(EXPERIMENT_WITH_ELMO)
    model = build_model(vocab, EXPERIMENT_WITH_ELMO)
    mixes = [name for name, _ in model.named_parameters() if name.endswith("gamma")]
    assert len(mixes) == 2  # one for each place


def test_dropout_on_the_output_of_the_rnn_leaves_output_elmo_alone():
    _, vocab = read_questions(EXPERIMENT_WITH_ELMO)
    model = build_model(vocab, EXPERIMENT_WITH_ELMO)
    model.dropout.p = 0.5
    contextualized = torch.ones(2, 3, model.text_encoder.get_output_dim())
    dropped = model._with_dropout(contextualized)
    assert (dropped[..., 12:] == 1).all()
    assert set(dropped[..., :12].unique().tolist()) == {0.0, 2.0}
    # The same units of all tokens.
    assert (dropped == dropped[:, :1]).all()


def test_the_initializer_of_the_paper_reaches_all_grus_and_leaves_the_bilm_alone(tmp_path):
    _, vocab = read_questions(EXPERIMENT_WITH_ELMO)
    vectors = tmp_path / "vectors.txt"
    vectors.write_text("rain " + " ".join(["0.1"] * 300) + "\n")
    overrides = {
        "model.text_encoder.elmo.options_file": str(TINY_BILM / "options.json"),
        "model.text_encoder.elmo.weight_file": str(TINY_BILM / "weights.hdf5"),
    }
    params = Params.from_file(
        REPOSITORY / "training_configs" / "squad.jsonnet",
        params_overrides=json.dumps(overrides),
        ext_vars={"SQUAD_DATA": "data", "WORD_VECTORS": str(vectors)},
    )
    model = Model.from_params(params["model"], vocab=vocab)
    gru_weights = [
        parameter
        for name, parameter in model.named_parameters()
        if "weight_ih" in name or "weight_hh" in name
    ]
    assert len(gru_weights) == 16  # four GRUs in two directions, without the LSTMs of the biLM
    assert all(parameter.abs().max() <= 0.1 for parameter in gru_weights)
    initialized = dict(model.text_encoder.elmo.elmo.named_parameters())
    compared = 0
    for name, parameter in tiny_bilm().named_parameters():
        [found] = [value for key, value in initialized.items() if key.endswith(name)]
        assert torch.equal(found, parameter)
        compared += 1
    assert compared > 10


def test_parts_whose_widths_do_not_fit_are_refused():
    _, vocab = read_questions()
    model = build_model(vocab)
    with pytest.raises(ConfigurationError, match="end encoder input"):
        type(model)(
            vocab,
            model.text_encoder,
            model.projection,
            model.self_attention.encoder,
            model.start_encoder,
            model.start_encoder,
        )


def test_default_predictor_is_the_tasks_own():
    _, vocab = read_questions()
    assert build_model(vocab).default_predictor == "elmo_squad"


def best_span_by_trying_all(start_logits, end_logits, max_length):
    """(score, first, last) of the best, the first of several."""
    num_tokens = len(start_logits)
    spans = [
        (start_logits[first] + end_logits[last], first, last)
        for first in range(num_tokens)
        for last in range(first, min(first + max_length, num_tokens))
    ]
    return max(spans, key=lambda span: span[0])[1:]


scores = st.integers(-9, 9)


@given(
    passages=st.integers(1, 12).flatmap(
        lambda length: st.lists(
            st.tuples(*[st.lists(scores, min_size=length, max_size=length)] * 2),
            min_size=1,
            max_size=3,
        )
    ),
    max_length=st.integers(1, 15),
)
def test_the_best_of_all_spans_is_found(passages, max_length):
    starts, ends = (torch.tensor(rows, dtype=torch.float) for rows in zip(*passages))
    spans = best_span(starts, ends, max_length)
    assert spans.shape == (len(passages), 2)
    assert [tuple(span) for span in spans.tolist()] == [
        best_span_by_trying_all(*passage, max_length) for passage in passages
    ]


@pytest.mark.parametrize(
    "max_length, expected", [(1, [3, 3]), (2, [2, 3]), (3, [1, 3]), (9, [1, 3])]
)
def test_a_span_is_not_longer_than_allowed(max_length, expected):
    starts = torch.tensor([[0.0, 5.0, 4.0, 3.0]])
    ends = torch.tensor([[0.0, 0.0, 0.0, 9.0]])
    assert best_span(starts, ends, max_length).tolist() == [expected]


def test_the_end_is_never_before_the_start():
    starts = torch.tensor([[0.0, 0.0, 9.0]])
    ends = torch.tensor([[9.0, 0.0, 1.0]])
    assert best_span(starts, ends, 3).tolist() == [[2, 2]]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_masked_steps_are_never_chosen(dtype):
    lowest = torch.finfo(dtype).min
    starts = torch.tensor([[-7.0, -8.0, lowest, lowest]], dtype=dtype)
    ends = torch.tensor([[-9.0, -5.0, lowest, lowest]], dtype=dtype)
    assert best_span(starts, ends, 17).tolist() == [[0, 1]]


def test_values_are_normal_without_the_tails():
    torch.manual_seed(13)
    values = torch.empty(200, 200)
    Initializer.from_params(Params({"type": "elmo_truncated_normal", "mean": 1.0, "std": 0.05}))(
        values
    )
    assert 0.9 <= values.min() < 0.901
    assert 1.099 < values.max() <= 1.1
    assert values.mean().item() == pytest.approx(1.0, abs=0.001)
    # Without what is beyond two standard deviations, 0.88 of one is left.
    assert values.std().item() == pytest.approx(0.05 * 0.8796, rel=0.02)
