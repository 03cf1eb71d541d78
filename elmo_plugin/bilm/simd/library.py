"""The C++ library of this folder, compiled for the vector units of x86-64 and ARM processors."""

import ctypes
import functools
import logging
import math
import os
import platform
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Optional, Sequence, Tuple

import torch
from torch import Tensor

from elmo_plugin.bilm.processor import has_bfloat16_products, processor_features

logger = logging.getLogger(__name__)

# As in simd.cpp: of the functions and structs below.
ABI_VERSION = 6

# For each thread of a call; with less, it takes longer to start a thread than to do its work.
MULTIPLICATIONS_PER_THREAD = 1_000_000

_PROCESS = os.getpid()

_TYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "int8": torch.int8}


class VectorUnit(NamedTuple):
    """
    What the C++ is compiled for.

    # Parameters

    name : `str`
        Of the library: `_NAME.so`.
    machines : `Tuple[str, ...]`
        As `platform.machine()` names them; empty: all.
    features : `Tuple[str, ...]`
        What the processor must have, as Linux names it.
    """

    name: str
    machines: Tuple[str, ...]
    features: Tuple[str, ...]


_X86 = ("x86_64", "AMD64")
_ARM = ("aarch64", "arm64")
_AVX512 = ("avx512f", "avx512bw", "avx512dq", "avx512vl", "fma")

# Fastest first. setup.py has the compiler's flags of each.
VECTOR_UNITS = (
    VectorUnit("avx512_bf16", _X86, (*_AVX512, "avx512_vnni", "avx512_bf16")),
    VectorUnit("avx512_vnni", _X86, (*_AVX512, "avx512_vnni")),
    VectorUnit("avx512", _X86, _AVX512),
    VectorUnit("avx2", _X86, ("avx2", "fma")),
    VectorUnit("neon_dotprod", _ARM, ("asimddp",)),
    VectorUnit("neon", _ARM, ()),
    VectorUnit("plain", (), ()),
)


def missing_features(unit: VectorUnit) -> Optional[Tuple[str, ...]]:
    """Return what the processor lacks for a unit; `None` if the unit is of another kind of processor."""
    if unit.machines and platform.machine() not in unit.machines:
        return None
    features = processor_features()
    return tuple(name for name in unit.features if name not in features)


@dataclass(frozen=True)
class PanelMatrix:
    """
    A matrix in the order in which the products of products.h read it: panels of four vectors of columns.

    # Parameters

    unit : `str`
        The vector unit that it was packed for.
    panels : `Tensor`
        `(num_panels, depth, panel_columns)`: its transpose, with zeros for missing rows and columns, in the
        order of the unit.
    scales, offsets : `Tensor`, optional
        `(panel_columns * num_panels,)` each, of int8: the scale of a column, and 128 times the sum of its
        integers.
    """

    unit: str
    panels: Tensor
    scales: Optional[Tensor] = None
    offsets: Optional[Tensor] = None


def in_panels(weight: Tensor, precision: str, unit: str) -> PanelMatrix:
    """Pack `weight`, `(groups, num_outputs, depth)`: a panel holds as many outputs of each group."""
    library = library_of(unit)
    dtype = _TYPES[precision]
    group = 4 // dtype.itemsize
    num_panels = math.ceil(weight.size(0) * weight.size(1) / library.panel_columns)
    depth = math.ceil(weight.size(2) / group) * group
    panels = torch.empty(num_panels, depth, library.panel_columns, dtype=dtype, device="cpu")
    scales = offsets = None
    if precision == "int8":
        num_columns = num_panels * library.panel_columns
        scales = torch.empty(num_columns, dtype=torch.float32, device="cpu")
        offsets = torch.empty(num_columns, dtype=torch.int32, device="cpu")
    # Strides say where the numbers are, so that the weight may be a view of a larger one.
    plain = _Plain(pointer(weight, any_strides=True), *weight.shape, *weight.stride())
    packed = _Packed(pointer(panels, dtype), pointer(scales), pointer(offsets, torch.int32))
    threads = torch.get_num_threads()
    problem = library.functions.pack(
        dtype.itemsize, ctypes.byref(plain), ctypes.byref(packed), threads
    )
    if problem:
        raise_problem(problem)
    return PanelMatrix(unit, panels, scales, offsets)


def vector_in_panels(vector: Tensor, unit: str) -> Tensor:
    """Bring `vector`, `(groups, num_outputs)`, into the order of panels, with zeros at the end."""
    groups, num_outputs = vector.shape
    outputs_per_panel = library_of(unit).panel_columns // groups
    num_panels = math.ceil(num_outputs / outputs_per_panel)
    padded = torch.nn.functional.pad(vector, (0, num_panels * outputs_per_panel - num_outputs))
    return padded.view(groups, num_panels, outputs_per_panel).transpose(0, 1).flatten()


