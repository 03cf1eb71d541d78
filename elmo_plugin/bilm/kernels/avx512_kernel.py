"""Whole LSTM layers in C++, for x86-64 processors with AVX-512."""

import ctypes
import functools
import importlib.machinery
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Iterator, List, Optional, Sequence, Tuple

import torch
from torch import Tensor

from elmo_plugin.bilm.factors import quantized
from elmo_plugin.bilm.kernels.lstm_kernel import LSTMKernel
from elmo_plugin.bilm.packed_lstm import Outcome, PackedLSTM
from elmo_plugin.bilm.projected_lstm import ProjectedLSTM

# The compiled avx512.cpp, which setup.py makes where it finds a compiler.
LIBRARY_NAME = "_avx512"

# As in avx512.cpp: products are made for 4 vectors of 16 columns at a time.
LANES = 16
PANEL_COLUMNS = 64

# Panels that are packed together, so that packing takes little memory beside its result.
PANELS_PER_CHUNK = 32

# Products of inputs are kept for about this many tokens: 16 MiB at 4 x 4096 gates.
TOKENS_PER_BLOCK = 256

# Of a step, for each thread; with less, threads wait for each other longer than they work.
MULTIPLICATIONS_PER_THREAD = 500_000

_TYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "int8": torch.int8}

_CAPABILITIES = {
    "float32": ("avx512_f", "avx512_bw", "avx512_dq", "avx512_vl", "fma3"),
    "bfloat16": ("avx512_f", "avx512_bw", "avx512_dq", "avx512_vl", "fma3", "avx512_bf16"),
    "int8": ("avx512_f", "avx512_bw", "avx512_dq", "avx512_vl", "fma3", "avx512_vnni"),
}


@dataclass(frozen=True)
class PanelMatrix:
    """
    A matrix in the order in which the products of avx512.cpp read it: panels of 64 columns of its transpose.

    # Parameters

    panels : `Tensor`
        `(num_panels, depth / group, 64, group)`; rows that one multiplication takes, 1 of float32, 2 of
        bfloat16, 4 of int8, stand together. Missing rows and columns are zeros.
    scales, offsets : `Tensor`, optional
        `(64 * num_panels,)` each, of int8: a column's scale, and 128 times the sum of its integers.
    """

    panels: Tensor
    scales: Optional[Tensor] = None
    offsets: Optional[Tensor] = None


@dataclass(frozen=True)
class PanelLayer:
    """The matrices of an LSTM layer; a panel of the first two holds the gates i, f, g and o of 16 cells."""

    input_weight: PanelMatrix
    state_weight: PanelMatrix
    projection: Optional[PanelMatrix]


class AVX512Kernel(LSTMKernel):
    """
    All steps of a layer in one call: gates, cells and hidden values are made from products that are still in
    registers. The directions run one after the other, each on all cores that torch may use, so that the
    weights of a layer stay in the processor's cache if they fit.

    Sums are float32, of int8 32-bit integers; rows are rounded to int8 with a scale of their own.
    """

    name = "avx512"

    def why_not(self, precision: str, device: torch.device, dtype: torch.dtype) -> Optional[str]:
        if device.type != "cpu":
            return f"it runs on CPUs, not on {device.type}"
        if dtype != torch.float32:
            return f"it needs float32 weights, and these are {str(dtype).removeprefix('torch.')}"
        capabilities = torch.cpu.get_capabilities()
        missing = [name for name in _CAPABILITIES[precision] if not capabilities.get(name)]
        if missing:
            return f"{precision} needs a processor with {', '.join(missing)}"
        if _library_path() is None:
            return (
                "it was not compiled, because elmo_plugin was installed where no C++ compiler was found "
                "(install g++ or clang, then install elmo_plugin again)"
            )
        return None

    def pack(self, layer: ProjectedLSTM, precision: str) -> PanelLayer:
        # (4, cell_size, input_dim + projection_dim)
        gates = layer.weight.detach().view(4, layer.cell_size, -1)
        projection = layer.projection
        return PanelLayer(
            _in_panels(gates[:, :, : layer.input_dim], precision),
            _in_panels(gates[:, :, layer.input_dim :], precision),
            None if projection is None else _in_panels(projection.detach()[None], precision),
        )

    def run(self, lstms: Sequence[PackedLSTM], packed: Sequence[PanelLayer]) -> List[Outcome]:
        return [_run(lstm, layer) for lstm, layer in zip(lstms, packed)]


def _in_panels(weight: Tensor, precision: str) -> PanelMatrix:
    """`weight`, `(groups, num_outputs, depth)`: a panel holds as many outputs of each group."""
    num_groups, num_outputs, depth = weight.shape
    outputs_per_panel = PANEL_COLUMNS // num_groups
    num_panels = math.ceil(num_outputs / outputs_per_panel)
    dtype = _TYPES[precision]
    together = 4 // dtype.itemsize
    num_together = math.ceil(depth / together)
    panels = torch.empty(num_panels, num_together, PANEL_COLUMNS, together, dtype=dtype)
    scales = torch.empty(num_panels, PANEL_COLUMNS)
    offsets = torch.empty(num_panels, PANEL_COLUMNS)
    for first, last in _chunks(num_panels, PANELS_PER_CHUNK):
        outputs = slice(first * outputs_per_panel, last * outputs_per_panel)
        part = weight[:, outputs]
        # (groups, outputs of these panels, depth), zeros where there is no weight
        rows = part.new_zeros(
            num_groups, (last - first) * outputs_per_panel, num_together * together
        )
        rows[:, : part.size(1), :depth] = part
        # (panels, 64, depth)
        rows = rows.view(num_groups, last - first, outputs_per_panel, -1).transpose(0, 1)
        rows = rows.reshape(last - first, PANEL_COLUMNS, -1)
        if precision == "int8":
            integers, row_scales = quantized(rows.flatten(0, 1))
            rows = integers.view_as(rows)
            scales[first:last] = row_scales.view(-1, PANEL_COLUMNS)
            offsets[first:last] = 128 * rows.sum(dim=2)
        panels[first:last] = rows.view(
            last - first, PANEL_COLUMNS, num_together, together
        ).transpose(1, 2)
    if precision == "int8":
        return PanelMatrix(panels, scales.flatten(), offsets.flatten())
    return PanelMatrix(panels)


