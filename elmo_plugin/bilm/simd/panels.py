"""Matrices in the order in which products.h reads them, and their rounding to 8-bit integers."""

import ctypes
import math
from dataclasses import dataclass
from typing import Any, Dict, Optional, Tuple

import torch
from torch import Tensor

from elmo_plugin.bilm.simd.library import addresses, c_fields, library_of

TYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "int8": torch.int8}


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
    """Return what C++ reads. It does not keep the matrix alive."""
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


class WithStruct:
    """Packed weights whose cached property `struct` has addresses of this process, and so is not pickled."""

    def __getstate__(self) -> Dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "struct"}


def in_panels(
    weight: Tensor, precision: str, unit: str, bias: Optional[Tensor] = None
) -> PanelMatrix:
    """
    Pack a matrix.

    # Parameters

    weight, bias : `Tensor`
        `(groups, num_outputs, depth)` and `(groups, num_outputs)`. A panel holds the same number of outputs
        of each group, next to each other; the last panel is padded with zeros.
    """
    weight, dtype, library = weight.detach(), TYPES[precision], library_of(unit)
    panel_columns, tile_columns = library.panel_columns(), library.tile_columns()
    # Of one output, so many neighbours are multiplied together.
    neighbours = 4 // dtype.itemsize
    extra_depth = -weight.size(2) % library.depth_multiple(dtype.itemsize)
    columns = _in_columns(weight, panel_columns, extra_depth)
    scales = sums = None
    if precision == "int8":
        columns, scales = quantized(columns, largest_of_pairs(columns))
    columns = columns.to(dtype)
    if precision == "int8":
        sums = columns.sum(dim=1, dtype=torch.int32)
    # As they are read: of the columns of a tile the first neighbours, then the next ...
    tiles = columns.view(-1, tile_columns, columns.size(1) // neighbours, neighbours)
    panels = tiles.transpose(1, 2).clone(memory_format=torch.contiguous_format)
    if bias is not None:
        bias = _in_columns(bias.detach().unsqueeze(2), panel_columns).squeeze(1)
    panels = panels.view(-1, columns.size(1), panel_columns)
    return PanelMatrix(unit, panels, bias, scales, sums)


def _in_columns(weight: Tensor, panel_columns: int, extra_depth: int = 0) -> Tensor:
    """Return the outputs of `weight` in the order of panels, `(num_panels * panel_columns, depth)`."""
    groups, num_outputs, depth = weight.shape
    per_panel = panel_columns // groups
    num_panels = math.ceil(num_outputs / per_panel)
    padded = weight.new_zeros(groups, num_panels * per_panel, depth + extra_depth)
    padded[:, :num_outputs, :depth] = weight
    return padded.unflatten(1, (num_panels, per_panel)).transpose(0, 1).flatten(0, 2)


def quantized(rows: Tensor, largest: Tensor) -> Tuple[Tensor, Tensor]:
    """
    Return integers, still as floating-point numbers, and the scale of each row, `(num_rows,)`, such that
    `integers * scales.unsqueeze(1)` is near `rows`, and 127 stands for `largest`, `(num_rows,)`. Rows with
    NaN or infinities have neither: products with them are NaN.
    """
    # As products.h divides: `127 / largest` of torch is `127 * (1 / largest)`, which rounds twice.
    factors = torch.full_like(largest, 127) / largest
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
