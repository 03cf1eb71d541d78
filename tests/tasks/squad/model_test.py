import random
import re
import string

import pytest
import torch
from allennlp.models import Model
from allennlp.modules.seq2seq_encoders import GruSeq2SeqEncoder
from hypothesis import given
from hypothesis import strategies as st
from more_itertools import split_when

from elmo_plugin.tasks.squad.model import (
    AnswerMetrics,
    BidirectionalAttention,
    ResidualSelfAttention,
    best_span,
    exact_match,
    normalized_answer,
    word_f1,
)
from tests.closeness import assert_close
from tests.tasks.task_testing import (
    as_tensors,
    build_tiny,
    num_terms,
    read_tiny,
    small_experiment,
)


@pytest.fixture(scope="module")
def data():
    return read_tiny("squad", "experiment_elmo")


def test_loss_is_the_mean_over_questions_of_both_cross_entropies(data):
    instances, vocab = data
    model = build_tiny("squad", vocab, "experiment_elmo")
    output = model(**as_tensors(instances, vocab))
    logit_terms = num_terms(model, max(len(instance["passage"]) for instance in instances))
    losses = []
    for row, instance in enumerate(instances):
        length = len(instance["passage"])
        spans = instance["answer_spans"].tensor
        alone = model(**as_tensors([instance], vocab))
        for side, logits in enumerate(("start_logits", "end_logits")):
            # Padding changes nothing.
            assert_close(output[logits][row, :length], alone[logits][0], logit_terms, scale=1.0)
            probabilities = output[logits][row, :length].softmax(dim=0)
            # Of all answers together, each place once.
            losses.append(-probabilities[spans[:, side].unique()].sum().log())
    # Exponentials over the words of a passage, then losses.
    terms = output["start_logits"].size(1) + len(losses)
    assert_close(output["loss"], sum(losses) / len(instances), terms=terms)


@pytest.mark.parametrize("max_answer_tokens", [1, 17])
def test_the_probability_of_an_answer_is_that_of_its_start_times_that_of_its_end(
    data, max_answer_tokens
):
    instances, vocab = data
    model = build_tiny("squad", vocab, "experiment_elmo", max_answer_tokens=max_answer_tokens)
    for scores in (model.start_score, model.end_score):
        scores.register_forward_hook(  # rounded, as under autocast
            lambda module, inputs, output: torch.randn_like(output).bfloat16()
        )
    output = model(**as_tensors(instances, vocab))
    assert output["start_logits"].dtype == output["end_logits"].dtype == torch.float32
    widths = set()
    for row, instance in enumerate(instances):
        length = len(instance["passage"])
        first, last = output["best_span"][row].tolist()
        starts, ends = (
            output[logits][row, :length].softmax(dim=0) for logits in ("start_logits", "end_logits")
        )
        # Exponentials over the words of a passage, for the start and for the end.
        expected = starts[first] * ends[last]
        assert_close(output["span_probability"][row], expected, terms=2 * length)
        widths.add(last - first + 1)
    assert max(widths) == 1 if max_answer_tokens == 1 else max(widths) > 2


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


def test_all_grus_have_initial_values_of_a_normal_distribution_without_its_tails(data, tmp_path):
    params = small_experiment("squad", tmp_path)
    model = Model.from_params(params["model"], vocab=data[1])
    parameters = dict(model.named_parameters())
    grus = [value for name, value in parameters.items() if re.search("weight_[ih]h_", name)]
    assert len(grus) == 16  # four GRUs in two directions, without the LSTMs of the biLM
    values = torch.cat([weight.flatten() for weight in grus])
    # Two standard deviations.
    assert -0.1 <= values.min() < -0.099
    assert 0.099 < values.max() <= 0.1
    # Without the tails, 0.8796 of a standard deviation is left. That of n values has a relative error of
    # 1 / sqrt(2 n).
    error = (2 * len(values)) ** -0.5
    assert abs(values.std().item() / (0.05 * 0.8796) - 1) < 5 * error


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


def test_masked_steps_are_never_chosen():
    lowest = torch.finfo(torch.float32).min
    starts = torch.tensor([[-7.0, -8.0, lowest, lowest]])
    ends = torch.tensor([[-9.0, -5.0, lowest, lowest]])
    assert best_span(starts, ends, 17).tolist() == [[0, 1]]


def tri_linear(attention, one, other):
    weights = attention.similarity._weight_vector.detach()
    return weights @ torch.cat([one, other, one * other])


def test_attention_is_what_a_slow_loop_computes():
    torch.manual_seed(13)
    attention = BidirectionalAttention(4)
    passage, question = torch.randn(1, 5, 4), torch.randn(1, 3, 4)
    passage_length, question_length = 4, 2  # the rest is padding
    passage_mask = (torch.arange(5) < passage_length).unsqueeze(0)
    question_mask = (torch.arange(3) < question_length).unsqueeze(0)
    with torch.no_grad():
        attended = attention(passage, question, passage_mask, question_mask)

    similarity = torch.tensor(
        [
            [tri_linear(attention, p, q) for q in question[0, :question_length]]
            for p in passage[0, :passage_length]
        ]
    )
    passage_weights = similarity.max(dim=1).values.softmax(dim=0)
    seen_passage = sum(w * p for w, p in zip(passage_weights, passage[0]))
    for index in range(passage_length):
        seen_question = sum(w * q for w, q in zip(similarity[index].softmax(dim=0), question[0]))
        own = passage[0, index]
        expected = torch.cat([own, seen_question, own * seen_question, own * seen_passage])
        # A similarity sums three vectors of four; then vectors of words are summed.
        largest = max(expected.abs().max().item(), similarity.abs().max().item())
        assert_close(attended[0, index], expected, terms=3 * 4 + passage_length, scale=largest)


