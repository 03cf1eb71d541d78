"""LSTM layers in C++ with gradients: lstm.h forward, lstm_backward.h backward."""

import ctypes
import itertools
from typing import Any, List, NamedTuple, Optional, Sequence, Tuple

import torch
from torch import Tensor

from elmo_plugin.bilm.interception import without_second_derivatives
from elmo_plugin.bilm.simd.library import addresses, c_fields, library_of
from elmo_plugin.bilm.simd.lstm import (
    CLayer,
    CTrace,
    PanelLayer,
    c_sizes,
    call_for_layers,
    run_panel_layers,
)
from elmo_plugin.bilm.simd.panels import PanelMatrix, c_matrix, in_panels
from elmo_plugin.bilm.steps import CellOptions, LayerInput, LayerOutput, LSTMTensors


def run_with_gradients(
    layers: Sequence[LSTMTensors], layer_inputs: Sequence[LayerInput], precision: str, unit: str
) -> List[LayerOutput]:
    """
    Run layers that do not depend on each other, of the same sizes, over sequences of the same lengths.
    Autograd follows it. Products are those of a vector unit, in float32 or bfloat16.
    """
    options = [layer.options for layer in layers]
    settings = _Settings(layer_inputs[0].step_sizes, options, precision, unit)
    jobs = [
        _Job(given.inputs, layer.weight, layer.bias, layer.projection, given.state, given.cell)
        for layer, given in zip(layers, layer_inputs)
    ]
    return _grouped(_LSTMs.apply(settings, *itertools.chain(*jobs)), LayerOutput)


class _Settings(NamedTuple):
    """Arguments that are not tensors, of all layers of a call."""

    step_sizes: List[int]
    options: List[CellOptions]  # of each layer
    precision: str
    unit: str


class _Job(NamedTuple):
    """The tensors of a layer and of what it reads, which may need gradients: `LSTMTensors`, `LayerInput`."""

    inputs: Tensor
    weight: Tensor
    bias: Tensor
    projection: Optional[Tensor]
    state: Tensor
    cell: Tensor

    def layer(self, options: CellOptions) -> LSTMTensors:
        return LSTMTensors(self.weight, self.bias, self.projection, options)

    def layer_input(self, settings: _Settings) -> LayerInput:
        return LayerInput(self.inputs, settings.step_sizes, self.state, self.cell)


class _Trace(NamedTuple):
    """What the backward pass needs of every token."""

    values: Tensor  # (num_tokens, trace_width), gates and cells in the order of `traced` in lstm.h
    hidden: Tensor  # (num_tokens, cell_size), before the projection
    outputs: Tensor  # (num_tokens, state_dim)


class _LSTMs(torch.autograd.Function):
    """Several layers at once, each given as the fields of a `_Job`."""

    @staticmethod
    def forward(ctx: Any, settings: _Settings, *tensors: Optional[Tensor]) -> Tuple[Tensor, ...]:
        jobs = _grouped(tensors, _Job)
        layers = [job.layer(options) for job, options in zip(jobs, settings.options)]
        trace_width = library_of(settings.unit).trace_width
        traces = [
            [
                job.inputs.new_empty(len(job.inputs), width)
                for width in (trace_width(layer.cell_size), layer.cell_size)
            ]
            for layer, job in zip(layers, jobs)
        ]
        layer_outputs = run_panel_layers(
            [PanelLayer(layer, settings.precision, settings.unit) for layer in layers],
            [job.layer_input(settings) for job in jobs],
            [CTrace(*addresses(*((one, one.shape) for one in trace))) for trace in traces],
        )
        ctx.settings = settings
        saved = [
            (*trace, layer_output.outputs) for trace, layer_output in zip(traces, layer_outputs)
        ]
        ctx.save_for_backward(*tensors, *itertools.chain(*saved))
        return tuple(itertools.chain(*layer_outputs))

    @staticmethod
    @without_second_derivatives
    def backward(ctx: Any, *gradients: Tensor) -> Tuple[Optional[Tensor], ...]:
        # Read once: tensors that were recomputed for this pass can be read only once.
        tensors, settings = ctx.saved_tensors, ctx.settings
        output_gradients = _grouped(gradients, LayerOutput)
        num_tensors = len(_Job._fields) * len(output_gradients)
        jobs = _grouped(tensors[:num_tensors], _Job)
        traces = _grouped(tensors[num_tensors:], _Trace)
        steps = _run_backward(settings, jobs, traces, output_gradients)
        are_needed = _grouped(ctx.needs_input_grad[1:], _Job)
        results = [_gradients(settings, *parts) for parts in zip(jobs, traces, steps, are_needed)]
        return (None, *itertools.chain(*results))


