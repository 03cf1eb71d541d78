"""One layer of one direction: an LSTM with clipped cells and a clipped, projected output."""

from typing import List, Optional, Sequence, Tuple

import torch
from torch import Tensor
from torch.nn import Parameter

from elmo_plugin.bilm.packed_lstm import LSTMSettings, PackedLSTM, run_packed_lstms

State = Tuple[Tensor, Tensor]


class ProjectedLSTM(torch.nn.Module):
    """
    An LSTM layer with projection and clipping, over packed sequences, in bilm-tf's arithmetic:

    `c = clip(sigmoid(f + 1) * c + sigmoid(i) * tanh(j))` and `h = clip((sigmoid(o) * tanh(c)) W_P)`.

    It knows no direction: a backward layer is given reversed sequences. Under autocast products are made in
    its type, all else in the type of the weights.

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
        # A backward pass may be followed by a change of weights.
        self.num_backward_passes = 0
        self.input_dim = input_dim
        self.cell_size = cell_size
        self.projection_dim = projection_dim
        self.cell_clip = cell_clip
        self.proj_clip = proj_clip
        # Gates in TensorFlow's order, as in weight files: i, g, f, o (torch's: i, f, g, o). Columns: input
        # first, then the previous state.
        self.gate_weight = Parameter(torch.empty(4 * cell_size, input_dim + projection_dim))
        self.gate_bias = Parameter(torch.empty(4 * cell_size))
        self.projection: Optional[Parameter] = None
        if cell_size != projection_dim:
            self.projection = Parameter(torch.empty(projection_dim, cell_size))
        self.reset_parameters()

    @property
    def forget_bias(self) -> Tensor:
        """Added to the bias at run time, as TensorFlow does, so that the stored bias is the file's."""
        size = self.cell_size
        return torch.nn.functional.pad(self.gate_bias.new_ones(size), (2 * size, size))

    def reset_parameters(self) -> None:
        """Draw TensorFlow's default initial values: Glorot uniform, biases 0."""
        # One matrix in TensorFlow, so one fan-in and fan-out for inputs and states together.
        torch.nn.init.xavier_uniform_(self.gate_weight)
        torch.nn.init.zeros_(self.gate_bias)
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
        return run_side_by_side([self], [inputs], step_sizes, [initial_state])[0]

    def count_backward_passes_through(self, output: Tensor) -> None:
        """Let backward passes through `output` count in `num_backward_passes`."""
        if output.requires_grad:
            output.register_hook(self._count_backward_pass)

    def _count_backward_pass(self, unused: Tensor) -> None:
        self.num_backward_passes += 1

    def packed(
        self, inputs: Tensor, step_sizes: List[int], initial_state: Optional[State]
    ) -> PackedLSTM:
        """What is to be computed, with the arguments of `forward`."""
        dtype = self.gate_weight.dtype
        state, cell = initial_state or (
            inputs.new_zeros(step_sizes[0], self.projection_dim),
            inputs.new_zeros(step_sizes[0], self.cell_size),
        )
        device_type = inputs.device.type
        is_lowered = torch.is_autocast_enabled(device_type)
        product_type = torch.get_autocast_dtype(device_type) if is_lowered else dtype
        return PackedLSTM(
            LSTMSettings(step_sizes, self.cell_clip, self.proj_clip, product_type),
            inputs.to(dtype),
            self.gate_weight,
            self.gate_bias + self.forget_bias,
            self.projection,
            state.to(dtype),
            cell.to(dtype),
        )


def run_side_by_side(
    layers: Sequence[ProjectedLSTM],
    inputs: Sequence[Tensor],
    step_sizes: List[int],
    initial_states: Sequence[Optional[State]],
) -> List[Tuple[Tensor, State]]:
    """
    `layer(inputs, step_sizes, initial_state)` for layers that do not depend on each other, such as those of
    the two directions: on CPUs at the same time.
    """
    lstms = [
        layer.packed(layer_inputs, step_sizes, state)
        for layer, layer_inputs, state in zip(layers, inputs, initial_states)
    ]
    # Autocast's own casts do not reach tensors that are written to.
    with torch.autocast(inputs[0].device.type, enabled=False):
        outcomes = run_packed_lstms(lstms)
    for layer, outcome in zip(layers, outcomes):
        for output in outcome:
            layer.count_backward_passes_through(output)
    return [(outputs, (state, cell)) for outputs, state, cell in outcomes]
