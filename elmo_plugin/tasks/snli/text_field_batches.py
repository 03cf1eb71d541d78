"""Two batches of text as one."""

from allennlp.data import TextFieldTensors
from torch import Tensor


def concatenate_text_fields(first: TextFieldTensors, second: TextFieldTensors) -> TextFieldTensors:
    """
    One batch with the rows of `first`, then those of `second`. The shorter texts are padded.

    # Parameters

    first, second : `TextFieldTensors`
        Of the same indexers; every tensor is `(batch_size, timesteps, ...)`, the two may differ in any size.

    # Returns

    `TextFieldTensors` of the same indexers, every tensor `(both batch sizes, longest timesteps, ...)`.
    """
    return {
        indexer: {
            name: _concatenate(tensor, second[indexer][name]) for name, tensor in tensors.items()
        }
        for indexer, tensors in first.items()
    }


def _concatenate(first: Tensor, second: Tensor) -> Tensor:
    sizes = [max(pair) for pair in zip(first.shape[1:], second.shape[1:], strict=True)]
    # 0 is padding in what all of AllenNLP's indexers give, and False in masks.
    both = first.new_zeros(first.size(0) + second.size(0), *sizes)
    for start, tensor in ((0, first), (first.size(0), second)):
        region = both[start : start + tensor.size(0)]
        for dim, size in enumerate(tensor.shape[1:], start=1):
            region = region.narrow(dim, 0, size)
        region.copy_(tensor)
    return both
