"""One layer of one direction: an LSTM with clipped cells and a clipped, projected output."""

from typing import List, Optional, Tuple

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.nn.functional import linear

# Input products are made for this many tokens at a time: enough for a fast matrix product, and bounded
# memory (128 MiB at 4 x 4096 gates) however long a document is.
TOKENS_PER_PRODUCT = 2048

State = Tuple[Tensor, Tensor]


class ProjectedLSTM(torch.nn.Module):
    """
    An LSTM layer with projection and clipping, over packed sequences, in bilm-tf's arithmetic:

    `c = clip(sigmoid(f + 1) * c + sigmoid(i) * tanh(j))` and `h = clip((sigmoid(o) * tanh(c)) W_P)`.

    This is the reference loop. It knows no direction: a backward layer is given reversed sequences.

    # Parameters

    input_dim : `int`
        Width of the inputs.
    cell_size : `int`
        Width of the memory cell.
    projection_dim : `int`
        Width of the state. Equal to `cell_size`: no projection and no `proj_clip`, as in bilm-tf.
    cell_clip, proj_clip : `float`, optional
        Largest magnitude of memory cell and state; `None` does not clip.
    """

    def __init__(
        self,
        input_dim: int,
        cell_size: int,
        projection_dim: int,
        cell_clip: Optional[float] = None,
        proj_clip: Optional[float] = None,
    ) -> None:
        super().__init__()
        self.input_dim = input_dim
        self.cell_size = cell_size
        self.projection_dim = projection_dim
        self.cell_clip = cell_clip
        self.proj_clip = proj_clip
        # Gates in torch's order i, f, g, o; columns: input first, then the previous state.
        self.weight = Parameter(torch.empty(4 * cell_size, input_dim + projection_dim))
        self.bias = Parameter(torch.empty(4 * cell_size))
        self.projection: Optional[Parameter] = None
        if cell_size != projection_dim:
            self.projection = Parameter(torch.empty(projection_dim, cell_size))
        # Added to the bias at run time, as TensorFlow does, so that the stored bias is the file's.
        forget_bias = torch.zeros(4 * cell_size)
        forget_bias[cell_size : 2 * cell_size] = 1.0
        self.register_buffer("forget_bias", forget_bias, persistent=False)
        self.forget_bias: Tensor
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw TensorFlow's default initial values: Glorot uniform, biases 0."""
        # One matrix in TensorFlow, so one fan-in and fan-out for inputs and states together.
        torch.nn.init.xavier_uniform_(self.weight)
        torch.nn.init.zeros_(self.bias)
        if self.projection is not None:
            torch.nn.init.xavier_uniform_(self.projection)

    def forward(
        self, inputs: Tensor, step_sizes: List[int], initial_state: Optional[State] = None
    ) -> Tuple[Tensor, State]:
        """
        # Parameters

        inputs : `Tensor`
            `(num_tokens, input_dim)`, packed as `Packing` says.
        step_sizes : `List[int]`
            Number of sequences at each step, never rising.
        initial_state : `State`, optional
            State `(num_sequences, projection_dim)` and memory cell `(num_sequences, cell_size)` before
            the first step; zeros if not given.

        # Returns

        `Tuple[Tensor, State]`
            Outputs `(num_tokens, projection_dim)`, packed like the inputs, and for every sequence the
            state and memory cell after its last step.
        """
        if initial_state is None:
            state = inputs.new_zeros(step_sizes[0], self.projection_dim)
            cell = inputs.new_zeros(step_sizes[0], self.cell_size)
        else:
            state, cell = initial_state
        # (4 * cell_size, input_dim) and (4 * cell_size, projection_dim)
        input_weight, state_weight = self.weight.split([self.input_dim, self.projection_dim], dim=1)
        bias = self.bias + self.forget_bias

        outputs: List[Tensor] = []
        finished: List[State] = []  # the shortest sequences first
        for first_step, last_step in _blocks_of_steps(step_sizes):
            sizes = step_sizes[first_step:last_step]
            start = sum(step_sizes[:first_step])
            # (tokens of these steps, 4 * cell_size): inputs do not wait for states.
            input_gates = linear(inputs[start : start + sum(sizes)], input_weight, bias)
            for gates, size in zip(input_gates.split(sizes), sizes):
                if size < state.size(0):
                    finished.append((state[size:], cell[size:]))
                    state, cell = state[:size], cell[:size]
                # (size, cell_size) each
                i, f, g, o = (gates + linear(state, state_weight)).chunk(4, dim=1)
                cell = torch.sigmoid(f) * cell + torch.sigmoid(i) * torch.tanh(g)
                if self.cell_clip is not None:
                    cell = cell.clamp(-self.cell_clip, self.cell_clip)
                state = torch.sigmoid(o) * torch.tanh(cell)
                if self.projection is not None:
                    state = linear(state, self.projection)  # (size, projection_dim)
                    if self.proj_clip is not None:
                        state = state.clamp(-self.proj_clip, self.proj_clip)
                outputs.append(state)
        finished.append((state, cell))
        final_states, final_cells = zip(*reversed(finished))
        return torch.cat(outputs), (torch.cat(final_states), torch.cat(final_cells))


def _blocks_of_steps(step_sizes: List[int]) -> List[Tuple[int, int]]:
    """Cut the steps into `(first, last + 1)` ranges of about `TOKENS_PER_PRODUCT` tokens."""
    blocks: List[Tuple[int, int]] = []
    first, num_tokens = 0, 0
    for step, size in enumerate(step_sizes):
        num_tokens += size
        if num_tokens >= TOKENS_PER_PRODUCT:
            blocks.append((first, step + 1))
            first, num_tokens = step + 1, 0
    if first < len(step_sizes):
        blocks.append((first, len(step_sizes)))
    return blocks
