import pytest
import torch
from allennlp.nn.util import bucket_values

from elmo_plugin.tasks.coref import AntecedentScorer, antecedent_scorer
from tests.closeness import assert_close

SPAN_DIM, NUM_MENTIONS = 6, 11
# The first layer sums three vectors of mentions and three features; then come hidden layers of 5 and 4
# units, and the scores of two mentions.
SCORE_TERMS = 3 * SPAN_DIM + 3 * 2 + 5 + 4 + 2
# A gradient sums over up to four antecedents of each mention.
GRADIENT_TERMS = SCORE_TERMS + 4 * NUM_MENTIONS


def build_scorer(**options):
    torch.manual_seed(3)
    defaults = {"hidden_dims": [5, 4], "feature_dim": 2, "max_antecedents": 4}
    return AntecedentScorer(SPAN_DIM, num_genres=4, unknown_genre=1, **{**defaults, **options})


def make_inputs(num_mentions=NUM_MENTIONS):
    generator = torch.Generator().manual_seed(7)
    mentions = torch.randn(num_mentions, SPAN_DIM, generator=generator)
    mention_scores = torch.randn(num_mentions, generator=generator)
    speakers = torch.randint(0, 3, (num_mentions,), generator=generator)
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
            hidden = scorer.further_layers(scorer.activation(scorer.first_layer(pair)))
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


@pytest.mark.parametrize("mentions_per_block", [1, 3])
def test_blocks_equal_the_whole_in_values_and_gradients(mentions_per_block, monkeypatch):
    def values_and_gradients(block_size):
        monkeypatch.setattr(antecedent_scorer, "_MENTIONS_PER_BLOCK", block_size)
        scorer = build_scorer()
        mentions, *others = make_inputs()
        mentions.requires_grad_()
        scores = scorer(mentions, *others)
        scores[scores > -torch.inf].square().sum().backward()
        return [scores, mentions.grad, *(parameter.grad for parameter in scorer.parameters())]

    whole = values_and_gradients(100)
    in_blocks = values_and_gradients(mentions_per_block)
    for one, other in zip(in_blocks, whole, strict=True):
        assert_close(one, other, terms=GRADIENT_TERMS)


def test_dropout_is_the_same_when_a_block_is_computed_again(monkeypatch):
    gradients = []
    monkeypatch.setattr(antecedent_scorer, "_MENTIONS_PER_BLOCK", 3)
    for compute in (antecedent_scorer.checkpoint, lambda score, *bounds, **_: score(*bounds)):
        monkeypatch.setattr(antecedent_scorer, "checkpoint", compute)
        scorer = build_scorer(dropout=0.5)
        torch.manual_seed(5)
        scores = scorer(*make_inputs())
        scores[scores > -torch.inf].sum().backward()
        gradients.append(scorer.first_layer.weight.grad)
    assert_close(*gradients, terms=GRADIENT_TERMS)


def test_a_single_mention_has_no_antecedent_and_no_parameter_is_unused():
    scorer = build_scorer()
    scores = scorer(*make_inputs(num_mentions=1))
    assert scores.tolist() == [[-torch.inf]]
    # Workers of distributed training wait for each other's gradients.
    torch.logaddexp(scores, torch.zeros(1)).sum().backward()
    assert all(parameter.grad is not None for parameter in scorer.parameters())


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
