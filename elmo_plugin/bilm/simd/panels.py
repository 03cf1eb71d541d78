"""Matrices in the order in which products.h reads them, and their rounding to 8-bit integers."""

import ctypes
import math
from dataclasses import dataclass
from typing import Optional, Sequence, Tuple

import torch
from torch import Tensor

from elmo_plugin.bilm.simd.library import addresses, c_fields, library_of

# About the number of weights that are packed together: 512 KiB in float32.
WEIGHTS_PER_BLOCK = 2**17


@dataclass(frozen=True)
class PanelMatrix:
    """
    A matrix in panels, and the bias that is added to products with it. It shares no memory with the weights
    that it was made from.

    # Parameters

    unit : `str`
        The vector unit that it was packed for.
    panels : `Tensor`
        `(num_panels, depth, panel_columns)`, in the order of the unit.
    bias : `Tensor`, optional
        `(num_panels * panel_columns,)`
    scales, sums : `Tensor`, optional
        `(num_panels * panel_columns,)` each, of int8: the scale of a column, and the sum of its integers.
    """

    unit: str
    panels: Tensor
    bias: Optional[Tensor] = None
    scales: Optional[Tensor] = None
    sums: Optional[Tensor] = None


def c_matrix(matrix: Optional[PanelMatrix]) -> "CMatrix":
    """
    Return what C++ reads, for one call: it does not keep the matrix alive, and `multiprocessing` moves the
    tensors that it sends into shared memory.
    """
    if matrix is None:
        return CMatrix()
    panels, columns = matrix.panels, (matrix.panels.size(0) * matrix.panels.size(2),)
    return CMatrix(
        *addresses((panels, panels.shape), dtype=panels.dtype),
        *addresses((matrix.bias, columns), (matrix.scales, columns)),
        *addresses((matrix.sums, columns), dtype=torch.int32),
        panels.size(1),
    )


class CMatrix(ctypes.Structure):
    _fields_ = [*c_fields(ctypes.c_void_p, "panels bias scales sums"), ("depth", ctypes.c_int64)]


def in_panels(
    weights: Sequence[Tensor], precision: str, unit: str, biases: Sequence[Tensor] = ()
) -> PanelMatrix:
    """
    Pack a matrix, a block at a time: a copy is never in memory as a whole, except as panels.

    # Parameters

    weights, biases : `Sequence[Tensor]`
        `(num_outputs, depth)` and `(num_outputs,)`, of each group of outputs. A panel holds the same number
        of outputs of each group, next to each other; the last panel is padded with zeros.
    """
    library = library_of(unit)
    panel_columns, strip_columns = library.panel_columns(), library.strip_columns()
    weights, dtype = [weight.detach() for weight in weights], getattr(torch, precision)
    num_outputs, depth = weights[0].shape
    # Number of adjacent weights of one output that are multiplied together.
    neighbors = 4 // dtype.itemsize
    extra_depth = -depth % library.depth_multiple(dtype.itemsize)
    per_panel = panel_columns // len(weights)
    shape = math.ceil(num_outputs / per_panel), depth + extra_depth, panel_columns
    panels = weights[0].new_empty(shape, dtype=dtype)
    panels_per_block = math.ceil(WEIGHTS_PER_BLOCK / panels[0].numel())
    scales = weights[0].new_empty(shape[0] * panel_columns)
    sums = torch.empty_like(scales, dtype=torch.int32)
    columns_per_block = panels_per_block * panel_columns
    for block, block_panels, block_scales, block_sums in zip(
        zip(*(weight.split(panels_per_block * per_panel) for weight in weights)),
        panels.split(panels_per_block),
        scales.split(columns_per_block),
        sums.split(columns_per_block),
    ):
        columns = _in_columns(block, panel_columns, extra_depth)
        if precision == "int8":
            columns, block_scales[:] = quantized(columns, largest_of_pairs(columns))
        columns = columns.to(dtype)
        if precision == "int8":
            torch.sum(columns, dim=1, dtype=torch.int32, out=block_sums)
        # As they are read: of the columns of a strip the first neighbors, then the next ...
        strips = columns.view(-1, strip_columns, shape[1] // neighbors, neighbors).transpose(1, 2)
        block_panels.view(strips.shape).copy_(strips)
    bias = None
    if biases:
        vectors = [one.detach().unsqueeze(1) for one in biases]
        bias = _in_columns(vectors, panel_columns).squeeze(1)
    if precision != "int8":
        return PanelMatrix(unit, panels, bias)
    return PanelMatrix(unit, panels, bias, scales, sums)


def _in_columns(weights: Sequence[Tensor], panel_columns: int, extra_depth: int = 0) -> Tensor:
    """Return a copy of the outputs in the order of panels, `(num_panels * panel_columns, depth)`."""
    per_panel = panel_columns // len(weights)
    padding = 0, extra_depth, 0, -len(weights[0]) % per_panel
    if any(padding):
        weights = [torch.nn.functional.pad(weight, padding) for weight in weights]
    panels = [weight.unflatten(0, (-1, per_panel)) for weight in weights]
    return torch.stack(panels, dim=1).flatten(0, 2)


def quantized(rows: Tensor, largest: Tensor) -> Tuple[Tensor, Tensor]:
    """
    Return integers, still as floating-point numbers, and the scale of each row, `(num_rows,)`, such that
    `integers * scales.unsqueeze(1)` is near `rows`, and 127 stands for `largest`, `(num_rows,)`. The
    scale of a row with NaN or infinities is NaN, so that products with it are NaN.
    """
    # As products.h divides: `127 / largest` of torch is `127 * (1 / largest)`, which rounds twice.
    factors = torch.full_like(largest, 127) / largest
    # Infinite where all values are zeros, or nearly so.
    factors = torch.where(factors.isinf(), 0.0, factors)
    scales = torch.where(largest.isinf(), torch.nan, largest / 127)
    return (rows * factors.unsqueeze(1)).round_(), scales


def largest_of_pairs(weight: Tensor) -> Tensor:
    """
    Return for each row of `weight` its largest magnitude, `(num_rows,)`, where the neighbors 0 and 1, 2 and
    3, ... count together if they have the same sign. Scaled to 127, two neighboring products with integers
    of up to 255 fit into 16 bits, which is how processors without better instructions add them.
    """
    if weight.size(1) % 2:
        weight = torch.nn.functional.pad(weight, (0, 1))
    same_sign = weight[:, ::2] + weight[:, 1::2]
    # The magnitudes themselves would be another copy.
    magnitudes = [one.amax(dim=1).maximum(-one.amin(dim=1)) for one in (weight, same_sign)]
    return torch.maximum(*magnitudes)
