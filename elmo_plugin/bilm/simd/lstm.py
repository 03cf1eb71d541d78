"""LSTM layers in C++ without gradients: lstm.h."""

import ctypes
import functools
import math
from dataclasses import dataclass
from typing import Any, Dict, List, Optional, Sequence, Tuple

import torch
from torch import Tensor

from elmo_plugin.bilm.simd.library import (
    MULTIPLICATIONS_PER_THREAD,
    CMatrix,
    PanelMatrix,
    c_matrix,
    in_panels,
    library_of,
    pointer,
    raise_problem,
    vector_in_panels,
)
from elmo_plugin.bilm.steps import LSTMTensors, Outcome, Run

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
    An LSTM layer packed for a vector unit. It shares no memory with the layer that it was made from.

    # Parameters

    input_weight, state_weight : `PanelMatrix`
        A panel holds the gates i, g, f and o of as many cells as a vector has lanes.
    projection : `PanelMatrix`, optional
    bias : `Tensor`
        `(num_panels * 4 * lanes,)`, with what is added to the forget gate.
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
    def of(cls, layer: LSTMTensors, precision: str, unit: str) -> "PanelLayer":
        """Pack a layer."""
        gates = layer.weight.detach().unflatten(0, (4, -1))  # (4, cell_size, input_dim + state_dim)
        projection = layer.projection
        return cls(
            in_panels(gates[:, :, : layer.input_dim], precision, unit),
            in_panels(gates[:, :, layer.input_dim :], precision, unit),
            None if projection is None else in_panels(projection.detach()[None], precision, unit),
            vector_in_panels(layer.bias.detach().reshape(4, -1), unit),
            layer.input_dim,
            layer.cell_size,
            layer.state_dim,
            *clips(layer),
        )

    @functools.cached_property
    def struct(self) -> "_CLayer":
        """What C++ reads. It does not keep the layer alive."""
        return _CLayer(
            c_matrix(self.input_weight),
            c_matrix(self.state_weight),
            c_matrix(self.projection),
            pointer(self.bias),
            self.input_dim,
            self.cell_size,
            self.state_dim,
            self.cell_clip,
            self.proj_clip,
        )

    def __getstate__(self) -> Dict[str, Any]:
        # The struct has addresses of this process.
        return {name: value for name, value in vars(self).items() if name != "struct"}


def run_layers(
    layers: Sequence[PanelLayer], runs: Sequence[Run], traces: "Optional[Sequence[CTrace]]" = None
) -> List[Outcome]:
    """
    Run layers that do not depend on each other, all of one vector unit and precision. `traces` are written to
    for a backward pass.
    """
    outcomes, structs, kept_alive = [], [], []
    for number, (layer, run) in enumerate(zip(layers, runs)):
        num_sequences = run.step_sizes[0]
        inputs = run.inputs.contiguous()
        # Copies, which are written to.
        state = run.state.clone(memory_format=torch.contiguous_format)
        cell = run.cell.clone(memory_format=torch.contiguous_format)
        outputs = inputs.new_empty(inputs.size(0), layer.state_dim)
        outcomes.append(Outcome(outputs, state, cell))
        step_sizes = torch.tensor(run.step_sizes, dtype=torch.long, device="cpu")
        kept_alive.append((inputs, step_sizes))
        sequences = _CSequences(
            pointer(inputs, shape=(sum(run.step_sizes), layer.input_dim)),
            pointer(step_sizes, torch.long),
            len(step_sizes),
            pointer(outputs),
            pointer(state, shape=(num_sequences, layer.state_dim)),
            pointer(cell, shape=(num_sequences, layer.cell_size)),
            TOKENS_PER_BLOCK,
            CTrace() if traces is None else traces[number],
        )
        structs.append((layer.struct, sequences))
    rows_per_step = runs[0].inputs.size(0) / len(runs[0].step_sizes)
    call("run_layers", structs, rows_per_step, layers[0].state_weight, layers[0].projection)
    return outcomes


def call(
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
        Mean number of sequences of a step.
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


def clips(layer: LSTMTensors) -> Tuple[float, float]:
    """Return the largest magnitudes of cells and states; infinite where nothing is clipped."""
    proj_clip = None if layer.projection is None else layer.proj_clip
    return (
        math.inf if layer.cell_clip is None else layer.cell_clip,
        math.inf if proj_clip is None else proj_clip,
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


class CTrace(ctypes.Structure):
    """What a forward pass keeps of every token for the backward pass."""

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
        ("trace", CTrace),
    ]
