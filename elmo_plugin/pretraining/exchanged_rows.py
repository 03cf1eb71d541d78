"""Rows of matrices whose sparse gradients distributed workers exchange."""

from typing import Any, List, Tuple

import torch
import torch.distributed
from torch import Tensor
from torch.autograd.function import once_differentiable


def look_up_exchanged(words: Tensor, *weights: Tensor) -> Tuple[Tensor, ...]:
    """
    Rows of some matrices. The backward pass is a meeting of all workers: it gives each of them the mean of
    their gradients, of the rows alone that any of them has looked up.

    `DistributedDataParallel` gives the same, but over gloo sparse gradients make it damage memory (torch
    2.12: "malloc(): unaligned tcache chunk detected" after some thousand steps, of a model of nothing but
    torch's own layers too). So it must be told to leave these parameters alone.

    # Parameters

    words : `LongTensor`
        `(num_rows,)`. Each worker has its own, and its own number of them.
    weights : `Tensor`
        Each `(num_words, dim)`, all of the same type.

    # Returns

    Of each of the weights, `(num_rows, dim)`.
    """
    return _ExchangedRows.apply(words, *weights)


class _ExchangedRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, words: Tensor, *weights: Tensor) -> Tuple[Tensor, ...]:
        ctx.save_for_backward(words)
        ctx.sizes = [weight.size() for weight in weights]
        return tuple(weight[words] for weight in weights)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> Tuple[Any, ...]:
        (words,) = ctx.saved_tensors
        num_rows = [int(size) for size in _gather(torch.tensor([len(words)], device=words.device))]
        words_of_all = _gather_rows(words, num_rows)
        # One message for all weights.
        widths = [gradient.size(1) for gradient in gradients]
        rows_of_all = _gather_rows(torch.cat(gradients, dim=1), num_rows) / len(num_rows)
        return (
            None,
            *(
                torch.sparse_coo_tensor(
                    words_of_all.unsqueeze(0), rows, size, check_invariants=False
                )
                for rows, size in zip(rows_of_all.split(widths, dim=1), ctx.sizes)
            ),
        )


def _gather_rows(rows: Tensor, num_rows: List[int]) -> Tensor:
    """Those of all workers, one worker after the other, where each has so many of them."""
    padded = rows.new_zeros(max(num_rows), *rows.shape[1:])
    padded[: len(rows)] = rows
    return torch.cat([gathered[:number] for gathered, number in zip(_gather(padded), num_rows)])


def _gather(tensor: Tensor) -> List[Tensor]:
    """Of all workers, which must have the same shape."""
    gathered = [torch.empty_like(tensor) for _ in range(torch.distributed.get_world_size())]
    torch.distributed.all_gather(gathered, tensor)
    return gathered
