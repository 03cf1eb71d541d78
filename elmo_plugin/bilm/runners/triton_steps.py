"""The two halves of an LSTM step, compiled by Triton for GPUs."""

import math
from types import SimpleNamespace
from typing import Any, Callable, NamedTuple, Optional, Sequence

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

    Chosen without a GPU: programs enough for one in the original's shape, and machine code in which
    multiplications outnumber reads of shared memory and no register is spilt.
    """

    cells: int
    states: int
    most_rows: int
    num_stages: int

    def rows(self, num_rows: int) -> int:
        """Return the rows of a program: few different numbers, since each is compiled anew."""
        if num_rows == 1:
            return 1
        return min(self.most_rows, max(16, 1 << (num_rows - 1).bit_length()))


HIDDEN_BLOCKS = Blocks(cells=32, states=32, most_rows=64, num_stages=3)
# With more rows in each there would be too few programs for a GPU: a row has only 512 states.
STATE_BLOCKS = Blocks(cells=128, states=16, most_rows=16, num_stages=4)


def launcher(
    kernel: Any, blocks: Blocks, num_column_blocks: int, num_directions: int, *arguments: Any
) -> Callable[..., None]:
    """
    Return a function that launches a kernel, to be called with the number of rows and the other arguments
    that change from step to step. `arguments` are the others, up to the constants of `blocks`.
    """

    def launch(num_rows: int, *changing: int) -> None:
        rows = blocks.rows(num_rows)
        # Programs that read the same weights start one after the other.
        grid = (-(-num_rows // rows), num_column_blocks, num_directions)
        kernel[grid](
            num_rows,
            *changing,
            *arguments,
            BLOCK_ROWS=rows,
            BLOCK_CELLS=blocks.cells,
            BLOCK_STATES=blocks.states,
            num_warps=8 if rows == 64 else 4,
            num_stages=blocks.num_stages,
        )

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
    num_directions, _, num_cells = cell.shape
    return launcher(
        write_hidden,
        HIDDEN_BLOCKS,
        -(-num_cells // HIDDEN_BLOCKS.cells),
        num_directions,
        *(products, bias, state, cell, hidden, weights[0], weights[-1], *weights[0].stride()),
        *(products.stride(0), state.stride(0), cell.stride(0), hidden.stride(0)),
        *(math.inf if cell_clip is None else cell_clip, num_cells, state.size(2)),
    )


def state_launcher(
    hidden: Tensor,
    state: Tensor,
    outputs: Tensor,
    weights: Sequence[Tensor],
    proj_clip: Optional[float],
) -> Callable[..., None]:
    """Launch `write_state` with the number of rows, and the first row of `outputs`."""
    num_directions, _, num_states = state.shape
    return launcher(
        write_state,
        STATE_BLOCKS,
        -(-num_states // STATE_BLOCKS.states),
        num_directions,
        *(hidden, state, outputs, weights[0], weights[-1], *weights[0].stride()),
        *(hidden.stride(0), state.stride(0), outputs.stride(0)),
        *(math.inf if proj_clip is None else proj_clip, hidden.size(2), num_states),
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
    BLOCK_CELLS: tl.constexpr,
    BLOCK_STATES: tl.constexpr,
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
    cells = (tl.program_id(1) * BLOCK_CELLS + tl.arange(0, BLOCK_CELLS))[None, :]
    states = tl.arange(0, BLOCK_STATES)
    is_row, is_cell = rows < num_rows, cells < NUM_CELLS
    is_there = is_row & is_cell

    # (BLOCK_ROWS, BLOCK_STATES) and, of gate i, (BLOCK_STATES, BLOCK_CELLS)
    state_at = state + direction * state_stride + rows * NUM_STATES + states[None, :]
    weight_at = weight + states[:, None] * column_stride + cells * gate_stride
    to_next_gate = NUM_CELLS * gate_stride
    i = tl.full((BLOCK_ROWS, BLOCK_CELLS), 0.0, tl.float32)
    g = tl.full((BLOCK_ROWS, BLOCK_CELLS), 0.0, tl.float32)
    f = tl.full((BLOCK_ROWS, BLOCK_CELLS), 0.0, tl.float32)
    o = tl.full((BLOCK_ROWS, BLOCK_CELLS), 0.0, tl.float32)
    for start in range(0, NUM_STATES, BLOCK_STATES):
        is_state = states < NUM_STATES - start
        left = tl.load(state_at, is_row & is_state[None, :], 0.0).to(weight.dtype.element_ty)
        is_weight = is_state[:, None] & is_cell
        # "ieee": float32 is not rounded to TF32.
        i = tl.dot(left, tl.load(weight_at, is_weight, 0.0), i, input_precision="ieee")
        right = tl.load(weight_at + to_next_gate, is_weight, 0.0)
        g = tl.dot(left, right, g, input_precision="ieee")
        right = tl.load(weight_at + 2 * to_next_gate, is_weight, 0.0)
        f = tl.dot(left, right, f, input_precision="ieee")
        right = tl.load(weight_at + 3 * to_next_gate, is_weight, 0.0)
        o = tl.dot(left, right, o, input_precision="ieee")
        state_at += BLOCK_STATES
        weight_at += BLOCK_STATES * column_stride

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
    BLOCK_CELLS: tl.constexpr,
    BLOCK_STATES: tl.constexpr,
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
    states = (tl.program_id(1) * BLOCK_STATES + tl.arange(0, BLOCK_STATES))[None, :]
    cells = tl.arange(0, BLOCK_CELLS)
    is_row, is_state = rows < num_rows, states < NUM_STATES

    # (BLOCK_ROWS, BLOCK_CELLS) and (BLOCK_CELLS, BLOCK_STATES)
    hidden_at = hidden + direction * hidden_stride + rows * NUM_CELLS + cells[None, :]
    weight_at = weight + cells[:, None] * cell_weight_stride + states * state_weight_stride
    total = tl.full((BLOCK_ROWS, BLOCK_STATES), 0.0, tl.float32)
    for start in range(0, NUM_CELLS, BLOCK_CELLS):
        is_cell = cells < NUM_CELLS - start
        left = tl.load(hidden_at, is_row & is_cell[None, :], 0.0)
        right = tl.load(weight_at, is_cell[:, None] & is_state, 0.0)
        total = tl.dot(left, right, total, input_precision="ieee")
        hidden_at += BLOCK_CELLS
        weight_at += BLOCK_CELLS * cell_weight_stride

    total = tl.where(total > proj_clip, proj_clip, tl.where(total < -proj_clip, -proj_clip, total))
    is_there = is_row & is_state
    tl.store(state + direction * state_stride + rows * NUM_STATES + states, total, is_there)
    outputs_at = outputs + direction * outputs_stride + (first_output + rows) * NUM_STATES + states
    tl.store(outputs_at, total, is_there)
