"""LSTM layers in C++: lstm.h."""

import ctypes
import functools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, List, NamedTuple, Optional, Sequence, Tuple, cast

import torch
from torch import Tensor

from elmo_plugin.bilm.simd.library import (
    MULTIPLICATIONS_PER_THREAD,
    CMatrix,
    PanelMatrix,
    address,
    c_matrix,
    in_panels,
    library_of,
    raise_problem,
    vector_in_panels,
)

if TYPE_CHECKING:
    from elmo_plugin.bilm.lstm_steps import LSTMRun, Outcome

# Products of inputs are kept for about this many tokens: 16 MiB at 4 x 4096 gates.
TOKENS_PER_BLOCK = 256

# Of a step, for each of several threads of a layer; with less, they wait for each other longer than they
# work.
MULTIPLICATIONS_PER_STEP = 500_000

# Layers with weights of up to so many bytes run side by side, a thread each: threads of one layer have to
# wait for each other at each step. Larger ones would compete for the processor's cache.
BYTES_SIDE_BY_SIDE = 4 * 1024**2


@dataclass(frozen=True)
class PanelLayer:
    """
    An LSTM layer.

    # Parameters

    input_weight, state_weight : `PanelMatrix`
        A panel holds the gates i, g, f and o of as many cells as a vector has lanes.
    projection : `PanelMatrix`, optional
    bias : `Tensor`
        `(num_panels * 4 * lanes,)`, what is added to the forget gate included.
    input_dim, cell_size, state_dim : `int`
    cell_clip, proj_clip : `float`
        Largest magnitudes; infinite where nothing is clipped.
    """

    input_weight: PanelMatrix
    state_weight: PanelMatrix
    projection: Optional[PanelMatrix]
    bias: Tensor
    input_dim: int
    cell_size: int
    state_dim: int
    cell_clip: float
    proj_clip: float

    @classmethod
    def of(cls, layer: "LayerTensors", precision: str, unit: str) -> "PanelLayer":
        """Pack a layer for a vector unit."""
        state_dim = layer.weight.size(1) - layer.input_dim

        def gates() -> Tensor:  # (4, cell_size, input_dim + state_dim)
            return layer.weight.detach().unflatten(0, (4, -1))

        input_weight = in_panels(gates()[:, :, :-state_dim], precision, unit)
        state_weight = in_panels(gates()[:, :, -state_dim:], precision, unit)
        projection = layer.projection
        return cls(
            input_weight,
            state_weight,
            None if projection is None else in_panels(projection.detach()[None], precision, unit),
            vector_in_panels(layer.bias.detach().view(4, -1), unit),
            layer.input_dim,
            layer.weight.size(0) // 4,
            state_dim,
            *_clips(layer),
        )

    @functools.cached_property
    def struct(self) -> "_CLayer":
        """What C++ reads. It does not keep the layer alive."""
        return _CLayer(
            c_matrix(self.input_weight),
            c_matrix(self.state_weight),
            c_matrix(self.projection),
            address(self.bias),
            self.input_dim,
            self.cell_size,
            self.state_dim,
            self.cell_clip,
            self.proj_clip,
        )


class LayerTensors(NamedTuple):
    """
    The tensors of an LSTM layer.

    # Parameters

    weight : `Tensor`
        `(4 * cell_size, input_dim + state_dim)`, of the gates i, g, f, o.
    bias : `Tensor`
        `(4 * cell_size,)`, what is added to the forget gate included.
    projection : `Tensor`, optional
        `(state_dim, cell_size)`
    input_dim : `int`
    cell_clip, proj_clip : `float`, optional
        Largest magnitudes; `None` does not clip.
    """

    weight: Tensor
    bias: Tensor
    projection: Optional[Tensor]
    input_dim: int
    cell_clip: Optional[float]
    proj_clip: Optional[float]


class BackwardRun(NamedTuple):
    """
    What the backward pass of a layer reads and writes.

    # Parameters

    step_sizes : `List[int]`
        Number of sequences at each step, never rising.
    gates, cells, tanh_cells, outputs : `Tensor`
        Of every token, as the forward pass made them.
    first_cells : `Tensor`
        `(num_sequences, cell_size)`, before the first step.
    output_gradients : `Tensor`
        `(num_tokens, state_dim)`. The pass leaves the gradients of what left the projection in it.
    state_gradients, cell_gradients : `Tensor`
        `(num_sequences, state_dim)` and `(num_sequences, cell_size)`, of what the last steps wrote. The pass
        leaves the gradients of what the first step read in them.
    """

    step_sizes: List[int]
    gates: Tensor
    cells: Tensor
    tanh_cells: Tensor
    outputs: Tensor
    first_cells: Tensor
    output_gradients: Tensor
    state_gradients: Tensor
    cell_gradients: Tensor


