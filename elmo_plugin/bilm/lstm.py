"""LSTM layers with projection and clipping, and the packed batches that they read."""

from dataclasses import dataclass
from typing import List, Optional, Sequence, Tuple

import numpy
import torch
from torch import Tensor
from torch.nn import Parameter

from elmo_plugin.bilm.lstm_steps import LSTMRun, Outcome, run_steps
from elmo_plugin.bilm.simd.lstm import LayerTensors

# State and memory cell of each sequence.
State = Tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Packing:
    """
    The order in which an LSTM reads a batch: step by step, the longest sequence first, no padding.

    Packed tensors have one row per real token. Rows of step `t` follow those of step `t - 1`; within a
    step the rows are the sequences that are at least `t + 1` long, by falling length. As the number of
    sequences at a step does not depend on the reading direction, both directions share one packing.

    # Parameters

    batch_size, timesteps : `int`
        The shape of the padded batch.
    step_sizes : `List[int]`
        How many sequences each step has; never rising.
    order : `Tensor`
        `(batch_size,)`. The row of the padded batch that is i-th longest.
    row, step : `Tensor`
        `(num_tokens,)` each. The place of each packed token in the padded batch.
    reverse : `Tensor`
        `(num_tokens,)`. Packed indices that turn every sequence around; its own inverse.
    position : `Tensor`
        `(batch_size, timesteps)`. The packed index of each place in the padded batch; -1 at padding.
    """

    batch_size: int
    timesteps: int
    step_sizes: List[int]
    order: Tensor
    row: Tensor
    step: Tensor
    reverse: Tensor
    position: Tensor

    @classmethod
    def from_lengths(cls, lengths: Tensor, timesteps: int) -> "Packing":
        """
        # Parameters

        lengths : `Tensor`
            `(batch_size,)`, on any device. Tokens of each row, at least 1.
        timesteps : `int`
            Width of the padded batch.
        """
        device = lengths.device
        # numpy: of so few numbers, an operation of torch takes several times as long.
        array = lengths.cpu().numpy()
        order = numpy.argsort(-array, kind="stable")
        sorted_lengths = array[order]
        # (longest, batch_size): whether the i-th longest sequence reaches step t.
        present = numpy.arange(sorted_lengths[0])[:, None] < sorted_lengths
        step, rank = present.nonzero()
        row = order[rank]
        step_sizes = present.sum(axis=1)
        step_starts = step_sizes.cumsum() - step_sizes
        reverse = step_starts[sorted_lengths[rank] - 1 - step] + rank
        position = numpy.full((len(array), timesteps), -1)
        position[row, step] = numpy.arange(len(row))

        def tensor(numbers: numpy.ndarray) -> Tensor:
            return torch.from_numpy(numbers).to(device)

        return cls(
            batch_size=len(array),
            timesteps=timesteps,
            step_sizes=step_sizes.tolist(),
            order=tensor(order),
            row=tensor(row),
            step=tensor(step),
            reverse=tensor(reverse),
            position=tensor(position),
        )

    def unpack(self, packed: Tensor) -> Tensor:
        """
        Put packed rows, `(num_tokens, dim)`, back in place: `(batch_size, timesteps, dim)`, padding zero.
        """
        # By indices of rows: other indexing wakes torch's threads even for a short sentence, and they keep a
        # core busy for a while, which the C++ library could use.
        padded = packed.index_select(0, self.position.flatten().clamp(min=0))
        padded = padded.view(self.batch_size, self.timesteps, packed.size(-1))
        return padded.masked_fill_((self.position < 0).unsqueeze(-1), 0)


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

    def extra_repr(self) -> str:
        names = ("input_dim", "cell_size", "projection_dim", "cell_clip", "proj_clip")
        return ", ".join(f"{name}={getattr(self, name)}" for name in names)

    def tensors(self) -> LayerTensors:
        """Return the tensors of a pass, with gradients if these are on."""
        return LayerTensors(
            self.gate_weight,
            self.gate_bias + self.forget_bias,
            self.projection,
            self.input_dim,
            self.cell_clip,
            self.proj_clip,
        )

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
        if initial_state is None:
            initial_state = (
                self.gate_weight.new_zeros(step_sizes[0], self.projection_dim),
                self.gate_weight.new_zeros(step_sizes[0], self.cell_size),
            )
        dtype = self.gate_weight.dtype
        state, cell = (tensor.to(dtype) for tensor in initial_state)
        run = LSTMRun(inputs.to(dtype), step_sizes, state, cell)
        [(outputs, state, cell)] = run_side_by_side([self], [run])
        return outputs, (state, cell)

    def count_backward_passes_through(self, output: Tensor) -> None:
        """Let backward passes through `output` count in `num_backward_passes`."""
        if output.requires_grad:
            output.register_hook(self._count_backward_pass)

    def _count_backward_pass(self, unused: Tensor) -> None:
        self.num_backward_passes += 1


def run_side_by_side(layers: Sequence[ProjectedLSTM], runs: Sequence[LSTMRun]) -> List[Outcome]:
    """Run layers that do not depend on each other, such as those of the two directions; see `run_steps`."""
    outcomes = run_steps([layer.tensors() for layer in layers], runs)
    for layer, outcome in zip(layers, outcomes):
        for output in outcome:
            layer.count_backward_passes_through(output)
    return outcomes
