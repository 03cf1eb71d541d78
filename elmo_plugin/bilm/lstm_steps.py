"""The steps of LSTMs over packed sequences, forward and backward, by torch's operations or in C++."""

import itertools
from typing import Any, Callable, List, NamedTuple, Optional, Sequence, Tuple, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from elmo_plugin.bilm.factors import Factor, PlainFactor, add_product, product
from elmo_plugin.bilm.side_by_side import map_side_by_side
from elmo_plugin.bilm.simd.library import training_unit
from elmo_plugin.bilm.simd.lstm import (
    BackwardRun,
    LayerTensors,
    PanelLayer,
    run_layers,
    run_layers_backward,
    trace_layers,
)

sigmoid_backward = torch.ops.aten.sigmoid_backward.grad_input  # gradient * y * (1 - y)
tanh_backward = torch.ops.aten.tanh_backward  # gradient * (1 - y ** 2)

# Without gradients, gates are made for about this many tokens at a time, so that memory does not grow with
# the length of a document: 128 MiB at 4 x 4096 gates.
TOKENS_PER_BLOCK = 2048

# In a step; below, two threads are in each other's way. Measured, as the other numbers here.
MULTIPLICATIONS_WORTH_THREADS = 1_000_000

# The backward pass keeps gradients of gates for fewer, so that they stay in the processor's cache.
TOKENS_PER_BACKWARD_BLOCK = 512


class LSTMRun(NamedTuple):
    """
    What a layer in one direction is to read, in the type of its weights.

    # Parameters

    inputs : `Tensor`
        `(num_tokens, input_dim)`, packed as `Packing` says.
    step_sizes : `List[int]`
        Number of sequences at each step, never rising.
    state, cell : `Tensor`
        `(num_sequences, state_dim)` and `(num_sequences, cell_size)` before the first step. They are not
        written to.
    """

    inputs: Tensor
    step_sizes: List[int]
    state: Tensor
    cell: Tensor


# Outputs `(num_tokens, state_dim)`, and state and cell of every sequence after its last step.
Outcome = Tuple[Tensor, Tensor, Tensor]


class LSTMWeights(NamedTuple):
    """
    A layer as the loop over time reads it: `c = clip(sigmoid(f) * c + sigmoid(i) * tanh(g))` and
    `h = clip((sigmoid(o) * tanh(c)) W_P)`.

    # Parameters

    input, state : `Factor`
        Of the gates, in the order i, g, f, o.
    projection : `Factor`, optional
        `None`: the state is as wide as the cell, and is not clipped.
    bias : `Tensor`
        `(4 * cell_size,)`, what is added to the forget gate included.
    cell_clip, proj_clip : `float`, optional
        Largest magnitudes; `None` does not clip.
    """

    input: Factor
    state: Factor
    projection: Optional[Factor]
    bias: Tensor
    cell_clip: Optional[float]
    proj_clip: Optional[float]

    @classmethod
    def of(cls, layer: LayerTensors, new_factor: Callable[[Tensor], Factor]) -> "LSTMWeights":
        """Those of a layer, with `new_factor` of each matrix."""
        projection = layer.projection
        return cls(
            new_factor(layer.weight.detach()[:, : layer.input_dim]),
            new_factor(layer.weight.detach()[:, layer.input_dim :]),
            None if projection is None else new_factor(projection.detach()),
            layer.bias.detach(),
            layer.cell_clip,
            layer.proj_clip,
        )


def run_steps(layers: Sequence[LayerTensors], runs: Sequence[LSTMRun]) -> List[Outcome]:
    """
    Run layers that do not depend on each other, such as those of the two directions: on CPUs at the same
    time. Under autocast, matrices are multiplied in its type.
    """
    device_type = runs[0].inputs.device.type
    product_type = layers[0].weight.dtype
    if torch.is_autocast_enabled(device_type):
        product_type = torch.get_autocast_dtype(device_type)
    unit = training_unit(runs[0].inputs, product_type)
    lstms = [
        _LSTM(
            _Settings(run.step_sizes, layer.cell_clip, layer.proj_clip, product_type, unit),
            run.inputs,
            layer.weight,
            layer.bias,
            layer.projection,
            run.state,
            run.cell,
        )
        for layer, run in zip(layers, runs)
    ]
    tensors = [tensor for lstm in lstms for tensor in lstm.tensors]
    # Autocast's own casts do not reach tensors that are written to.
    with torch.autocast(device_type, enabled=False):
        if not torch.is_grad_enabled() or not any(
            tensor is not None and tensor.requires_grad for tensor in tensors
        ):
            if unit is not None:
                return run_layers(_packed(lstms), runs)
            return run_loops([lstm.weights for lstm in lstms], runs)
        flat = _LSTMsWithGradients.apply([lstm.settings for lstm in lstms], *tensors)
    return _groups(flat, 3)


