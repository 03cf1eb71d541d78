import json

import pytest
import torch
from allennlp.common import Params
from allennlp.data import DatasetReader
from allennlp.models import Model
from allennlp.nn import Initializer
from hypothesis import given
from hypothesis import strategies as st

from elmo_plugin.bilm import BiLM
from elmo_plugin.tasks.squad.answer_metrics import word_f1
from elmo_plugin.tasks.squad.model import best_span
from tests.closeness import assert_close
from tests.tasks.task_testing import (
    FIXTURES,
    as_tensors,
    build_tiny,
    experiment_of,
    num_terms,
    read_tiny,
)

BILM_FILES = [str(FIXTURES / "bilm" / "tiny" / name) for name in ("options.json", "weights.hdf5")]


@pytest.fixture(scope="module")
def data():
    return read_tiny("squad", "experiment_elmo")


def test_loss_is_the_mean_over_questions_of_both_cross_entropies(data):
    instances, vocab = data
    model = build_tiny("squad", vocab, "experiment_elmo")
    output = model(**as_tensors(instances, vocab))
    losses = []
    for row, instance in enumerate(instances):
        length = len(instance["passage"])
        for logits, span in (("start_logits", "span_start"), ("end_logits", "span_end")):
            scores = output[logits][row, :length]
            losses.append(scores.logsumexp(0) - scores[instance[span].sequence_index])
    # Exponentials over the words of a passage, then losses.
    terms = output["start_logits"].size(1) + len(losses)
    assert_close(output["loss"], sum(losses) / len(instances), terms=terms)


def test_a_file_in_which_only_some_questions_have_answers_is_measured_on_these(data, tmp_path):
    content = json.loads((FIXTURES / "squad" / "tiny" / "train.json").read_text())
    for paragraph in content["data"][0]["paragraphs"]:
        del paragraph["qas"][0]["answers"]
    file_path = tmp_path / "some.json"
    file_path.write_text(json.dumps(content))
    params = experiment_of("squad")["dataset_reader"]
    reader = DatasetReader.from_params(params, require_answers=False)
    instances = list(reader.read(file_path))
    for instance in instances:
        reader.apply_token_indexers(instance)
    model = build_tiny("squad", data[1]).eval()
    output = model(**as_tensors(instances, data[1]))
    assert "loss" not in output
    answers = [instance["metadata"]["answers"] for instance in instances]
    assert 0 < sum(map(bool, answers)) < len(answers)
    scores = [word_f1(text, gold) for text, gold in zip(output["best_span_text"], answers) if gold]
    assert_close(model.get_metrics()["f1"], sum(scores) / len(scores), terms=len(scores))


def test_padding_changes_nothing_and_is_never_an_answer(data):
    instances, vocab = data
    model = build_tiny("squad", vocab, "experiment_elmo").eval()
    short = instances[3]
    alone = model(**as_tensors([short], vocab))
    with_others = model(**as_tensors(instances, vocab))
    length = len(short["passage"])
    assert with_others["start_logits"].size(1) > length
    for name in ("start_logits", "end_logits"):
        # Outputs of the RNNs, which the logits sum, are at most 1.
        terms = num_terms(model, length)
        assert_close(with_others[name][3, :length], alone[name][0], terms=terms, scale=1.0)
        assert (with_others[name][3, length:].exp() == 0).all()
    assert with_others["best_span"][3].tolist() == alone["best_span"][0].tolist()


def test_dropout_on_the_output_of_the_rnn_does_not_drop_output_elmo(data):
    _, vocab = data
    model = build_tiny("squad", vocab, "experiment_elmo")
    model.dropout.p = 0.5
    contextualized = torch.ones(2, 3, model.text_encoder.get_output_dim())
    dropped = model._with_dropout(contextualized)
    assert (dropped[..., 12:] == 1).all()
    assert set(dropped[..., :12].unique().tolist()) == {0.0, 2.0}
    # The same units of all tokens.
    assert (dropped == dropped[:, :1]).all()


def test_the_papers_initializer_applies_to_all_grus_and_not_to_the_bilm(data, tmp_path):
    _, vocab = data
    vectors = tmp_path / "vectors.txt"
    vectors.write_text("rain " + " ".join(["0.1"] * 300) + "\n")
    overrides = {
        "model.text_encoder.elmo.options_file": BILM_FILES[0],
        "model.text_encoder.elmo.weight_file": BILM_FILES[1],
    }
    params = Params.from_file(
        FIXTURES.parent / "training_configs" / "squad.jsonnet",
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
    for name, parameter in BiLM.from_files(*BILM_FILES).named_parameters():
        [found] = [value for key, value in initialized.items() if key.endswith(name)]
        assert torch.equal(found, parameter)
        compared += 1
    assert compared > 10


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
    # Without the tails, 0.88 of a standard deviation is left. Of 40,000 values, the mean has a standard
    # deviation of 0.044 / 200 = 0.0002, and the standard deviation one of 1 / sqrt(80,000) = 0.4%.
    assert abs(values.mean().item() - 1) < 5 * 0.0002
    assert abs(values.std().item() / (0.05 * 0.8796) - 1) < 5 * 0.004
