"""The two halves of an LSTM step, compiled by Triton for GPUs."""

import math
from types import SimpleNamespace
from typing import Any, Callable, Dict, NamedTuple, Optional, Sequence

from torch import Tensor

try:
    import triton
    import triton.language as tl
except ImportError:
    # `--include-package` imports every module of the package, whatever is installed.
    triton = SimpleNamespace(jit=lambda **settings: lambda function: function)
    tl = SimpleNamespace(tensor=None, constexpr=None)

# Triton compiles a kernel for each set of its constants (`tl.constexpr`), and separately for other integers
# that are 1 or a multiple of 16: not for these, which change from step to step.
CHANGING = ("num_rows", "first_product", "first_output")


class Blocks(NamedTuple):
    """
    How a kernel is cut into programs, and those into turns of a loop, in powers of 2, as Triton needs them.

    Chosen on an H100 with the original's shape, among those whose shared memory fits into the 99 KiB of
    consumer GPUs.

    # Parameters

    columns : `int`
        Cells or states that a program computes.
    depth_bytes : `int`
        Of each row of weights, read in a turn of the loop.
    most_rows : `int`
        Sequences of a program, at most.
    num_stages : `int`
        Turns of the loop that are read ahead.
    """

    columns: int
    depth_bytes: int
    most_rows: int
    num_stages: int

    def rows(self, num_rows: int) -> int:
        """Return the rows of a program: few different numbers, since each is compiled anew."""
        return min(self.most_rows, max(FEWEST_ROWS, 1 << (num_rows - 1).bit_length()))


# The fewest rows of a product on tensor cores.
FEWEST_ROWS = 16

HIDDEN_BLOCKS = Blocks(columns=32, depth_bytes=128, most_rows=64, num_stages=3)
# With more rows in each there would be too few programs for a GPU: a row has only 512 states.
STATE_BLOCKS = Blocks(columns=32, depth_bytes=512, most_rows=16, num_stages=4)


