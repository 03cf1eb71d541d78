"""LSTM layers in C++: lstm.h."""

import ctypes
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, List, Optional, Sequence

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
    vector_in_panels,
)

if TYPE_CHECKING:
    from elmo_plugin.bilm.lstm import LSTMRun, Outcome, ProjectedLSTM

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
    cell_clip, proj_clip : `float`
        Largest magnitudes; infinite where nothing is clipped.
    """

    input_weight: PanelMatrix
    state_weight: PanelMatrix
    projection: Optional[PanelMatrix]
    bias: Tensor
    cell_clip: float
    proj_clip: float

    @classmethod
    def of(cls, layer: "ProjectedLSTM", precision: str, unit: str) -> "PanelLayer":
        """Pack a layer for a vector unit."""

        def gates() -> Tensor:  # (4, cell_size, input_dim + projection_dim)
            return layer.gate_weight.detach().unflatten(0, (4, -1))

        input_weight = in_panels(gates()[:, :, : layer.input_dim], precision, unit)
        state_weight = in_panels(gates()[:, :, layer.input_dim :], precision, unit)
        projection, cell_clip, proj_clip = layer.projection, layer.cell_clip, layer.proj_clip
        return cls(
            input_weight,
            state_weight,
            None if projection is None else in_panels(projection.detach()[None], precision, unit),
            vector_in_panels((layer.gate_bias + layer.forget_bias).detach().view(4, -1), unit),
            math.inf if cell_clip is None else cell_clip,
            math.inf if proj_clip is None or projection is None else proj_clip,
        )

    @property
    def num_bytes(self) -> int:
        """Of the weights that each step reads."""
        matrices = [self.state_weight, *([self.projection] if self.projection else [])]
        return sum(matrix.panels.nbytes for matrix in matrices)


def run_layers(layers: Sequence[PanelLayer], runs: Sequence["LSTMRun"]) -> "List[Outcome]":
    """Run layers that do not depend on each other, all of one vector unit and precision."""
    outcomes, structs, kept_alive = [], [], []
    for layer, run in zip(layers, runs):
        inputs = run.inputs.contiguous()
        # Written to by the call.
        state, cell = run.state.clone(), run.cell.clone()
        outputs = inputs.new_empty(inputs.size(0), state.size(1))
        outcomes.append((outputs, state, cell))
        step_sizes = torch.tensor(run.step_sizes)
        kept_alive.append((inputs, step_sizes))
        structs.append(
            (
                _CLayer(
                    c_matrix(layer.input_weight),
                    c_matrix(layer.state_weight),
                    c_matrix(layer.projection),
                    address(layer.bias),
                    inputs.size(1),
                    cell.size(1),
                    state.size(1),
                    layer.cell_clip,
                    layer.proj_clip,
                ),
                _CSequences(
                    address(inputs),
                    address(step_sizes),
                    len(step_sizes),
                    address(outputs),
                    address(state),
                    address(cell),
                    TOKENS_PER_BLOCK,
                ),
            )
        )
    count = len(structs)
    first = layers[0]
    num_threads, threads_per_run = _threads(first, runs)
    library_of(first.state_weight.unit).call(
        "run_layers",
        first.state_weight.panels.element_size(),
        (_CLayer * count)(*(layer for layer, _ in structs)),
        (_CSequences * count)(*(sequences for _, sequences in structs)),
        *(ctypes.c_int(number) for number in (count, num_threads, threads_per_run)),
    )
    return outcomes


def _threads(layer: PanelLayer, runs: "Sequence[LSTMRun]") -> "tuple[int, int]":
    """Return the number of threads for layers like this one, and how many of them run one layer."""
    inputs, step_sizes, state, cell = runs[0]
    per_token = 4 * cell.size(1) * (inputs.size(1) + state.size(1)) + cell.size(1) * state.size(1)
    total = len(runs) * inputs.size(0) * per_token
    most = max(1, min(torch.get_num_threads(), total // MULTIPLICATIONS_PER_THREAD))
    per_step = inputs.size(0) / len(step_sizes) * per_token  # in the mean
    per_run = max(1, min(most, int(per_step / MULTIPLICATIONS_PER_STEP)))
    if layer.num_bytes > BYTES_SIDE_BY_SIDE:
        return per_run, per_run
    at_a_time = min(len(runs), most)
    per_run = min(per_run, most // at_a_time)
    return at_a_time * per_run, per_run


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
