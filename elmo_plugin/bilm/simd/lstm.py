"""LSTM layers in C++: lstm.h."""

import ctypes
import functools
import math
from dataclasses import dataclass
from typing import Any, List, Optional, Sequence, Tuple

import torch

from elmo_plugin.bilm.simd.library import addresses, call, num_threads_for
from elmo_plugin.bilm.simd.panels import CMatrix, PanelMatrix, WithStruct, in_panels
from elmo_plugin.bilm.steps import LSTMTensors, Outcome, Run

# Products of inputs are kept for about this many tokens: 16 MiB at 4 x 4096 gates.
TOKENS_PER_BLOCK = 256

# Of a step, for each of several threads of a layer; with less, they wait for each other longer than they
# work.
MULTIPLICATIONS_PER_STEP = 500_000

# Layers whose steps read up to this many bytes of weights run side by side, a thread each, as threads of one
# layer have to wait for each other at each step. Larger layers would compete for the processor's cache.
BYTES_SIDE_BY_SIDE = 4 * 1024**2


@dataclass(frozen=True)
class PanelLayer(WithStruct):
    """
    An LSTM layer packed for a vector unit. It shares no memory with the layer that it was made from.

    # Parameters

    input_weight : `PanelMatrix`
        A panel holds the gates i, g, f and o of the same cells. With the bias, which includes what is added
        to the forget gate.
    state_weight : `PanelMatrix`
        As `input_weight`, without bias.
    projection : `PanelMatrix`, optional
    input_dim, cell_size, state_dim : `int`
    cell_clip, proj_clip : `float`
        Largest magnitudes; infinite where nothing is clipped.
    """

    input_weight: PanelMatrix
    state_weight: PanelMatrix
    projection: Optional[PanelMatrix]
    input_dim: int
    cell_size: int
    state_dim: int
    cell_clip: float
    proj_clip: float

    @classmethod
    def of(cls, layer: LSTMTensors, precision: str, unit: str) -> "PanelLayer":
        """Pack a layer."""
        gates = layer.weight.unflatten(0, (4, -1))  # (4, cell_size, input_dim + state_dim)
        bias = layer.bias.unflatten(0, (4, -1))
        projection = None
        if layer.projection is not None:
            projection = in_panels(layer.projection[None], precision, unit)
        return cls(
            in_panels(gates[:, :, : layer.input_dim], precision, unit, bias),
            in_panels(gates[:, :, layer.input_dim :], precision, unit),
            projection,
            layer.input_dim,
            layer.cell_size,
            layer.state_dim,
            *clips(layer),
        )

    @functools.cached_property
    def struct(self) -> "CLayer":
        """What C++ reads. It does not keep the layer alive."""
        return CLayer(
            self.input_weight.struct(),
            self.state_weight.struct(),
            CMatrix() if self.projection is None else self.projection.struct(),
            self.input_dim,
            self.cell_size,
            self.state_dim,
            self.cell_clip,
            self.proj_clip,
        )


def run_layers(
    layers: Sequence[PanelLayer], runs: Sequence[Run], traces: "Optional[Sequence[CTrace]]" = None
) -> List[Outcome]:
    """
    Run layers that do not depend on each other, of the same sizes, vector unit and precision. `traces` are
    written to for a backward pass.
    """
    outcomes, structs, sequences, kept_alive = [], [], [], []
    for number, (layer, run) in enumerate(zip(layers, runs)):
        num_sequences = run.step_sizes[0]
        inputs = run.inputs.contiguous()
        # Copies, which are written to.
        state = run.state.clone(memory_format=torch.contiguous_format)
        cell = run.cell.clone(memory_format=torch.contiguous_format)
        outputs = inputs.new_empty(inputs.size(0), layer.state_dim)
        outcomes.append(Outcome(outputs, state, cell))
        kept_alive.append(inputs)
        structs.append(layer.struct)
        num_tokens = sum(run.step_sizes)
        sequences.append(
            CSequences(
                *addresses(
                    (inputs, (num_tokens, layer.input_dim)),
                    (outputs, (num_tokens, layer.state_dim)),
                    (state, (num_sequences, layer.state_dim)),
                    (cell, (num_sequences, layer.cell_size)),
                ),
                (ctypes.c_int64 * len(run.step_sizes))(*run.step_sizes),
                len(run.step_sizes),
                TOKENS_PER_BLOCK,
                CTrace() if traces is None else traces[number],
            )
        )
    first = layers[0]
    call_for_layers("run_layers", structs, sequences, runs[0], first.state_weight, first.projection)
    return outcomes


def call_for_layers(
    function: str,
    layers: Sequence[ctypes.Structure],
    sequences: Sequence[Any],
    run: Run,
    state_weight: PanelMatrix,
    projection: Optional[PanelMatrix],
) -> None:
    """
    Call a function of the library, in threads.

    # Parameters

    layers, sequences : `Sequence[ctypes.Structure]`
        The arguments of the function.
    run : `Run`
        What one layer runs. The others have sequences of the same lengths.
    state_weight, projection : `PanelMatrix`
        What each step of that layer multiplies by. Those of the others have the same sizes.
    """
    element_size = state_weight.panels.element_size()
    bytes_per_step = state_weight.panels.nbytes + (projection.panels.nbytes if projection else 0)
    num_tokens, num_steps = run.inputs.size(0), len(run.step_sizes)
    multiplications = num_tokens * bytes_per_step / element_size
    most = num_threads_for(len(layers) * multiplications)
    per_layer = max(1, min(most, int(multiplications / num_steps / MULTIPLICATIONS_PER_STEP)))
    num_threads = per_layer
    if bytes_per_step <= BYTES_SIDE_BY_SIDE:
        layers_at_a_time = min(len(layers), most)
        per_layer = min(per_layer, most // layers_at_a_time)
        num_threads = layers_at_a_time * per_layer
    call(
        state_weight.unit,
        function,
        element_size,
        (type(layers[0]) * len(layers))(*layers),
        (type(sequences[0]) * len(sequences))(*sequences),
        len(layers),
        num_threads,
        per_layer,
    )


def clips(layer: LSTMTensors) -> Tuple[float, float]:
    """Return the largest magnitudes of cells and states; infinite where nothing is clipped."""
    proj_clip = None if layer.projection is None else layer.proj_clip
    return (
        math.inf if layer.cell_clip is None else layer.cell_clip,
        math.inf if proj_clip is None else proj_clip,
    )


class CLayer(ctypes.Structure):
    _fields_ = [
        ("input_weight", CMatrix),
        ("state_weight", CMatrix),
        ("projection", CMatrix),
        ("input_dim", ctypes.c_int64),
        ("cell_size", ctypes.c_int64),
        ("state_dim", ctypes.c_int64),
        ("cell_clip", ctypes.c_float),
        ("proj_clip", ctypes.c_float),
    ]


class CTrace(ctypes.Structure):
    """What a forward pass keeps of every token for the backward pass."""

    _fields_ = [(name, ctypes.c_void_p) for name in ("gates", "cells", "tanh_cells", "hidden")]


class CSequences(ctypes.Structure):
    _fields_ = [
        ("inputs", ctypes.c_void_p),
        ("outputs", ctypes.c_void_p),
        ("states", ctypes.c_void_p),
        ("cells", ctypes.c_void_p),
        ("step_sizes", ctypes.POINTER(ctypes.c_int64)),
        ("num_steps", ctypes.c_int64),
        ("tokens_per_block", ctypes.c_int64),
        ("trace", CTrace),
    ]