class _StepGradients(NamedTuple):
    """What C++ computes, step by step."""

    gates: Tensor  # (num_tokens, 4 * cell_size), before their non-linearities
    projected: Tensor  # (num_tokens, state_dim), before they are clipped
    state: Tensor  # before the first step
    cell: Tensor  # before the first step


def _run_backward(
    settings: _Settings,
    jobs: Sequence[_Job],
    traces: Sequence[_Trace],
    output_gradients: Sequence[LayerOutput],
) -> List[_StepGradients]:
    """Run the steps of layers backwards, from the gradients of what the forward pass returned."""
    layers, sequences, kept_alive, results = [], [], [], []
    step_sizes = settings.step_sizes
    for job, options, trace, gradients in zip(jobs, settings.options, traces, output_gradients):
        layer = job.layer(options)
        gates_to_states = _transposed(layer.weight[:, layer.input_dim :], settings)
        states_to_hidden = None
        if layer.projection is not None:
            states_to_hidden = _transposed(layer.projection, settings)
        # Copies: gradients of what the layer returned are replaced by those of what it read.
        of_outputs, of_state, of_cell = (
            gradient.clone(memory_format=torch.contiguous_format) for gradient in gradients
        )
        of_gates = job.inputs.new_empty(len(job.inputs), 4 * layer.cell_size)
        first_cells = job.cell.contiguous()
        layers.append(
            CLayer(
                state_weight=c_matrix(gates_to_states),
                projection=c_matrix(states_to_hidden),
                **c_sizes(layer),
            )
        )
        sequences.append(
            _CBackwardSequences(
                *addresses(
                    (trace.outputs, trace.outputs.shape),
                    (first_cells, job.cell.shape),
                    (of_outputs, trace.outputs.shape),
                    (of_state, job.state.shape),
                    (of_cell, job.cell.shape),
                    (of_gates, of_gates.shape),
                ),
                (ctypes.c_int64 * len(step_sizes))(*step_sizes),
                len(step_sizes),
                CTrace(*addresses(*((one, one.shape) for one in trace[:2]))),
            )
        )
        kept_alive.append((gates_to_states, states_to_hidden, first_cells))
        results.append(_StepGradients(of_gates, of_outputs, of_state, of_cell))
    call_for_layers(
        "run_panel_layers_backward",
        layers,
        sequences,
        jobs[0].layer_input(settings),
        *kept_alive[0][:2],
    )
    return results


def _transposed(weight: Tensor, settings: _Settings) -> PanelMatrix:
    return in_panels([weight.t()], settings.precision, settings.unit)


def _gradients(
    settings: _Settings, job: _Job, trace: _Trace, steps: _StepGradients, are_needed: Any
) -> Tuple[Optional[Tensor], ...]:
    """
    Return the gradients of the fields of a `_Job`, one product for each weight. `are_needed` has a `bool` in
    each field.
    """
    dtype = getattr(torch, settings.precision)

    def product(left: Tensor, right: Tensor) -> Tensor:
        return torch.mm(left.to(dtype), right.to(dtype)).float()

    of_weight = None
    if are_needed.weight:
        # Each step reads the states of the one before: (num_tokens, state_dim)
        outputs = trace.outputs.split(settings.step_sizes)
        read_states = [part[:size] for part, size in zip(outputs, settings.step_sizes[1:])]
        read = torch.cat([job.inputs, torch.cat([job.state, *read_states])], dim=1)
        of_weight = product(steps.gates.t(), read)
    input_weight = job.weight[:, : job.inputs.size(1)]
    return (
        product(steps.gates, input_weight) if are_needed.inputs else None,
        of_weight,
        steps.gates.sum(dim=0) if are_needed.bias else None,
        product(steps.projected.t(), trace.hidden) if are_needed.projection else None,
        steps.state,
        steps.cell,
    )


def _grouped(tensors: Sequence[Any], group: Any) -> List[Any]:
    """Cut a sequence into groups of the fields of `group`, a `NamedTuple`."""
    size = len(group._fields)
    return [group(*tensors[start : start + size]) for start in range(0, len(tensors), size)]


class _CBackwardSequences(ctypes.Structure):
    _fields_ = [
        *c_fields(ctypes.c_void_p, "outputs first_cells"),
        *c_fields(
            ctypes.c_void_p, "output_gradients state_gradients cell_gradients gate_gradients"
        ),
        ("step_sizes", ctypes.POINTER(ctypes.c_int64)),
        ("num_steps", ctypes.c_int64),
        ("trace", CTrace),
    ]