def pointer(
    tensor: Optional[Tensor],
    dtype: torch.dtype = torch.float32,
    shape: Optional[Sequence[int]] = None,
    any_strides: bool = False,
) -> Optional[int]:
    """
    Return the address of a tensor's numbers, `None` for no tensor. Every address that the library gets comes
    from here.

    # Parameters

    tensor : `Tensor`, optional
    dtype, shape
        What the library reads or writes there; without a `shape`, any.
    any_strides : `bool`, optional (default = `False`)
        The library gets the strides, too. Else the tensor must be contiguous.

    # Raises

    `ValueError` for a tensor on another device, of another type or shape, or with gaps between its numbers.
    """
    if tensor is None:
        return None
    if (
        tensor.device.type != "cpu"
        or tensor.dtype != dtype
        or (shape is not None and tensor.shape != tuple(shape))
        or not (any_strides or tensor.is_contiguous())
    ):
        raise ValueError(
            f"The simd kernel was given a tensor {tuple(tensor.shape)} of {tensor.dtype} on {tensor.device} "
            f"with strides {tensor.stride()}, expected "
            f"{'any shape' if shape is None else tuple(shape)} of {dtype} on the CPU"
            f"{'' if any_strides else ', contiguous'}."
        )
    return tensor.data_ptr()


def c_matrix(matrix: Optional[PanelMatrix]) -> "CMatrix":
    """Return the struct of a matrix, which does not keep it alive."""
    if matrix is None:
        return CMatrix()
    panels = matrix.panels
    return CMatrix(
        pointer(panels, panels.dtype),
        pointer(matrix.scales),
        pointer(matrix.offsets, torch.int32),
        panels.size(1),
    )


class CMatrix(ctypes.Structure):
    _fields_ = [
        ("panels", ctypes.c_void_p),
        ("scales", ctypes.c_void_p),
        ("offsets", ctypes.c_void_p),
        ("depth", ctypes.c_int64),
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


class Library:
    """
    The library of a vector unit.

    # Parameters

    functions : `ctypes.CDLL`
        Those of simd.cpp. They return 0, or a problem for `raise_problem`.
    num_lanes, panel_columns : `int`
        Numbers in a vector, and columns of a panel.
    """

    def __init__(self, unit: str) -> None:
        self.functions = ctypes.CDLL(str(_library_path(unit)))
        self.functions.use_openmp(*_openmp())
        self.num_lanes: int = self.functions.num_lanes()
        self.panel_columns = 4 * self.num_lanes


library_of = functools.cache(Library)


def _openmp() -> Sequence[Optional[ctypes.c_void_p]]:
    """Return the addresses of functions of the OpenMP library whose threads torch uses, or `None`s."""
    names = ("GOMP_parallel", "omp_get_max_threads", "omp_get_num_threads", "omp_get_thread_num")
    nothing = [None] * len(names)
    if os.getpid() != _PROCESS:
        return nothing  # Forked: the library has its notes about threads, but not the threads.
    try:
        # Loaded already. What it depends on is searched, too.
        torch_library = ctypes.CDLL(str(Path(torch.__file__).with_name("lib") / "libtorch_cpu.so"))
        return [ctypes.cast(getattr(torch_library, name), ctypes.c_void_p) for name in names]
    except (OSError, AttributeError):
        return nothing


def raise_problem(problem: int) -> None:
    """Raise `MemoryError` for what a function of the library has returned."""
    assert problem == 2
    raise MemoryError("Memory or threads ran out in the simd kernel. Take smaller batches.")


def _library_path(unit: str) -> Path:
    # AllenNLP imports all that could be a module, unless its name is private.
    return Path(__file__).with_name(f"_{unit}.so")


def unsupported_reason(name: str) -> Optional[str]:
    """Return why the library of a vector unit cannot run here, as a clause; `None` if it can."""
    unit = next(unit for unit in VECTOR_UNITS if unit.name == name)
    missing = missing_features(unit)
    if missing is None:
        return f"{name} is for {unit.machines[0]} processors, and this is {platform.machine()}"
    if missing:
        return f"{name} needs a processor with {', '.join(missing)}"
    # Only now: where the instructions are missing, the library must not even be loaded.
    return _library_problem(name)


def best_unit() -> str:
    """Return the fastest vector unit that the processor has."""
    return next(unit.name for unit in VECTOR_UNITS if missing_features(unit) == ())


def training_unit(tensor: Tensor, product_type: torch.dtype = torch.float32) -> Optional[str]:
    """
    Return the vector unit whose C++ runs the modules of a biLM that have this weight, with products in that
    type; `None` if torch's operations are to run them.
    """
    unit = best_unit()
    if tensor.device.type != "cpu" or tensor.dtype != torch.float32 or unit == "plain":
        return None
    if product_type not in (torch.float32, torch.bfloat16):
        return None
    if product_type == torch.bfloat16 and not has_bfloat16_products():
        return None
    return unit if unsupported_reason(unit) is None else None


@functools.cache
def _library_problem(unit: str) -> Optional[str]:
    """Return why the library cannot be used, which a warning says once; `None` if it can."""
    path = _library_path(unit)
    problem = f"it was not compiled for {unit} when elmo_plugin was installed"
    if path.exists():
        try:
            found = ctypes.CDLL(str(path)).abi_version()
            if found == ABI_VERSION:
                return None
            problem = f"{path} has version {found}, expected {ABI_VERSION}"
        except OSError as error:
            problem = f"its library does not load ({error})"
        except AttributeError:
            problem = f"{path} is from an older version of elmo_plugin"
    problem += "; install g++ or clang, then install elmo_plugin again"
    logger.warning(
        "The simd kernel cannot be used, so ELMo runs at about half of its speed or less: %s.",
        problem,
    )
    return problem
