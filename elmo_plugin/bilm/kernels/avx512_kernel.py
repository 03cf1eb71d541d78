"""Whole LSTM layers in C++, for x86-64 processors with AVX-512."""

import ctypes
import functools
import importlib.machinery
import logging
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, List, Optional, Sequence

import torch
from torch import Tensor

from elmo_plugin.bilm.factors import Factor
from elmo_plugin.bilm.kernels.lstm_kernel import LSTMKernel
from elmo_plugin.bilm.lstm import LSTMRun, Outcome, ProjectedLSTM
from elmo_plugin.bilm.processor import processor_features

logger = logging.getLogger(__name__)

# The compiled avx512.cpp, which setup.py makes where it finds a compiler.
LIBRARY_NAME = "_avx512"

# As in avx512.cpp: of the functions and structs below.
ABI_VERSION = 1

# As in avx512.cpp: products are made for 4 vectors of 16 columns at a time.
LANES = 16
PANEL_COLUMNS = 64

# Products of inputs are kept for about this many tokens: 16 MiB at 4 x 4096 gates.
TOKENS_PER_BLOCK = 256

# Of a step, for each thread; with less, threads wait for each other longer than they work.
MULTIPLICATIONS_PER_THREAD = 500_000

_TYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "int8": torch.int8}

_FEATURES = ("avx512f", "avx512bw", "avx512dq", "avx512vl", "fma")
_FEATURES_OF_PRECISION = {"float32": (), "bfloat16": ("avx512_bf16",), "int8": ("avx512_vnni",)}


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
    """
    An LSTM layer.

    # Parameters

    input_weight, state_weight : `PanelMatrix`
        A panel holds the gates i, g, f and o of 16 cells.
    projection : `PanelMatrix`, optional
    bias : `Tensor`
        `(num_panels, 4, 16)`, what is added to the forget gate included.
    cell_clip, proj_clip : `float`
        Largest magnitudes; infinite where nothing is clipped.
    """

    input_weight: PanelMatrix
    state_weight: PanelMatrix
    projection: Optional[PanelMatrix]
    bias: Tensor
    cell_clip: float
    proj_clip: float


class _PanelFactor(Factor):
    def __init__(self, matrix: PanelMatrix, output_dim: int) -> None:
        self._matrix = matrix
        self._output_dim = output_dim

    def product(self, rows: Tensor, out: Optional[Tensor] = None) -> Tensor:
        rows = rows.contiguous()
        result = rows.new_empty(rows.size(0), self._output_dim)
        _call(
            "run_linear",
            self._matrix.panels,
            ctypes.byref(_matrix(self._matrix)),
            rows.data_ptr(),
            result.data_ptr(),
            rows.size(0),
            rows.size(1),
            self._output_dim,
            _num_threads(rows.numel() * self._output_dim),
        )
        return result if out is None else out.copy_(result)

    def add_product(self, total: Tensor, rows: Tensor) -> Tensor:
        return total.add_(self.product(rows))


class AVX512Kernel(LSTMKernel):
    """
    All steps of a layer in one call: gates, cells and hidden values are made from products that are still in
    registers. The directions run one after the other, each on all cores that torch may use, so that the
    weights of a layer stay in the processor's cache if they fit.

    Sums are float32, of int8 32-bit integers; rows are rounded to int8 with a scale of their own.
    """

    name = "avx512"
    storable_types = (PanelLayer, PanelMatrix, _PanelFactor)

    def why_not(self, precision: str, device: torch.device, dtype: torch.dtype) -> Optional[str]:
        if device.type != "cpu":
            return f"it runs on CPUs, not on {device.type}"
        if dtype != torch.float32:
            return f"it needs float32 weights, and these are {str(dtype).removeprefix('torch.')}"
        features = processor_features()
        needed = (*_FEATURES, *_FEATURES_OF_PRECISION[precision])
        missing = [name for name in needed if name not in features]
        if missing:
            return f"{precision} needs a processor with {', '.join(missing)}"
        # Only now: where the instructions are missing, the library must not even be loaded.
        problem = _library_problem()
        if problem is None and not _library().has_type(_TYPES[precision].itemsize):
            return (
                f"it was compiled without {precision}, because the compiler's assembler is too old "
                "(update binutils, then install elmo_plugin again)"
            )
        return problem

    def factor(self, weight: Tensor, precision: str) -> Factor:
        return _PanelFactor(_in_panels(weight[None], precision), weight.size(0))

    def prepare(self, layer: ProjectedLSTM, precision: str) -> PanelLayer:
        def gates() -> Tensor:  # (4, cell_size, input_dim + projection_dim)
            return layer.gate_weight.detach().unflatten(0, (4, -1))

        input_weight = _in_panels(gates()[:, :, : layer.input_dim], precision)
        state_weight = _in_panels(gates()[:, :, layer.input_dim :], precision)
        projection, cell_clip, proj_clip = layer.projection, layer.cell_clip, layer.proj_clip
        return PanelLayer(
            input_weight,
            state_weight,
            None if projection is None else _in_panels(projection.detach()[None], precision),
            _bias_in_panels((layer.gate_bias + layer.forget_bias).detach()),
            math.inf if cell_clip is None else cell_clip,
            math.inf if proj_clip is None or projection is None else proj_clip,
        )

    def run(self, layers: Sequence[PanelLayer], runs: Sequence[LSTMRun]) -> List[Outcome]:
        return [_run(layer, run) for layer, run in zip(layers, runs)]


def _num_threads(multiplications: float) -> int:
    worthwhile = int(multiplications / MULTIPLICATIONS_PER_THREAD)
    return max(1, min(torch.get_num_threads(), worthwhile))


