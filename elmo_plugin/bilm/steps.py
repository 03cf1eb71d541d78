"""The steps of an LSTM over packed sequences, in operations of torch."""

from dataclasses import dataclass
from typing import Any, Callable, Iterator, List, NamedTuple, Optional, Tuple

import torch
from torch import Tensor

# State and memory cell of each sequence.
State = Tuple[Tensor, Tensor]

# Gates are made for about this many tokens at a time, so that without gradients memory does not grow with
# the length of a document: 128 MiB at 4 x 4096 gates.
TOKENS_PER_BLOCK = 2048


class CellOptions(NamedTuple):
    """What a step has beside the weights: the largest magnitudes of cell and state, `None` for no limit."""

    cell_clip: Optional[float]
    proj_clip: Optional[float]


@dataclass(frozen=True)
class LSTMTensors:
    """
    The weights of an LSTM layer.

    # Parameters

    weight : `Tensor`
        `(4 * cell_size, input_dim + state_dim)`, of the gates i, g, f, o.
    bias : `Tensor`
        `(4 * cell_size,)`, with what is added to the forget gate.
    projection : `Tensor`, optional
        `(state_dim, cell_size)`; `None`: the state is as wide as the cell, and is not clipped.
    options : `CellOptions`
    """

    weight: Tensor
    bias: Tensor
    projection: Optional[Tensor]
    options: CellOptions

    @property
    def cell_size(self) -> int:
        """Width of the memory cell."""
        return self.weight.size(0) // 4

    @property
    def state_dim(self) -> int:
        """Width of the state."""
        return self.cell_size if self.projection is None else self.projection.size(0)

    @property
    def input_dim(self) -> int:
        """Width of the inputs."""
        return self.weight.size(1) - self.state_dim

    def matrices(self) -> Iterator[Tensor]:
        """Yield the weights for inputs, those for states, and the projection, if there is one."""
        yield self.weight[:, : self.input_dim]
        yield self.weight[:, self.input_dim :]
        if self.projection is not None:
            yield self.projection


class LayerInput(NamedTuple):
    """
    The inputs of a layer in one direction. No tensor of it is written to.

    # Parameters

    inputs : `Tensor`
        `(num_tokens, input_dim)`, packed, see `Packing`.
    step_sizes : `List[int]`
        Number of sequences at each step, never rising.
    state, cell : `Tensor`
        `(num_sequences, state_dim)` and `(num_sequences, cell_size)` before the first step.
    """

    inputs: Tensor
    step_sizes: List[int]
    state: Tensor
    cell: Tensor


class LayerOutput(NamedTuple):
    """
    The results of a layer in one direction.

    # Parameters

    outputs : `Tensor`
        `(num_tokens, state_dim)`, packed like the inputs.
    state, cell : `Tensor`
        Of every sequence after its last step.
    """

    outputs: Tensor
    state: Tensor
    cell: Tensor


# Runs both directions of a layer, forward first.
RunLayer = Callable[[List[LayerInput]], List[LayerOutput]]

# Multiplies rows, `(num_rows, depth)`, by a matrix: `rows @ weight.t()`.
Product = Callable[[Tensor], Tensor]


class PreparedLayer(NamedTuple):
    """
    A layer with each matrix in the form in which a runner multiplies by it, `None` for no projection; `bias`
    and `options` as in `LSTMTensors`.
    """

    for_inputs: Any
    for_states: Any
    projection: Any
    bias: Tensor
    options: CellOptions

    @classmethod
    def of(cls, layer: LSTMTensors, prepare: Callable[[Tensor], Any]) -> "PreparedLayer":
        """Prepare each matrix of a layer, and release it before the next one is requested."""
        for_inputs, for_states, *projection = map(prepare, layer.matrices())
        projected = projection[0] if projection else None
        return cls(for_inputs, for_states, projected, layer.bias, layer.options)


def lstm_step(layer: PreparedLayer, gates: Tensor, state: Tensor, cell: Tensor) -> State:
    """
    Return state and memory cell of sequences after a step.

    Three other files have the same arithmetic, and change with it: `lstm.h` and its backward pass
    `lstm_backward.h` in C++, and `triton_steps.py`. Tests compare `BiLM` with `tests/bilm/slow_bilm.py`, its
    gradients with AllenNLP's, and these files with each other.

    # Parameters

    layer : `PreparedLayer`
        Its matrices are each a `Product`.
    gates : `Tensor`
        What the inputs of the step add to the gates, with the bias, `(..., 4 * cell_size)`. The bias has the
        1 of the forget gate, see `ProjectedLSTM.tensors`.
    state, cell : `Tensor`
        Those before the step, `(..., projection_dim)` and `(..., cell_size)`.
    """
    i, g, f, o = (gates + layer.for_states(state)).chunk(4, dim=-1)
    cell = torch.sigmoid(f) * cell + torch.sigmoid(i) * torch.tanh(g)
    cell_clip, proj_clip = layer.options
    if cell_clip is not None:
        cell = cell.clamp(-cell_clip, cell_clip)
    state = torch.sigmoid(o) * torch.tanh(cell)
    if layer.projection is not None:
        state = layer.projection(state).to(cell)
        if proj_clip is not None:
            state = state.clamp(-proj_clip, proj_clip)
    return state, cell


def run_loop(layer: PreparedLayer, given: LayerInput) -> LayerOutput:
    """Run a layer, whose matrices are each a `Product`, in one direction. Autograd follows it."""
    state, cell = given.state, given.cell
    outputs: List[Tensor] = []
    # States of the sequences that have ended, the shortest first.
    final_states: List[State] = []
    start = 0
    for block_sizes in blocks_of_steps(given.step_sizes, TOKENS_PER_BLOCK):
        # Inputs do not wait for states: one product for all steps of the block.
        num_tokens = sum(block_sizes)
        block_gates = layer.for_inputs(given.inputs[start : start + num_tokens]) + layer.bias
        start += num_tokens
        for size, gates in zip(block_sizes, block_gates.split(block_sizes)):
            if size < len(state):
                final_states.append((state[size:], cell[size:]))
                state, cell = state[:size], cell[:size]
            state, cell = lstm_step(layer, gates, state, cell)
            outputs.append(state)
    final_states.append((state, cell))
    states, cells = zip(*reversed(final_states))
    return LayerOutput(torch.cat(outputs), torch.cat(states), torch.cat(cells))


def blocks_of_steps(step_sizes: List[int], tokens_per_block: int) -> List[List[int]]:
    """Cut the steps into runs of about `tokens_per_block` tokens."""
    blocks: List[List[int]] = []
    num_tokens = tokens_per_block  # in the last block; full, so that the first step opens one
    for size in step_sizes:
        if num_tokens >= tokens_per_block:
            blocks.append([])
            num_tokens = 0
        blocks[-1].append(size)
        num_tokens += size
    return blocks