def test_self_attention_is_what_a_slow_loop_computes():
    torch.manual_seed(13)
    encoder = GruSeq2SeqEncoder(input_size=6, hidden_size=2, bidirectional=True)
    block = ResidualSelfAttention(encoder, dropout=0.0)
    inputs = torch.randn(1, 5, 6)
    mask = (torch.arange(5) < 4).unsqueeze(0)  # the last is padding
    with torch.no_grad():
        outputs = block(inputs, mask)
        encoded = block.encoder(inputs, mask)[0]
        weights = block.similarity._weight_vector
        for index in range(4):
            others = [other for other in range(4) if other != index]
            scores = [
                weights @ torch.cat([encoded[index], encoded[o], encoded[index] * encoded[o]])
                for o in others
            ]
            attention = torch.stack([*scores, block.nothing_score]).softmax(dim=0)
            attended = sum(w * encoded[other] for w, other in zip(attention, others))
            merged = torch.cat([attended, encoded[index], attended * encoded[index]])
            expected = inputs[0, index] + block.projection(merged).relu()
            # A score and the projection sum three vectors of four; attention sums vectors of three words.
            assert_close(outputs[0, index], expected, terms=2 * 3 * 4 + 3)


@pytest.mark.parametrize(
    "predicted, answers, expected_match, expected_f1",
    [
        ("Paris", ["Paris"], 1, 1),
        ("the paris.", ["Paris"], 1, 1),
        ("  an   apple a day\n", ["apple day"], 1, 1),
        ("$5.6-billion", ["56billion"], 1, 1),
        # Only ASCII punctuation goes, as in the official script.
        ("“The Storm”", ["“ storm”"], 1, 1),
        ("“The Storm”", ["Storm"], 0, 0),
        ("Lyon", ["Paris"], 0, 0),
        # One of two words is right, and it is all of the answer: precision 1/2, recall 1.
        ("Paris Lyon", ["Paris"], 0, 2 / 3),
        # Words are counted as often as they occur: 1 in common, precision 1/3, recall 1/2.
        ("New New New", ["New York"], 0, 0.4),
        # Order does not matter for F1.
        ("York New", ["New York"], 0, 1),
        # The best answer counts, for each measure by itself.
        ("the big red dog", ["cat", "dog", "red dog"], 0, 0.8),
        ("red dog", ["big red dog", "Red dog"], 1, 1),
        ("", ["Paris"], 0, 0),
        # Nothing is left of either: a match, and yet no word in common.
        ("the", ["The"], 1, 0),
    ],
)
def test_worked_examples(predicted, answers, expected_match, expected_f1):
    assert exact_match(predicted, answers) == expected_match
    assert_close(word_f1(predicted, answers), expected_f1)


def slowly_normalized(text):
    """
    By the rules of SQuAD 1.1: lower case; no punctuation; articles that are words become spaces, where a word
    is a run of letters and digits; single spaces.
    """
    kept = [character for character in text.lower() if character not in string.punctuation]
    pieces = split_when(kept, lambda one, other: not one.isalnum() or not other.isalnum())
    words = ["".join(piece) for piece in pieces]
    return " ".join("".join(" " if word in ("a", "an", "the") else word for word in words).split())


def slow_scores(predicted, answers):
    """Exact match and F1 of the best answer, by the same rules."""
    matches, f1s = [], []
    for answer in answers:
        words, gold = slowly_normalized(predicted).split(), slowly_normalized(answer).split()
        matches.append(float(words == gold))
        left = list(gold)
        for word in words:
            if word in left:
                left.remove(word)
        num_common = len(gold) - len(left)
        if num_common:
            precision, recall = num_common / len(words), num_common / len(gold)
            f1s.append(2 * precision * recall / (precision + recall))
        else:
            f1s.append(0.0)
    return max(matches), max(f1s)


def test_scores_equal_those_by_the_rules_of_squad():
    random_numbers = random.Random(13)
    pieces = ["a", "An", "THE", "the", "dog", "Dog", "é", "5", " ", " ", " ", "\u00a0", "\n"]
    pieces += [*"-._$'", "’", "—"]
    num_matches = 0
    for _ in range(200):
        predicted, *answers = (
            "".join(random_numbers.choices(pieces, k=random_numbers.randint(1, 9)))
            for _ in range(random_numbers.randint(2, 5))
        )
        assert normalized_answer(predicted) == slowly_normalized(predicted)
        scores = exact_match(predicted, answers), word_f1(predicted, answers)
        assert scores == pytest.approx(slow_scores(predicted, answers))
        num_matches += scores[0]
    assert num_matches > 10


def test_metrics_are_means_over_the_questions_with_answers():
    metrics = AnswerMetrics()
    metrics("Paris", ["Paris"])
    metrics("not measured", [])
    metrics("Paris Lyon", ["Paris", "Rome"])
    metrics("Lyon", ["Paris"])
    measured = metrics.get_metric(reset=True)
    assert measured == pytest.approx({"em": 1 / 3, "f1": (1 + 2 / 3) / 3})
    assert metrics.get_metric() == {"em": 0.0, "f1": 0.0}
