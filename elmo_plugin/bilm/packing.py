"""Where each token of a padded batch stands when padding is left out."""

from dataclasses import dataclass
from typing import List

import torch
from torch import Tensor


@dataclass(frozen=True)
class Packing:
    """
    The order in which an LSTM reads a batch: step by step, the longest sequence first, no padding.

    Packed tensors have one row per real token. Rows of step `t` follow those of step `t - 1`; within a
    step the rows are the sequences that are at least `t + 1` long, by falling length. As the number of
    sequences at a step does not depend on the reading direction, both directions share one packing.

    # Parameters

    batch_size, timesteps : `int`
        The shape of the padded batch.
    step_sizes : `List[int]`
        How many sequences each step has; never rising.
    order : `Tensor`
        `(batch_size,)`. The row of the padded batch that is i-th longest.
    row, step : `Tensor`
        `(num_tokens,)` each. The place of each packed token in the padded batch.
    reverse : `Tensor`
        `(num_tokens,)`. Packed indices that turn every sequence around; its own inverse.
    """

    batch_size: int
    timesteps: int
    step_sizes: List[int]
    order: Tensor
    row: Tensor
    step: Tensor
    reverse: Tensor

    @classmethod
    def from_lengths(cls, lengths: Tensor, timesteps: int) -> "Packing":
        """
        # Parameters

        lengths : `Tensor`
            `(batch_size,)`, on any device. Tokens of each row, at least 1.
        timesteps : `int`
            Width of the padded batch.
        """
        device = lengths.device
        sorted_lengths, order = lengths.cpu().sort(descending=True, stable=True)
        longest = int(sorted_lengths[0])
        # (longest, batch_size): whether the i-th longest sequence reaches step t.
        present = torch.arange(longest).unsqueeze(1) < sorted_lengths.unsqueeze(0)
        step, rank = present.nonzero(as_tuple=True)
        step_sizes = present.sum(dim=1)
        step_starts = step_sizes.cumsum(0) - step_sizes
        reverse = step_starts[sorted_lengths[rank] - 1 - step] + rank
        return cls(
            batch_size=lengths.size(0),
            timesteps=timesteps,
            step_sizes=step_sizes.tolist(),
            order=order.to(device),
            row=order[rank].to(device),
            step=step.to(device),
            reverse=reverse.to(device),
        )

    def unpack(self, packed: Tensor) -> Tensor:
        """
        Put packed rows, `(num_tokens, dim)`, back in place: `(batch_size, timesteps, dim)`, padding zero.
        """
        padded = packed.new_zeros(self.batch_size, self.timesteps, packed.size(-1))
        return padded.index_put((self.row, self.step), packed)