def launcher(
    kernel: Any, blocks: Blocks, num_columns: int, weights: Sequence[Tensor], *arguments: Any
) -> Callable[..., None]:
    """
    Return a function that launches a kernel, to be called with the number of rows and the other arguments
    that change from step to step.

    # Parameters

    num_columns : `int`
        Cells or states that the kernel computes.
    weights : `Sequence[Tensor]`
        Of the directions.
    arguments : `Any`
        All others of the kernel, up to the constants of `blocks`.
    """
    num_column_blocks = -(-num_columns // blocks.columns)
    depth = blocks.depth_bytes // weights[0].element_size()
    # By rows of a program. To look a compiled function up by its arguments takes longer than to launch it.
    compiled: Dict[int, Any] = {}

    def launch(num_rows: int, *changing: int) -> None:
        rows = blocks.rows(num_rows)
        # Programs that read the same weights start one after the other.
        grid = (-(-num_rows // rows), num_column_blocks, len(weights))
        values = (num_rows, *changing, *arguments, rows, blocks.columns, depth)
        if compiled.get(rows) is None:
            # `None` in Triton's interpreter.
            compiled[rows] = kernel[grid](*values, num_warps=4, num_stages=blocks.num_stages)
        else:
            compiled[rows][grid](*values)

    return launch


def hidden_launcher(
    products: Tensor,
    bias: Tensor,
    state: Tensor,
    cell: Tensor,
    hidden: Tensor,
    weights: Sequence[Tensor],
    cell_clip: Optional[float],
) -> Callable[..., None]:
    """Launch `write_hidden` with the number of rows, and the first row of `products` and `hidden`."""
    return launcher(
        write_hidden,
        HIDDEN_BLOCKS,
        cell.size(2),
        weights,
        *(products, bias, state, cell, hidden, weights[0], weights[-1], *weights[0].stride()),
        *(products.stride(0), state.stride(0), cell.stride(0), hidden.stride(0)),
        *(math.inf if cell_clip is None else cell_clip, cell.size(2), state.size(2)),
    )


def state_launcher(
    hidden: Tensor,
    state: Tensor,
    outputs: Tensor,
    weights: Sequence[Tensor],
    proj_clip: Optional[float],
) -> Callable[..., None]:
    """Launch `write_state` with the number of rows, and the first row of `outputs`."""
    return launcher(
        write_state,
        STATE_BLOCKS,
        state.size(2),
        weights,
        *(hidden, state, outputs, weights[0], weights[-1], *weights[0].stride()),
        *(hidden.stride(0), state.stride(0), outputs.stride(0)),
        *(math.inf if proj_clip is None else proj_clip, hidden.size(2), state.size(2)),
    )


@triton.jit(do_not_specialize=CHANGING)
def write_hidden(
    num_rows: tl.tensor,
    first_product: tl.tensor,
    first_output: tl.tensor,
    products: tl.tensor,
    bias: tl.tensor,
    state: tl.tensor,
    cell: tl.tensor,
    hidden: tl.tensor,
    weight_0: tl.tensor,
    weight_1: tl.tensor,
    gate_stride: tl.tensor,
    column_stride: tl.tensor,
    products_stride: tl.tensor,
    state_stride: tl.tensor,
    cell_stride: tl.tensor,
    hidden_stride: tl.tensor,
    cell_clip: tl.tensor,
    NUM_CELLS: tl.constexpr,
    NUM_STATES: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLUMNS: tl.constexpr,
    BLOCK_DEPTH: tl.constexpr,
) -> None:
    """
    `c = clip(sigmoid(f) * c + sigmoid(i) * tanh(g))` and `sigmoid(o) * tanh(c)`, each program for some rows
    and cells of one direction. The gates, `products + bias + state @ weight.t()`, stay in registers.

    # Parameters

    num_rows
        Sequences of this step.
    first_product, first_output
        The rows of `products` and `hidden` that belong to the first of them.
    products
        `(num_directions, ..., 4 * NUM_CELLS)`: of inputs and their weights, gates in the order i, g, f, o.
    bias, state
        `(num_directions, 4 * NUM_CELLS)` and `(num_directions, ..., NUM_STATES)`.
    cell, hidden
        `(num_directions, ..., NUM_CELLS)`, written to.
    weight_0, weight_1
        Of the directions, `(4 * NUM_CELLS, NUM_STATES)`, with the strides `gate_stride` and `column_stride`.
        State rows are cast to their type.
    products_stride, state_stride, cell_stride, hidden_stride
        From one direction to the next.
    """
    direction = tl.program_id(2).to(tl.int64)
    weight = weight_0
    if direction == 1:
        weight = weight_1
    rows = (tl.program_id(0) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)).to(tl.int64)[:, None]
    cells = (tl.program_id(1) * BLOCK_COLUMNS + tl.arange(0, BLOCK_COLUMNS))[None, :]
    states = tl.arange(0, BLOCK_DEPTH)
    is_row, is_cell = rows < num_rows, cells < NUM_CELLS
    is_there = is_row & is_cell

    # (BLOCK_ROWS, BLOCK_DEPTH) and, of gate i, (BLOCK_DEPTH, BLOCK_COLUMNS)
    state_at = state + direction * state_stride + rows * NUM_STATES + states[None, :]
    weight_at = weight + states[:, None] * column_stride + cells * gate_stride
    to_next_gate = NUM_CELLS * gate_stride
    i = tl.full((BLOCK_ROWS, BLOCK_COLUMNS), 0.0, tl.float32)
    g = tl.full((BLOCK_ROWS, BLOCK_COLUMNS), 0.0, tl.float32)
    f = tl.full((BLOCK_ROWS, BLOCK_COLUMNS), 0.0, tl.float32)
    o = tl.full((BLOCK_ROWS, BLOCK_COLUMNS), 0.0, tl.float32)
    for start in range(0, NUM_STATES, BLOCK_DEPTH):
        is_state = states < NUM_STATES - start
        left = tl.load(state_at, is_row & is_state[None, :], 0.0).to(weight.dtype.element_ty)
        is_weight = is_state[:, None] & is_cell
        # "tf32x3": float32 is multiplied on tensor cores as three products of TF32, which add up to it. On an
        # H100 this is nearer to float64 than multiplications outside of them, and several times as fast.
        i = tl.dot(left, tl.load(weight_at, is_weight, 0.0), i, input_precision="tf32x3")
        right = tl.load(weight_at + to_next_gate, is_weight, 0.0)
        g = tl.dot(left, right, g, input_precision="tf32x3")
        right = tl.load(weight_at + 2 * to_next_gate, is_weight, 0.0)
        f = tl.dot(left, right, f, input_precision="tf32x3")
        right = tl.load(weight_at + 3 * to_next_gate, is_weight, 0.0)
        o = tl.dot(left, right, o, input_precision="tf32x3")
        state_at += BLOCK_DEPTH
        weight_at += BLOCK_DEPTH * column_stride

    bias_at = bias + direction * 4 * NUM_CELLS + cells
    products_at = products + direction * products_stride
    products_at += (first_product + rows) * 4 * NUM_CELLS + cells
    i += tl.load(products_at, is_there, 0.0) + tl.load(bias_at, is_cell, 0.0)
    products_at += NUM_CELLS
    bias_at += NUM_CELLS
    g += tl.load(products_at, is_there, 0.0) + tl.load(bias_at, is_cell, 0.0)
    products_at += NUM_CELLS
    bias_at += NUM_CELLS
    f += tl.load(products_at, is_there, 0.0) + tl.load(bias_at, is_cell, 0.0)
    products_at += NUM_CELLS
    bias_at += NUM_CELLS
    o += tl.load(products_at, is_there, 0.0) + tl.load(bias_at, is_cell, 0.0)

    # sigmoid(x) = 1 / (1 + exp(-x)), and tanh(x) = 2 sigmoid(2 x) - 1.
    cell_at = cell + direction * cell_stride + rows * NUM_CELLS + cells
    c = tl.load(cell_at, is_there, 0.0) / (1 + tl.exp(-f))
    c += (2 / (1 + tl.exp(-2 * g)) - 1) / (1 + tl.exp(-i))
    # Not by minimum and maximum, which replace NaN.
    c = tl.where(c > cell_clip, cell_clip, tl.where(c < -cell_clip, -cell_clip, c))
    tl.store(cell_at, c, is_there)
    h = (2 / (1 + tl.exp(-2 * c)) - 1) / (1 + tl.exp(-o))
    hidden_at = hidden + direction * hidden_stride + (first_output + rows) * NUM_CELLS + cells
    tl.store(hidden_at, h.to(hidden.dtype.element_ty), is_there)


@triton.jit(do_not_specialize=CHANGING)
def write_state(
    num_rows: tl.tensor,
    first_output: tl.tensor,
    hidden: tl.tensor,
    state: tl.tensor,
    outputs: tl.tensor,
    weight_0: tl.tensor,
    weight_1: tl.tensor,
    state_weight_stride: tl.tensor,
    cell_weight_stride: tl.tensor,
    hidden_stride: tl.tensor,
    state_stride: tl.tensor,
    outputs_stride: tl.tensor,
    proj_clip: tl.tensor,
    NUM_CELLS: tl.constexpr,
    NUM_STATES: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLUMNS: tl.constexpr,
    BLOCK_DEPTH: tl.constexpr,
) -> None:
    """
    `clip(hidden @ weight.t())`, written to `state` and to `outputs`, each program for some rows and columns
    of one direction.

    # Parameters

    num_rows
        Sequences of this step.
    first_output
        The row of `outputs` that belongs to the first of them.
    hidden
        `(num_directions, ..., NUM_CELLS)`, in the type of the weights.
    state, outputs
        `(num_directions, ..., NUM_STATES)`, written to.
    weight_0, weight_1
        Of the directions, `(NUM_STATES, NUM_CELLS)`, with these two strides.
    hidden_stride, state_stride, outputs_stride
        From one direction to the next.
    """
    direction = tl.program_id(2).to(tl.int64)
    weight = weight_0
    if direction == 1:
        weight = weight_1
    rows = (tl.program_id(0) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)).to(tl.int64)[:, None]
    states = (tl.program_id(1) * BLOCK_COLUMNS + tl.arange(0, BLOCK_COLUMNS))[None, :]
    cells = tl.arange(0, BLOCK_DEPTH)
    is_row, is_state = rows < num_rows, states < NUM_STATES

    # (BLOCK_ROWS, BLOCK_DEPTH) and (BLOCK_DEPTH, BLOCK_COLUMNS)
    hidden_at = hidden + direction * hidden_stride + rows * NUM_CELLS + cells[None, :]
    weight_at = weight + cells[:, None] * cell_weight_stride + states * state_weight_stride
    total = tl.full((BLOCK_ROWS, BLOCK_COLUMNS), 0.0, tl.float32)
    for start in range(0, NUM_CELLS, BLOCK_DEPTH):
        is_cell = cells < NUM_CELLS - start
        left = tl.load(hidden_at, is_row & is_cell[None, :], 0.0)
        right = tl.load(weight_at, is_cell[:, None] & is_state, 0.0)
        total = tl.dot(left, right, total, input_precision="tf32x3")
        hidden_at += BLOCK_DEPTH
        weight_at += BLOCK_DEPTH * cell_weight_stride

    total = tl.where(total > proj_clip, proj_clip, tl.where(total < -proj_clip, -proj_clip, total))
    is_there = is_row & is_state
    tl.store(state + direction * state_stride + rows * NUM_STATES + states, total, is_there)
    outputs_at = outputs + direction * outputs_stride + (first_output + rows) * NUM_STATES + states
    tl.store(outputs_at, total, is_there)