def run_loops(weights: Sequence[LSTMWeights], runs: Sequence[LSTMRun]) -> List[Outcome]:
    """Run LSTMs that do not depend on each other, without gradients, on CPUs side by side."""
    return map_side_by_side(_run_in_blocks, list(zip(weights, runs)), _is_worth_threads(runs))


def _run_in_blocks(job: Tuple[LSTMWeights, LSTMRun]) -> Outcome:
    weights, (inputs, step_sizes, state, cell) = job
    outputs: List[Tensor] = []
    final_state, final_cell = state.clone(), cell.clone()
    start = 0
    for block_sizes in blocks_of_steps(step_sizes, TOKENS_PER_BLOCK):
        end, num_sequences = start + sum(block_sizes), block_sizes[0]
        block = LSTMRun(
            inputs[start:end], block_sizes, final_state[:num_sequences], final_cell[:num_sequences]
        )
        trace, final_state[:num_sequences], final_cell[:num_sequences] = _forward((weights, block))
        outputs.append(trace.outputs)
        start = end
    return torch.cat(outputs), final_state, final_cell


class _Trace(NamedTuple):
    """What a forward pass computes for every token, and a backward pass needs."""

    gates: Tensor  # (num_tokens, 4 * cell_size), after sigmoid and tanh
    cells: Tensor  # (num_tokens, cell_size), clipped
    tanh_cells: Tensor  # (num_tokens, cell_size)
    hidden: Tensor  # (num_tokens, cell_size), before the projection
    outputs: Tensor  # (num_tokens, state_dim); the same as hidden without projection


def _forward(job: Tuple[LSTMWeights, LSTMRun]) -> Tuple[_Trace, Tensor, Tensor]:
    weights, (inputs, step_sizes, state, cell) = job
    num_tokens, cell_size = inputs.size(0), cell.size(1)
    # Inputs do not wait for states: one product for all steps.
    gates = weights.input.add_product(weights.bias.repeat(num_tokens, 1), inputs)
    cells = inputs.new_empty(num_tokens, cell_size)
    tanh_cells = inputs.new_empty(num_tokens, cell_size)
    hidden = inputs.new_empty(num_tokens, cell_size)
    outputs = hidden
    if weights.projection is not None:
        outputs = inputs.new_empty(num_tokens, state.size(1))
    final_state, final_cell = torch.empty_like(state), torch.empty_like(cell)
    start = 0
    for size in step_sizes:
        if size < state.size(0):
            final_state[size : state.size(0)] = state[size:]
            final_cell[size : state.size(0)] = cell[size:]
            state, cell = state[:size], cell[:size]
        rows = slice(start, start + size)
        start += size
        step_gates = weights.state.add_product(gates[rows], state)  # (size, 4 * cell_size)
        i, g, f, o = step_gates.split(cell_size, dim=1)
        # tanh(x) = 2 sigmoid(2 x) - 1: torch's sigmoid is several times as fast as its tanh on CPUs.
        g.mul_(2)
        step_gates.sigmoid_()
        g.mul_(2).sub_(1)
        cell = torch.mul(f, cell, out=cells[rows]).addcmul_(i, g)
        if weights.cell_clip is not None:
            cell.clamp_(-weights.cell_clip, weights.cell_clip)
        tanh_cell = torch.mul(cell, 2, out=tanh_cells[rows]).sigmoid_().mul_(2).sub_(1)
        state = torch.mul(tanh_cell, o, out=hidden[rows])
        if weights.projection is not None:
            state = weights.projection.product(state, out=outputs[rows])
            if weights.proj_clip is not None:
                state.clamp_(-weights.proj_clip, weights.proj_clip)
    final_state[: state.size(0)] = state
    final_cell[: state.size(0)] = cell
    return _Trace(gates, cells, tanh_cells, hidden, outputs), final_state, final_cell


class _Settings(NamedTuple):
    """
    Of a layer that is run with gradients: matrices are cast to `product_type` and multiplied in it. Steps run
    in C++ for the vector unit `unit`, or by torch's operations if there is none.
    """

    step_sizes: List[int]
    cell_clip: Optional[float]
    proj_clip: Optional[float]
    product_type: torch.dtype
    unit: Optional[str]

    @property
    def precision(self) -> str:
        return str(self.product_type).removeprefix("torch.")


