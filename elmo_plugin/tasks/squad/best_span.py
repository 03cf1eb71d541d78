"""The best span of tokens, from scores of starts and of ends."""

import torch
from torch import Tensor


def best_span(start_logits: Tensor, end_logits: Tensor, max_length: int) -> Tensor:
    """
    The span with the highest sum of its start's and its end's score, among all of at most `max_length`
    tokens; of several, the first that starts, and of those the shortest.

    # Parameters

    start_logits, end_logits : `Tensor`
        `(batch_size, timesteps)`. Masked: very low where no span may start or end, which is never so for
        all steps.
    max_length : `int`
        At least 1.

    # Returns

    `LongTensor` of shape `(batch_size, 2)`: the first and the last token.
    """
    # A span needs its start beside the next max_length ends only: a band of the square of all pairs.
    padded_ends = torch.nn.functional.pad(
        end_logits.float(), (0, max_length - 1), value=float("-inf")
    )  # (batch_size, timesteps + max_length - 1)
    ends = padded_ends.unfold(1, max_length, 1)  # (batch_size, timesteps, max_length)
    scores = start_logits.float().unsqueeze(-1) + ends  # (batch_size, timesteps, max_length)
    best = scores.flatten(1).argmax(dim=1)  # (batch_size,)
    start = torch.div(best, max_length, rounding_mode="floor")
    return torch.stack([start, start + best % max_length], dim=1)  # (batch_size, 2)