def _in_panels(weight: Tensor, precision: str) -> PanelMatrix:
    """`weight`, `(groups, num_outputs, depth)`: a panel holds as many outputs of each group."""
    dtype = _TYPES[precision]
    together = 4 // dtype.itemsize
    num_panels = math.ceil(weight.size(0) * weight.size(1) / PANEL_COLUMNS)
    depth = math.ceil(weight.size(2) / together)
    panels = torch.empty(num_panels, depth, PANEL_COLUMNS, together, dtype=dtype)
    scales = offsets = None
    if precision == "int8":
        scales = torch.empty(num_panels * PANEL_COLUMNS)
        offsets = torch.empty(num_panels * PANEL_COLUMNS, dtype=torch.int32)
    plain = _Plain(weight.data_ptr(), *weight.shape, *weight.stride())
    packed = _Packed(panels.data_ptr(), _address(scales), _address(offsets))
    _call("pack", panels, ctypes.byref(plain), ctypes.byref(packed), torch.get_num_threads())
    return PanelMatrix(panels, scales, offsets)


def _bias_in_panels(bias: Tensor) -> Tensor:
    """`(4 * cell_size,)` as panels of gates: `(num_panels, 4, 16)`."""
    gates = bias.view(4, -1)
    cell_size = gates.size(1)
    num_panels = math.ceil(cell_size / LANES)
    padded = torch.nn.functional.pad(gates, (0, num_panels * LANES - cell_size))
    return padded.view(4, num_panels, LANES).transpose(0, 1).contiguous()


def _run(layer: PanelLayer, run: LSTMRun) -> Outcome:
    inputs = run.inputs.contiguous()
    # Written to by the call.
    state, cell = run.state.clone(), run.cell.clone()
    outputs = inputs.new_empty(inputs.size(0), state.size(1))
    step_sizes = torch.tensor(run.step_sizes)
    projection = layer.projection
    c_layer = _Layer(
        _matrix(layer.input_weight),
        _matrix(layer.state_weight),
        _Matrix() if projection is None else _matrix(projection),
        layer.bias.data_ptr(),
        inputs.size(1),
        cell.size(1),
        state.size(1),
        layer.cell_clip,
        layer.proj_clip,
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
    _call(
        "run_layer",
        layer.state_weight.panels,
        ctypes.byref(c_layer),
        ctypes.byref(c_sequences),
        _num_threads(rows * 4 * cell.size(1) * state.size(1)),
    )
    return outputs, state, cell


def _call(function: str, panels: Tensor, *arguments: Any) -> None:
    problem = getattr(_library(), function)(panels.element_size(), *arguments)
    if problem == 2:
        raise MemoryError("Memory or threads ran out in the avx512 kernel. Take smaller batches.")
    assert problem == 0


def _address(tensor: Optional[Tensor]) -> Optional[int]:
    return None if tensor is None else tensor.data_ptr()


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


class _Plain(ctypes.Structure):
    _fields_ = [
        ("weight", ctypes.c_void_p),
        ("num_groups", ctypes.c_int64),
        ("num_outputs", ctypes.c_int64),
        ("depth", ctypes.c_int64),
        ("group_stride", ctypes.c_int64),
        ("output_stride", ctypes.c_int64),
        ("depth_stride", ctypes.c_int64),
    ]


class _Packed(ctypes.Structure):
    _fields_ = [
        ("panels", ctypes.c_void_p),
        ("scales", ctypes.c_void_p),
        ("offsets", ctypes.c_void_p),
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
    panels = matrix.panels
    depth = panels.size(1) * panels.size(3)
    return _Matrix(panels.data_ptr(), _address(matrix.scales), _address(matrix.offsets), depth)


def _library_path() -> Optional[Path]:
    for suffix in importlib.machinery.EXTENSION_SUFFIXES:
        path = Path(__file__).with_name(LIBRARY_NAME + suffix)
        if path.exists():
            return path
    return None


@functools.lru_cache(maxsize=1)
def _library_problem() -> Optional[str]:
    """Return why the library cannot be used; `None` if it can. A warning says so of a library that exists."""
    path = _library_path()
    if path is None:
        return (
            "it was not compiled when elmo_plugin was installed (install g++ or clang, then install "
            "elmo_plugin again)"
        )
    try:
        found = ctypes.CDLL(str(path)).abi_version()
    except OSError as error:
        problem = f"its library does not load ({error})"
    except AttributeError:
        problem = f"{path} is from an older version of elmo_plugin"
    else:
        if found == ABI_VERSION:
            return None
        problem = f"{path} has version {found}, expected {ABI_VERSION}"
    problem += "; install elmo_plugin again, where g++ or clang is installed"
    logger.warning("The avx512 kernel cannot be used: %s.", problem)
    return problem


@functools.lru_cache(maxsize=1)
def _library() -> ctypes.CDLL:
    library = ctypes.CDLL(str(_library_path()))
    layer, sequences = ctypes.POINTER(_Layer), ctypes.POINTER(_Sequences)
    library.run_layer.argtypes = [ctypes.c_int, layer, sequences, ctypes.c_int]
    plain, packed = ctypes.POINTER(_Plain), ctypes.POINTER(_Packed)
    library.pack.argtypes = [ctypes.c_int, plain, packed, ctypes.c_int]
    library.run_linear.argtypes = [
        ctypes.c_int,
        ctypes.POINTER(_Matrix),
        *[ctypes.c_void_p] * 2,
        *[ctypes.c_int64] * 3,
        ctypes.c_int,
    ]
    return library