class _LSTM(NamedTuple):
    """A layer and what it is to read, as tensors that may need gradients."""

    settings: _Settings
    inputs: Tensor
    weight: Tensor  # (4 * cell_size, input_dim + state_dim)
    bias: Tensor  # (4 * cell_size,)
    projection: Optional[Tensor]  # (state_dim, cell_size)
    state: Tensor
    cell: Tensor

    @property
    def tensors(self) -> Tuple[Optional[Tensor], ...]:
        """All but the settings."""
        return self[1:]

    @property
    def layer(self) -> LayerTensors:
        clips = (self.settings.cell_clip, self.settings.proj_clip)
        return LayerTensors(self.weight, self.bias, self.projection, self.inputs.size(1), *clips)

    @property
    def weights(self) -> LSTMWeights:
        product_type = self.settings.product_type
        return LSTMWeights.of(self.layer, lambda weight: PlainFactor(weight.to(product_type)))

    @property
    def run(self) -> LSTMRun:
        return LSTMRun(self.inputs, self.settings.step_sizes, self.state, self.cell)


NUM_TENSORS = len(_LSTM._fields) - 1


class _LSTMsWithGradients(torch.autograd.Function):
    """`_forward` of several LSTMs with a backward pass of its own."""

    @staticmethod
    def forward(
        ctx: Any, settings: List[_Settings], *tensors: Optional[Tensor]
    ) -> Tuple[Tensor, ...]:
        lstms = _lstms(settings, tensors)
        runs = [lstm.run for lstm in lstms]
        if settings[0].unit is not None:
            outcomes = [
                (_Trace._make((*trace, outputs)), state, cell)
                for trace, (outputs, state, cell) in trace_layers(_packed(lstms), runs)
            ]
        else:
            weights = [lstm.weights for lstm in lstms]
            outcomes = map_side_by_side(_forward, list(zip(weights, runs)), _is_worth_threads(runs))
        ctx.settings = settings
        ctx.save_for_backward(*tensors, *(saved for trace, _, _ in outcomes for saved in trace))
        return tuple(
            tensor for trace, state, cell in outcomes for tensor in (trace.outputs, state, cell)
        )

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> Tuple[Optional[Tensor], ...]:
        num_tensors = NUM_TENSORS * len(ctx.settings)
        tensors, saved = ctx.saved_tensors[:num_tensors], ctx.saved_tensors[num_tensors:]
        needs_input_gradient = ctx.needs_input_grad[1 : 1 + num_tensors : NUM_TENSORS]
        lstms = _lstms(ctx.settings, tensors)
        jobs = [
            _BackwardJob(*job)
            for job in zip(
                lstms,
                itertools.starmap(_Trace, _groups(saved, len(_Trace._fields))),
                _groups(gradients, 3),
                needs_input_gradient,
            )
        ]
        if ctx.settings[0].unit is not None:
            results = _backward_in_cpp(jobs)
        else:
            is_worth_threads = _is_worth_threads([lstm.run for lstm in lstms])
            results = map_side_by_side(_backward, jobs, is_worth_threads)
        return (None, *(gradient for result in results for gradient in result))


def _packed(lstms: Sequence[_LSTM]) -> List[PanelLayer]:
    return [
        PanelLayer.of(lstm.layer, lstm.settings.precision, cast(str, lstm.settings.unit))
        for lstm in lstms
    ]


def _is_worth_threads(runs: Sequence[LSTMRun]) -> bool:
    inputs, step_sizes, state, cell = runs[0]
    rows = inputs.size(0) / len(step_sizes)  # of a step, in the mean
    multiplications = rows * 4 * cell.size(1) * state.size(1)
    return inputs.device.type == "cpu" and multiplications >= MULTIPLICATIONS_WORTH_THREADS


def _lstms(settings: List[_Settings], tensors: Sequence[Any]) -> List[_LSTM]:
    groups = _groups(tensors, NUM_TENSORS)
    return [_LSTM(setting, *group) for setting, group in zip(settings, groups)]


def _groups(sequence: Sequence[Any], size: int) -> List[Any]:
    return [sequence[start : start + size] for start in range(0, len(sequence), size)]


class _BackwardJob(NamedTuple):
    lstm: _LSTM
    trace: _Trace
    gradients: Outcome  # of what the forward pass gave
    needs_input_gradient: bool


def _backward_in_cpp(jobs: Sequence[_BackwardJob]) -> List[Tuple[Optional[Tensor], ...]]:
    """As `_backward`, of several jobs: steps in C++, and one product for each gradient of a weight."""
    runs = [
        BackwardRun(
            job.lstm.settings.step_sizes,
            job.trace.gates,
            job.trace.cells,
            job.trace.tanh_cells,
            job.trace.outputs,
            job.lstm.cell.contiguous(),
            *(gradient.clone(memory_format=torch.contiguous_format) for gradient in job.gradients),
        )
        for job in jobs
    ]
    settings = jobs[0].lstm.settings
    layers = [job.lstm.layer for job in jobs]
    gate_gradients = run_layers_backward(layers, runs, settings.precision, cast(str, settings.unit))
    results: List[Tuple[Optional[Tensor], ...]] = []
    for job, run, of_gates in zip(jobs, runs, gate_gradients):
        _, inputs, weight, _, projection, _, _ = job.lstm
        input_weight = weight[:, : inputs.size(1)].to(settings.product_type)
        read = _read_by_steps(job).to(settings.product_type)
        hidden = job.trace.hidden.to(settings.product_type)
        results.append(
            (
                product(of_gates, input_weight) if job.needs_input_gradient else None,
                product(of_gates.t(), read),
                of_gates.sum(dim=0),
                None if projection is None else product(run.output_gradients.t(), hidden),
                run.state_gradients,
                run.cell_gradients,
            )
        )
    return results


