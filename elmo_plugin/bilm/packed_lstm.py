"""The arithmetic of an LSTM layer with projection and clipping, forward and backward."""

import itertools
from typing import Any, List, NamedTuple, Optional, Tuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

sigmoid_backward = torch.ops.aten.sigmoid_backward  # gradient * y * (1 - y)
tanh_backward = torch.ops.aten.tanh_backward  # gradient * (1 - y ** 2)

# Without gradients, gates are made for about this many tokens at a time, so that memory does not grow with
# the length of a document: 128 MiB at 4 x 4096 gates.
TOKENS_PER_BLOCK = 2048


def run_packed_lstm(
    inputs: Tensor,
    weight: Tensor,
    bias: Tensor,
    projection: Optional[Tensor],
    state: Tensor,
    cell: Tensor,
    step_sizes: List[int],
    cell_clip: Optional[float],
    proj_clip: Optional[float],
) -> Tuple[Tensor, Tensor, Tensor]:
    """
    Run one layer in one direction: `c = clip(sigmoid(f) * c + sigmoid(i) * tanh(g))` and
    `h = clip((sigmoid(o) * tanh(c)) W_P)`.

    # Parameters

    inputs : `Tensor`
        `(num_tokens, input_dim)`, packed as `Packing` says.
    weight, bias : `Tensor`
        `(4 * cell_size, input_dim + state_dim)` and `(4 * cell_size,)`, gates in the order i, f, g, o.
    projection : `Tensor`, optional
        `(state_dim, cell_size)`. `None`: the state is as wide as the cell, and is not clipped.
    state, cell : `Tensor`
        `(num_sequences, state_dim)` and `(num_sequences, cell_size)` before the first step.
    step_sizes : `List[int]`
        Number of sequences at each step, never rising.
    cell_clip, proj_clip : `float`, optional
        Largest magnitudes; `None` does not clip.

    # Returns

    Outputs `(num_tokens, state_dim)`, and state and cell of every sequence after its last step.
    """
    tensors = (inputs, weight, bias, projection, state, cell)
    if torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors):
        return _PackedLSTM.apply(*tensors, step_sizes, cell_clip, proj_clip)
    outputs: List[Tensor] = []
    final_state, final_cell = state.clone(), cell.clone()
    start = 0
    for block_sizes in _blocks_of_steps(step_sizes):
        end, num_sequences = start + sum(block_sizes), block_sizes[0]
        trace, final_state[:num_sequences], final_cell[:num_sequences] = _forward(
            inputs[start:end],
            weight,
            bias,
            projection,
            final_state[:num_sequences],
            final_cell[:num_sequences],
            block_sizes,
            cell_clip,
            proj_clip,
        )
        outputs.append(trace.outputs)
        start = end
    return torch.cat(outputs), final_state, final_cell


class _Trace(NamedTuple):
    """What a forward pass computes for every token, and a backward pass needs."""

    gates: Tensor  # (num_tokens, 4 * cell_size), after sigmoid and tanh
    cells: Tensor  # (num_tokens, cell_size), clipped
    hidden: Tensor  # (num_tokens, cell_size), before the projection
    outputs: Tensor  # (num_tokens, state_dim); the same as hidden without projection


def _forward(
    inputs: Tensor,
    weight: Tensor,
    bias: Tensor,
    projection: Optional[Tensor],
    state: Tensor,
    cell: Tensor,
    step_sizes: List[int],
    cell_clip: Optional[float],
    proj_clip: Optional[float],
) -> Tuple[_Trace, Tensor, Tensor]:
    num_tokens, cell_size = inputs.size(0), cell.size(1)
    input_weight, state_weight = weight.split([inputs.size(1), state.size(1)], dim=1)
    # Inputs do not wait for states: one product for all steps.
    gates = torch.addmm(bias, inputs, input_weight.t())
    cells = inputs.new_empty(num_tokens, cell_size)
    hidden = inputs.new_empty(num_tokens, cell_size)
    outputs = hidden if projection is None else inputs.new_empty(num_tokens, state.size(1))
    final_state, final_cell = torch.empty_like(state), torch.empty_like(cell)
    start = 0
    for size in step_sizes:
        if size < state.size(0):
            final_state[size : state.size(0)] = state[size:]
            final_cell[size : state.size(0)] = cell[size:]
            state, cell = state[:size], cell[:size]
        rows = slice(start, start + size)
        start += size
        step_gates = gates[rows].addmm_(state, state_weight.t())  # (size, 4 * cell_size)
        i, f, g, o = step_gates.split(cell_size, dim=1)
        step_gates[:, : 2 * cell_size].sigmoid_()  # i and f lie side by side
        g.tanh_()
        o.sigmoid_()
        cell = torch.mul(f, cell, out=cells[rows]).addcmul_(i, g)
        if cell_clip is not None:
            cell.clamp_(-cell_clip, cell_clip)
        state = torch.tanh(cell, out=hidden[rows]).mul_(o)
        if projection is not None:
            state = torch.mm(state, projection.t(), out=outputs[rows])
            if proj_clip is not None:
                state.clamp_(-proj_clip, proj_clip)
    final_state[: state.size(0)] = state
    final_cell[: state.size(0)] = cell
    return _Trace(gates, cells, hidden, outputs), final_state, final_cell


