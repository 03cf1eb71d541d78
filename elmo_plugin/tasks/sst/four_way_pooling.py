"""From the vectors of a sentence's tokens to one vector, in four ways at once."""

import torch
from allennlp.nn.util import masked_max, masked_mean, masked_softmax, weighted_sum
from torch import BoolTensor, Tensor


class FourWayPooling(torch.nn.Module):
    """
    The maximum, the minimum, the mean and a weighted mean over the tokens, side by side. The weights are
    learned: a softmax over the tokens of a linear score of each (McCann et al. 2017, section 5).

    # Parameters

    input_dim : `int`
        Width of a token's vector.
    """

    def __init__(self, input_dim: int) -> None:
        super().__init__()
        # A bias would move all scores alike, which changes no weight.
        self.token_score = torch.nn.Linear(input_dim, 1, bias=False)

    def get_output_dim(self) -> int:
        return 4 * self.token_score.in_features

    def forward(self, tokens: Tensor, mask: BoolTensor) -> Tensor:
        """
        # Parameters

        tokens : `Tensor`
            `(batch_size, timesteps, input_dim)`. What stands at padded steps never counts.
        mask : `BoolTensor`
            `(batch_size, timesteps)`. At least one step of each row is `True`.

        # Returns

        `Tensor` of shape `(batch_size, 4 * input_dim)`.
        """
        wide_mask = mask.unsqueeze(-1)  # (batch_size, timesteps, 1)
        maximum = masked_max(tokens, wide_mask, dim=1)  # (batch_size, input_dim)
        minimum = -masked_max(-tokens, wide_mask, dim=1)  # (batch_size, input_dim)
        mean = masked_mean(tokens, wide_mask, dim=1)  # (batch_size, input_dim)
        scores = self.token_score(tokens).squeeze(-1)  # (batch_size, timesteps)
        # "Memory efficient" is the exact one: the other lets padding take a share, then divides it out.
        weights = masked_softmax(scores, mask, memory_efficient=True)  # (batch_size, timesteps)
        weighted_mean = weighted_sum(tokens, weights)  # (batch_size, input_dim)
        return torch.cat([maximum, minimum, mean, weighted_mean], dim=-1)
