"""Weights as what the loop over time multiplies by, once for each kind of arithmetic."""

from abc import ABC, abstractmethod
from typing import Optional, Tuple

import torch
from torch import Tensor


class Factor(ABC):
    """A matrix `W`, `(output_dim, input_dim)`, that rows are multiplied by: `rows @ W.t()`."""

    @abstractmethod
    def product(self, rows: Tensor, out: Optional[Tensor] = None) -> Tensor:
        """`rows @ W.t()`, `(num_rows, output_dim)`, in the type of `rows`."""

    @abstractmethod
    def add_product(self, total: Tensor, rows: Tensor) -> Tensor:
        """`total += rows @ W.t()`."""


class PlainFactor(Factor):
    """
    A matrix as it is.

    # Parameters

    weight : `Tensor`
        `(output_dim, input_dim)`. Rows are lowered to its type, and products made in it.
    """

    def __init__(self, weight: Tensor) -> None:
        self._transposed = weight.t()

    def product(self, rows: Tensor, out: Optional[Tensor] = None) -> Tensor:
        return product(rows, self._transposed, out)

    def add_product(self, total: Tensor, rows: Tensor) -> Tensor:
        return add_product(total, rows, self._transposed)


class QuantizedFactor(Factor):
    """
    A matrix of 8-bit integers, each of its rows with a scale of its own, and so each row that it multiplies.

    Integers are held and multiplied as float32, which is exact for up to 1,040 of them in a sum, and slow:
    this is what faster kernels are measured by.

    # Parameters

    weight : `Tensor`
        `(output_dim, input_dim)`, to be rounded.
    """

    def __init__(self, weight: Tensor) -> None:
        integers, self._scales = quantized(weight, largest_of_pairs(weight))
        self._transposed = integers.t()

    def product(self, rows: Tensor, out: Optional[Tensor] = None) -> Tensor:
        integers, scales = quantized(rows, rows.abs().amax(dim=1))
        result = torch.mm(integers, self._transposed, out=out)
        return result.mul_(scales.unsqueeze(1)).mul_(self._scales)

    def add_product(self, total: Tensor, rows: Tensor) -> Tensor:
        return total.add_(self.product(rows))


def quantized(rows: Tensor, largest: Tensor) -> Tuple[Tensor, Tensor]:
    """
    Return integers, still as floating-point numbers, and the scale of each row, `(num_rows,)`, such that
    `integers * scales.unsqueeze(1)` is near `rows`, and 127 stands for `largest`, `(num_rows,)`. Rows with
    NaN or infinities have neither: products with them are NaN.
    """
    factors = 127 / largest
    # Infinite where all values are zeros, or nearly so.
    factors = torch.where(factors.isinf(), 0.0, factors)
    scales = torch.where(largest.isinf(), torch.nan, largest / 127)
    return (rows * factors.unsqueeze(1)).round_(), scales


def largest_of_pairs(weight: Tensor) -> Tensor:
    """
    Return for each row of `weight` its largest magnitude, `(num_rows,)`, where the neighbours 0 and 1, 2 and
    3, ... count together if they have the same sign. Scaled to 127, two neighbouring products with integers
    of up to 255 fit into 16 bits, which is how processors without better instructions add them.
    """
    pairs = torch.nn.functional.pad(weight, (0, weight.size(1) % 2)).unflatten(1, (-1, 2))
    same_sign = pairs.sum(dim=2).abs()
    return torch.maximum(pairs.abs().amax(dim=(1, 2)), same_sign.amax(dim=1))


def product(left: Tensor, lowered_right: Tensor, out: Optional[Tensor] = None) -> Tensor:
    """`left @ lowered_right` with both in the type of the second, in the type of the first."""
    if left.dtype == lowered_right.dtype:
        return torch.mm(left, lowered_right, out=out)
    result = torch.mm(left.to(lowered_right.dtype), lowered_right)
    return result.to(left.dtype) if out is None else out.copy_(result)


def add_product(total: Tensor, left: Tensor, lowered_right: Tensor) -> Tensor:
    """`total += left @ lowered_right` with both in the type of the last."""
    if total.dtype == lowered_right.dtype:
        return total.addmm_(left, lowered_right)
    return total.add_(torch.mm(left.to(lowered_right.dtype), lowered_right))