def run_layers(layers: Sequence[PanelLayer], runs: Sequence["LSTMRun"]) -> "List[Outcome]":
    """Run layers that do not depend on each other, all of one vector unit and precision."""
    return _run_layers(layers, runs, [_CTrace()] * len(runs))


def trace_layers(
    layers: Sequence[PanelLayer], runs: Sequence["LSTMRun"]
) -> "List[Tuple[Tuple[Tensor, ...], Outcome]]":
    """
    Run layers like `run_layers`, and return for each what its backward pass needs of every token, too: gates,
    after sigmoid and tanh, `(num_tokens, 4 * cell_size)`; cells, tanh of cells, and hidden values before the
    projection, `(num_tokens, cell_size)` each.
    """
    traces = []
    for layer, run in zip(layers, runs):
        num_tokens, cell_size = run.inputs.size(0), run.cell.size(1)
        num_hidden = 2 if layer.projection is None else 3
        rest = [run.inputs.new_empty(num_tokens, cell_size) for _ in range(num_hidden)]
        traces.append((run.inputs.new_empty(num_tokens, 4 * cell_size), *rest))
    outcomes = _run_layers(layers, runs, [_CTrace(*map(address, trace)) for trace in traces])
    # Without projection, hidden values are the outputs.
    return [((*trace, outcome[0])[:4], outcome) for trace, outcome in zip(traces, outcomes)]


def run_layers_backward(
    layers: Sequence[LayerTensors], runs: Sequence[BackwardRun], precision: str, unit: str
) -> List[Tensor]:
    """
    Run the backward passes of layers that do not depend on each other.

    # Returns

    For each the gradients of its gates before sigmoid and tanh, `(num_tokens, 4 * cell_size)`.
    """
    gradients, structs, kept_alive = [], [], []
    for layer, run in zip(layers, runs):
        gradients.append(torch.empty_like(run.gates))
        state_dim = run.outputs.size(1)
        state_weight = in_panels(layer.weight.detach()[:, -state_dim:].t()[None], precision, unit)
        projection: Optional[PanelMatrix] = None
        if layer.projection is not None:
            projection = in_panels(layer.projection.detach().t()[None], precision, unit)
        step_sizes = torch.tensor(run.step_sizes)
        kept_alive.append((state_weight, projection, step_sizes))
        structs.append(
            (
                _CBackwardLayer(
                    c_matrix(state_weight),
                    c_matrix(projection),
                    run.cells.size(1),
                    state_dim,
                    *_clips(layer),
                ),
                _CBackwardSequences(
                    address(step_sizes),
                    len(step_sizes),
                    _CTrace(*map(address, (run.gates, run.cells, run.tanh_cells))),
                    *map(address, run[4:]),
                    address(gradients[-1]),
                ),
            )
        )
    rows_per_step = runs[0].outputs.size(0) / len(runs[0].step_sizes)
    state_weight, projection, _ = kept_alive[0]
    _call("run_layers_backward", structs, rows_per_step, state_weight, projection)
    return gradients


def _run_layers(
    layers: Sequence[PanelLayer], runs: Sequence["LSTMRun"], traces: "Sequence[_CTrace]"
) -> "List[Outcome]":
    outcomes, structs, kept_alive = [], [], []
    for layer, run, trace in zip(layers, runs, traces):
        inputs = run.inputs.contiguous()
        # Written to by the call.
        state, cell = run.state.clone(), run.cell.clone()
        outputs = inputs.new_empty(inputs.size(0), state.size(1))
        outcomes.append((outputs, state, cell))
        step_sizes = torch.tensor(run.step_sizes)
        kept_alive.append((inputs, step_sizes))
        structs.append(
            (
                layer.struct,
                _CSequences(
                    inputs.data_ptr(),
                    step_sizes.data_ptr(),
                    len(step_sizes),
                    outputs.data_ptr(),
                    state.data_ptr(),
                    cell.data_ptr(),
                    TOKENS_PER_BLOCK,
                    trace,
                ),
            )
        )
    rows_per_step = runs[0].inputs.size(0) / len(runs[0].step_sizes)
    _call("run_layers", structs, rows_per_step, layers[0].state_weight, layers[0].projection)
    return outcomes


