import pytest
import torch
from allennlp.nn.util import bucket_values
from hypothesis import given
from hypothesis import strategies as st

from elmo_plugin.tasks.coref.spans import (
    AntecedentScorer,
    SpanRepresentation,
    best_spans,
    enumerate_spans,
    link_clusters,
)
from tests.closeness import assert_close


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
    candidates = enumerate_spans(torch.tensor([num_words]), max_width=6)
    scores = torch.rand(len(candidates), generator=torch.Generator().manual_seed(seed))
    accepted = []
    for index in scores.argsort(descending=True).tolist():
        start, end = candidates[index].tolist()
        crosses = any(
            start < other_start < end < other_end or other_start < start < other_end < end
            for other_start, other_end in (candidates[other].tolist() for other in accepted)
        )
        if len(accepted) < max_spans and not crosses:
            accepted.append(index)
    assert best_spans(candidates, scores, max_spans).tolist() == sorted(accepted)


def test_chains_of_links_make_clusters():
    mentions = [(0, 2), (3, 4), (3, 6), (7, 8), (9, 10)]
    #  (0, 2) <- (3, 6) <- (9, 10), and (3, 4) <- (7, 8)
    assert link_clusters(mentions, [None, None, 0, 1, 2]) == [
        [(0, 2), (3, 6), (9, 10)],
        [(3, 4), (7, 8)],
    ]
    assert link_clusters(mentions, [None] * 5) == []


def test_a_span_has_its_ends_its_width_and_its_words_weighted_by_scores():
    torch.manual_seed(0)
    module = SpanRepresentation(*(4, 3, 5, 2), dropout=0.5).eval()
    contextualized, embedded = torch.randn(9, 4), torch.randn(9, 3)
    bounds = torch.tensor([[2, 3], [2, 7], [4, 6]])
    score = module.attended._global_attention._module
    expected = []
    for start, end in bounds.tolist():
        weights = score(contextualized[start:end]).softmax(dim=0)
        width = module.endpoints._span_width_embedding.weight[end - start - 1]
        head = (weights * embedded[start:end]).sum(dim=0)
        expected.append(torch.cat([contextualized[start], contextualized[end - 1], width, head]))
    vectors = module(contextualized, embedded, bounds)
    # A score sums a vector and a bias; the head sums up to five words.
    assert_close(vectors, torch.stack(expected), terms=4 + 1 + 5)
    assert vectors.size(1) == module.get_output_dim()
    # Dropout is on the embedding of the width alone.
    different = module.train()(contextualized, embedded, bounds) != vectors
    assert not different[:, :8].any() and different[:, 8:10].any() and not different[:, 10:].any()


SPAN_DIM, NUM_MENTIONS = 6, 11
# The first layer sums three vectors of mentions and three features; then come hidden layers of 5 and 4
# units, and the scores of two mentions.
SCORE_TERMS = 3 * SPAN_DIM + 3 * 2 + 5 + 4 + 2


def build_scorer(**options):
    torch.manual_seed(3)
    defaults = {"hidden_dims": [5, 4], "feature_dim": 2, "max_antecedents": 4}
    return AntecedentScorer(SPAN_DIM, num_genres=4, unknown_genre=1, **{**defaults, **options})


def make_inputs():
    generator = torch.Generator().manual_seed(7)
    mentions = torch.randn(NUM_MENTIONS, SPAN_DIM, generator=generator)
    mention_scores = torch.randn(NUM_MENTIONS, generator=generator)
    speakers = torch.randint(0, 3, (NUM_MENTIONS,), generator=generator)
    return mentions, mention_scores, speakers, torch.tensor(2)


def score_pairs_one_by_one(scorer, mentions, mention_scores, speakers, genre):
    """The network as the paper has it: on the vectors of pairs, put together."""
    scores = torch.full((len(mentions), min(scorer.max_antecedents, len(mentions) - 1)), -torch.inf)
    for i in range(len(mentions)):
        for j in range(max(0, i - scorer.max_antecedents), i):
            same_speaker = 2 if speakers[i] == speakers[j] else 1
            if speakers[i] == 0 or speakers[j] == 0:
                same_speaker = 0
            pair = torch.cat(
                [
                    mentions[i],
                    mentions[j],
                    mentions[i] * mentions[j],
                    scorer.distance_embedding(bucket_values(torch.tensor(i - j))),
                    scorer.speaker_embedding(torch.tensor(same_speaker)),
                    scorer.genre_embedding(genre),
                ]
            )
            hidden = scorer.further_layers(scorer.first_layer(pair).relu())
            score = scorer.score(hidden)[0] + mention_scores[i] + mention_scores[j]
            scores[i, i - 1 - j] = score
    return scores


@pytest.mark.parametrize("max_antecedents", [1, 4, 10, 100])
@pytest.mark.parametrize("hidden_dims", [[5], [5, 4]])
def test_the_split_first_layer_equals_the_network_on_pairs(max_antecedents, hidden_dims):
    scorer = build_scorer(max_antecedents=max_antecedents, hidden_dims=hidden_dims)
    inputs = make_inputs()
    expected = score_pairs_one_by_one(scorer, *inputs)
    assert_close(scorer(*inputs), expected, terms=SCORE_TERMS)


def test_an_unknown_genre_adds_nothing_and_later_ids_are_unknown():
    scorer = build_scorer()
    mentions, mention_scores, speakers, _ = make_inputs()
    assert not scorer.genre_embedding.weight[1].any()
    of_genre = [
        scorer(mentions, mention_scores, speakers, torch.tensor(genre)) for genre in (1, 2, 4, 100)
    ]
    # One program runs on the same numbers: the same bits.
    assert not torch.equal(of_genre[0], of_genre[1])
    assert torch.equal(of_genre[0], of_genre[2]) and torch.equal(of_genre[0], of_genre[3])