def _read_by_steps(job: _BackwardJob) -> Tensor:
    """What each step read: inputs and states, `(num_tokens, input_dim + state_dim)`."""
    inputs, state, outputs = job.lstm.inputs, job.lstm.state, job.trace.outputs
    step_sizes = job.lstm.settings.step_sizes
    starts = itertools.accumulate([0, *step_sizes])
    states = [outputs[start : start + size] for start, size in zip(starts, step_sizes[1:])]
    return torch.cat([inputs, torch.cat([state, *states])], dim=1)


def _backward(job: _BackwardJob) -> Tuple[Optional[Tensor], ...]:
    """
    The gradients of an LSTM's tensors: a loop over time for what depends on the next step, and one product
    for each gradient of a weight after a block of steps, where autograd would make one for each step.
    """
    settings, inputs, weight, _, projection, state, cell = job.lstm
    step_sizes = settings.step_sizes
    gates, cells, tanh_cells, hidden, outputs = job.trace
    output_gradient, final_state_gradient, final_cell_gradient = job.gradients
    starts = [0, *itertools.accumulate(step_sizes)]
    input_weight, state_weight = weight.to(settings.product_type).split(
        [inputs.size(1), state.size(1)], dim=1
    )
    read = _read_by_steps(job).to(settings.product_type)
    input_gradient = torch.empty_like(inputs) if job.needs_input_gradient else None
    weight_gradient = torch.zeros_like(weight)
    bias_gradient = weight.new_zeros(weight.size(0))
    lowered_projection = None if projection is None else projection.to(settings.product_type)
    # Row by row this becomes the gradient of what left the projection.
    output_gradient = output_gradient.clone()
    # Of what a step wrote; after it, of what it read.
    state_gradient, cell_gradient = final_state_gradient.clone(), final_cell_gradient.clone()
    step = len(step_sizes)
    for block_sizes in reversed(blocks_of_steps(step_sizes, TOKENS_PER_BACKWARD_BLOCK)):
        block = slice(starts[step - len(block_sizes)], starts[step])
        # Before the non-linearities: (tokens of the block, 4 * cell_size)
        gate_gradients = gates.new_empty(block.stop - block.start, gates.size(1))
        for size in reversed(block_sizes):
            step -= 1
            rows = slice(starts[step], starts[step + 1])
            step_gradient = output_gradient[rows].add_(state_gradient[:size])
            # What a clip holds does not move: |x| reaches the limit only there.
            if projection is not None and settings.proj_clip is not None:
                step_gradient *= outputs[rows].abs() < settings.proj_clip
            hidden_gradient = step_gradient
            if lowered_projection is not None:
                hidden_gradient = product(step_gradient, lowered_projection)
            i, g, f, o = gates[rows].chunk(4, dim=1)
            tanh_cell = tanh_cells[rows]
            step_cell_gradient = cell_gradient[:size]
            step_cell_gradient += tanh_backward(hidden_gradient * o, tanh_cell)
            if settings.cell_clip is not None:
                step_cell_gradient *= cells[rows].abs() < settings.cell_clip
            read_cell = cell
            if step > 0:
                read_cell = cells[starts[step - 1] : starts[step - 1] + size]
            step_gates = gate_gradients[rows.start - block.start : rows.stop - block.start]
            i_gradient, g_gradient, f_gradient, o_gradient = step_gates.chunk(4, dim=1)
            sigmoid_backward(step_cell_gradient * g, i, grad_input=i_gradient)
            sigmoid_backward(step_cell_gradient * read_cell, f, grad_input=f_gradient)
            tanh_backward.grad_input(step_cell_gradient * i, g, grad_input=g_gradient)
            sigmoid_backward(hidden_gradient * tanh_cell, o, grad_input=o_gradient)
            step_cell_gradient *= f
            product(step_gates, state_weight, out=state_gradient[:size])
        bias_gradient += gate_gradients.sum(dim=0)
        if input_gradient is not None:
            product(gate_gradients, input_weight, out=input_gradient[block])
        add_product(weight_gradient, gate_gradients.t(), read[block])
    projection_gradient = None
    if projection is not None:
        projection_gradient = product(output_gradient.t(), hidden.to(settings.product_type))
    return (
        input_gradient,
        weight_gradient,
        bias_gradient,
        projection_gradient,
        state_gradient,
        cell_gradient,
    )


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