def _call(
    function: str,
    structs: Sequence[Tuple[ctypes.Structure, ctypes.Structure]],
    rows_per_step: float,
    state_weight: PanelMatrix,
    projection: Optional[PanelMatrix],
) -> None:
    """
    Call a function of the library with structs of layers and of sequences, in threads.

    # Parameters

    rows_per_step : `float`
        Sequences of a step, in the mean.
    state_weight, projection : `PanelMatrix`
        What each step of a layer multiplies by; as large in the other layers.
    """
    element_size = state_weight.panels.element_size()
    bytes_per_step = state_weight.panels.nbytes + (projection.panels.nbytes if projection else 0)
    layers, sequences = zip(*structs)
    per_step = rows_per_step * bytes_per_step / element_size
    total = len(structs) * sequences[0].num_steps * per_step
    most = max(1, min(torch.get_num_threads(), int(total / MULTIPLICATIONS_PER_THREAD)))
    threads_per_run = max(1, min(most, int(per_step / MULTIPLICATIONS_PER_STEP)))
    num_threads = threads_per_run
    if bytes_per_step <= BYTES_SIDE_BY_SIDE:
        at_a_time = min(len(structs), most)
        threads_per_run = min(threads_per_run, most // at_a_time)
        num_threads = at_a_time * threads_per_run
    problem = library_of(state_weight.unit).functions[function](
        element_size,
        (type(layers[0]) * len(layers))(*layers),
        (type(sequences[0]) * len(sequences))(*sequences),
        len(layers),
        num_threads,
        threads_per_run,
    )
    if problem:
        raise_problem(problem)


def _clips(layer: LayerTensors) -> Tuple[float, float]:
    """Return the largest magnitudes of cells and states; infinite where nothing is clipped."""
    no_state_clip = layer.proj_clip is None or layer.projection is None
    return (
        math.inf if layer.cell_clip is None else layer.cell_clip,
        math.inf if no_state_clip else cast(float, layer.proj_clip),
    )


class _CLayer(ctypes.Structure):
    _fields_ = [
        ("input_weight", CMatrix),
        ("state_weight", CMatrix),
        ("projection", CMatrix),
        ("bias", ctypes.c_void_p),
        ("input_dim", ctypes.c_int64),
        ("cell_size", ctypes.c_int64),
        ("state_dim", ctypes.c_int64),
        ("cell_clip", ctypes.c_float),
        ("proj_clip", ctypes.c_float),
    ]


class _CTrace(ctypes.Structure):
    _fields_ = [(name, ctypes.c_void_p) for name in ("gates", "cells", "tanh_cells", "hidden")]


class _CSequences(ctypes.Structure):
    _fields_ = [
        ("inputs", ctypes.c_void_p),
        ("step_sizes", ctypes.c_void_p),
        ("num_steps", ctypes.c_int64),
        ("outputs", ctypes.c_void_p),
        ("states", ctypes.c_void_p),
        ("cells", ctypes.c_void_p),
        ("tokens_per_block", ctypes.c_int64),
        ("trace", _CTrace),
    ]


class _CBackwardLayer(ctypes.Structure):
    _fields_ = [
        ("state_weight", CMatrix),
        ("projection", CMatrix),
        ("cell_size", ctypes.c_int64),
        ("state_dim", ctypes.c_int64),
        ("cell_clip", ctypes.c_float),
        ("proj_clip", ctypes.c_float),
    ]


class _CBackwardSequences(ctypes.Structure):
    _fields_ = [
        ("step_sizes", ctypes.c_void_p),
        ("num_steps", ctypes.c_int64),
        ("trace", _CTrace),
        ("outputs", ctypes.c_void_p),
        ("first_cells", ctypes.c_void_p),
        ("output_gradients", ctypes.c_void_p),
        ("state_gradients", ctypes.c_void_p),
        ("cell_gradients", ctypes.c_void_p),
        ("gate_gradients", ctypes.c_void_p),
    ]