def _chunks(total: int, size: int) -> Iterator[Tuple[int, int]]:
    for first in range(0, total, size):
        yield first, min(first + size, total)


def _bias_in_panels(bias: Tensor) -> Tensor:
    """`(4 * cell_size,)` as panels of gates: `(num_panels, 4, 16)`."""
    gates = bias.view(4, -1)
    cell_size = gates.size(1)
    num_panels = math.ceil(cell_size / LANES)
    padded = torch.nn.functional.pad(gates, (0, num_panels * LANES - cell_size))
    return padded.view(4, num_panels, LANES).transpose(0, 1).contiguous()


def _run(lstm: PackedLSTM, layer: PanelLayer) -> Outcome:
    settings, inputs, _, bias, _, state, cell = lstm
    inputs, bias = inputs.contiguous(), _bias_in_panels(bias)
    # Written to by the call.
    state, cell = state.clone(), cell.clone()
    outputs = inputs.new_empty(inputs.size(0), state.size(1))
    step_sizes = torch.tensor(settings.step_sizes)
    projection = layer.projection
    c_layer = _Layer(
        _matrix(layer.input_weight),
        _matrix(layer.state_weight),
        _Matrix() if projection is None else _matrix(projection),
        bias.data_ptr(),
        inputs.size(1),
        cell.size(1),
        state.size(1),
        math.inf if settings.cell_clip is None else settings.cell_clip,
        math.inf if settings.proj_clip is None or projection is None else settings.proj_clip,
    )
    c_sequences = _Sequences(
        inputs.data_ptr(),
        step_sizes.data_ptr(),
        len(step_sizes),
        outputs.data_ptr(),
        state.data_ptr(),
        cell.data_ptr(),
        TOKENS_PER_BLOCK,
    )
    rows = inputs.size(0) / len(step_sizes)  # of a step, in the mean
    multiplications = rows * 4 * cell.size(1) * state.size(1)
    num_threads = max(
        1, min(torch.get_num_threads(), int(multiplications / MULTIPLICATIONS_PER_THREAD))
    )
    weight_bytes = layer.state_weight.panels.element_size()
    failed = _library().run_layer(
        weight_bytes, ctypes.byref(c_layer), ctypes.byref(c_sequences), num_threads
    )
    assert not failed
    return outputs, state, cell


class _Matrix(ctypes.Structure):
    _fields_ = [
        ("panels", ctypes.c_void_p),
        ("scales", ctypes.c_void_p),
        ("offsets", ctypes.c_void_p),
        ("depth", ctypes.c_int64),
    ]


class _Layer(ctypes.Structure):
    _fields_ = [
        ("input_weight", _Matrix),
        ("state_weight", _Matrix),
        ("projection", _Matrix),
        ("bias", ctypes.c_void_p),
        ("input_dim", ctypes.c_int64),
        ("cell_size", ctypes.c_int64),
        ("state_dim", ctypes.c_int64),
        ("cell_clip", ctypes.c_float),
        ("proj_clip", ctypes.c_float),
    ]


class _Sequences(ctypes.Structure):
    _fields_ = [
        ("inputs", ctypes.c_void_p),
        ("step_sizes", ctypes.c_void_p),
        ("num_steps", ctypes.c_int64),
        ("outputs", ctypes.c_void_p),
        ("states", ctypes.c_void_p),
        ("cells", ctypes.c_void_p),
        ("tokens_per_block", ctypes.c_int64),
    ]


def _matrix(matrix: PanelMatrix) -> _Matrix:
    scales, offsets, panels = matrix.scales, matrix.offsets, matrix.panels
    return _Matrix(
        panels.data_ptr(),
        None if scales is None else scales.data_ptr(),
        None if offsets is None else offsets.data_ptr(),
        panels.size(1) * panels.size(3),
    )


@functools.lru_cache(maxsize=1)
def _library_path() -> Optional[Path]:
    for suffix in importlib.machinery.EXTENSION_SUFFIXES:
        path = Path(__file__).with_name(LIBRARY_NAME + suffix)
        if path.exists():
            return path
    return None


@functools.lru_cache(maxsize=1)
def _library() -> ctypes.CDLL:
    library = ctypes.CDLL(str(_library_path()))
    library.run_layer.argtypes = [
        ctypes.c_int,
        ctypes.POINTER(_Layer),
        ctypes.POINTER(_Sequences),
        ctypes.c_int,
    ]
    library.run_layer.restype = ctypes.c_int
    return library
