import pytest
import torch
from torch.testing import assert_close

from elmo_plugin.tasks.sst.four_way_pooling import FourWayPooling


def pool_slowly(pooling, tokens):
    """One sentence without padding, `(timesteps, input_dim)`."""
    weights = torch.softmax(pooling.token_score(tokens).squeeze(-1), dim=0)
    weighted = sum(weight * token for weight, token in zip(weights, tokens, strict=True))
    return torch.cat([tokens.amax(0), tokens.amin(0), tokens.mean(0), weighted])


@pytest.mark.parametrize("shift", [0.0, 40.0, -40.0])
@pytest.mark.parametrize("padding", [0.0, 1e4, -1e4])
def test_pooling_equals_that_of_each_sentence_alone(shift, padding):
    torch.manual_seed(13)
    pooling = FourWayPooling(5)
    # Tokens of one sign, whose maximum or minimum a padding of zeros would replace; and scores far from the
    # score of such a padding.
    torch.nn.init.ones_(pooling.token_score.weight)
    lengths = [4, 1, 7, 2]
    sentences = [shift + torch.randn(length, 5) for length in lengths]
    tokens = torch.full((4, 7, 5), padding)
    mask = torch.zeros(4, 7, dtype=torch.bool)
    for row, sentence in enumerate(sentences):
        tokens[row, : len(sentence)] = sentence
        mask[row, : len(sentence)] = True
    expected = torch.stack([pool_slowly(pooling, sentence) for sentence in sentences])
    # Sums of a few float32 numbers up to 40.
    assert_close(pooling(tokens, mask), expected, rtol=1e-5, atol=1e-5)


def test_the_pooled_width_is_four_times_that_of_a_token():
    pooling = FourWayPooling(3)
    mask = torch.ones(2, 4, dtype=torch.bool)
    assert pooling(torch.randn(2, 4, 3), mask).shape == (2, pooling.get_output_dim()) == (2, 12)


def test_padding_has_no_gradient():
    tokens = torch.randn(1, 3, 4, requires_grad=True)
    FourWayPooling(4)(tokens, torch.tensor([[True, True, False]])).sum().backward()
    assert (tokens.grad[0, 2] == 0).all()
    assert (tokens.grad[0, :2] != 0).any(dim=-1).all()
