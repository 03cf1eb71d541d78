import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from elmo_plugin.tasks.squad.best_span import best_span


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
