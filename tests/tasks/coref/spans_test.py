import torch
from hypothesis import given
from hypothesis import strategies as st

from elmo_plugin.tasks.coref.spans import best_spans, enumerate_spans, link_clusters


@given(st.lists(st.integers(1, 7), min_size=1, max_size=4), st.integers(1, 9))
def test_all_spans_are_there_in_order(sentence_lengths, max_width):
    expected, first = [], 0
    for length in sentence_lengths:
        for start in range(first, first + length):
            for end in range(start + 1, min(start + max_width, first + length) + 1):
                expected.append([start, end])
        first += length
    assert enumerate_spans(torch.tensor(sentence_lengths), max_width).tolist() == expected


@given(st.integers(1, 12), st.integers(1, 12), st.integers(0, 1000))
def test_pruning_equals_the_papers_rule_spelled_out(num_words, max_spans, seed):
    spans = enumerate_spans(torch.tensor([num_words]), max_width=6)
    scores = torch.rand(len(spans), generator=torch.Generator().manual_seed(seed))
    accepted = []
    for index in scores.argsort(descending=True).tolist():
        start, end = spans[index].tolist()
        crosses = any(
            start < other_start < end < other_end or other_start < start < other_end < end
            for other_start, other_end in (spans[other].tolist() for other in accepted)
        )
        if len(accepted) < max_spans and not crosses:
            accepted.append(index)
    assert best_spans(spans, scores, max_spans).tolist() == sorted(accepted)


SPANS = [(0, 2), (3, 4), (3, 6), (7, 8), (9, 10)]


def test_chains_of_links_make_clusters():
    #  (0, 2) <- (3, 6) <- (9, 10), and (3, 4) <- (7, 8)
    assert link_clusters(SPANS, [None, None, 0, 1, 2]) == [
        [(0, 2), (3, 6), (9, 10)],
        [(3, 4), (7, 8)],
    ]


def test_without_links_there_are_no_clusters():
    assert link_clusters(SPANS, [None] * 5) == []
    assert link_clusters([], []) == []