class _PackedLSTM(torch.autograd.Function):
    """
    `_forward` with a backward pass of its own: a loop over time for what depends on the next step, and one
    product for each gradient of a weight after it, where autograd would make one for each step.
    """

    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> Tuple[Tensor, Tensor, Tensor]:
        inputs, weight, _, projection, state, cell, step_sizes, cell_clip, proj_clip = arguments
        trace, final_state, final_cell = _forward(*arguments)
        ctx.save_for_backward(inputs, weight, projection, state, cell, *trace)
        ctx.step_sizes = step_sizes
        ctx.cell_clip = cell_clip
        ctx.proj_clip = None if projection is None else proj_clip
        return trace.outputs, final_state, final_cell

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, output_gradient: Tensor, final_state_gradient: Tensor, final_cell_gradient: Tensor
    ) -> Tuple[Optional[Tensor], ...]:
        inputs, weight, projection, state, cell, *saved = ctx.saved_tensors
        gates, cells, hidden, outputs = saved
        input_weight, state_weight = weight.split([inputs.size(1), state.size(1)], dim=1)
        # Row by row these become the gradients of what left the projection, of the gates before their
        # non-linearities, and of state and cell of the previous step.
        output_gradient = output_gradient.clone()
        gate_gradients = torch.empty_like(gates)
        state_gradient, cell_gradient = final_state_gradient.clone(), final_cell_gradient.clone()
        starts = [0, *itertools.accumulate(ctx.step_sizes)]
        for step in reversed(range(len(ctx.step_sizes))):
            size = ctx.step_sizes[step]
            rows = slice(starts[step], starts[step + 1])
            step_gradient = output_gradient[rows].add_(state_gradient[:size])
            # What a clip holds does not move: |x| reaches the limit only there.
            if ctx.proj_clip is not None:
                step_gradient *= outputs[rows].abs() < ctx.proj_clip
            hidden_gradient = step_gradient
            if projection is not None:
                hidden_gradient = step_gradient @ projection  # (size, cell_size)
            i, f, g, o = gates[rows].chunk(4, dim=1)
            tanh_cell = torch.tanh(cells[rows])
            step_cell_gradient = cell_gradient[:size]
            step_cell_gradient += tanh_backward(hidden_gradient * o, tanh_cell)
            if ctx.cell_clip is not None:
                step_cell_gradient *= cells[rows].abs() < ctx.cell_clip
            previous_cell = cells[starts[step - 1] : starts[step - 1] + size] if step > 0 else cell
            i_gradient, f_gradient, g_gradient, o_gradient = gate_gradients[rows].chunk(4, dim=1)
            i_gradient.copy_(sigmoid_backward(step_cell_gradient * g, i))
            f_gradient.copy_(sigmoid_backward(step_cell_gradient * previous_cell, f))
            g_gradient.copy_(tanh_backward(step_cell_gradient * i, g))
            o_gradient.copy_(sigmoid_backward(hidden_gradient * tanh_cell, o))
            step_cell_gradient *= f
            state_gradient[:size] = gate_gradients[rows] @ state_weight
        # The states that each step read: (num_tokens, state_dim)
        previous_states = [state] + [
            outputs[start : start + size] for start, size in zip(starts, ctx.step_sizes[1:])
        ]
        read = torch.cat([inputs, torch.cat(previous_states)], dim=1)
        return (
            gate_gradients @ input_weight if ctx.needs_input_grad[0] else None,
            gate_gradients.t() @ read,
            gate_gradients.sum(dim=0),
            None if projection is None else output_gradient.t() @ hidden,
            state_gradient,
            cell_gradient,
            None,
            None,
            None,
        )


def _blocks_of_steps(step_sizes: List[int]) -> List[List[int]]:
    """Cut the steps into runs of about `TOKENS_PER_BLOCK` tokens."""
    blocks: List[List[int]] = []
    num_tokens = TOKENS_PER_BLOCK  # in the last block; full, so that the first step opens one
    for size in step_sizes:
        if num_tokens >= TOKENS_PER_BLOCK:
            blocks.append([])
            num_tokens = 0
        blocks[-1].append(size)
        num_tokens += size
    return blocks
