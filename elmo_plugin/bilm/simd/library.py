"""The C++ library of this folder, compiled for the vector units of x86-64 and ARM processors."""

import ctypes
import functools
import logging
import platform
from pathlib import Path
from typing import Any, List, NamedTuple, Optional, Sequence, Tuple

import torch
from torch import Tensor

from elmo_plugin.bilm.processor import processor_features
from elmo_plugin.bilm.threads import openmp_functions
from elmo_plugin.errors import warn_once

logger = logging.getLogger(__name__)

# As in simd.cpp: of its functions and structs, and of the order in which it reads weights.
ABI_VERSION = 9


class VectorUnit(NamedTuple):
    """What the C++ is compiled for."""

    name: str  # of the library: `_NAME.so`
    machines: Tuple[str, ...]  # as `platform.machine()` names them
    features: Tuple[str, ...]  # what the processor must have, as Linux names it
    multiplies_bfloat16: bool = False  # the others store it, and multiply float32


_X86 = ("x86_64",)
_ARM = ("aarch64", "arm64")
_AVX512 = ("avx512f", "avx512bw", "avx512dq", "avx512vl", "fma")

# Fastest first. setup.py has the compiler's flags of each.
VECTOR_UNITS = (
    VectorUnit("amx", _X86, (*_AVX512, "avx512_vnni", "amx_tile", "amx_bf16", "amx_int8"), True),
    VectorUnit("avx512_bf16", _X86, (*_AVX512, "avx512_vnni", "avx512_bf16"), True),
    VectorUnit("avx512_vnni", _X86, (*_AVX512, "avx512_vnni")),
    VectorUnit("avx512", _X86, _AVX512),
    VectorUnit("avx2", _X86, ("avx2", "fma")),
    VectorUnit("neon_dotprod", _ARM, ("asimddp",)),
    VectorUnit("neon", _ARM, ()),
)


def missing_features(unit: VectorUnit) -> Optional[Tuple[str, ...]]:
    """Return what the processor lacks for a unit; `None` if the unit is of another kind of processor."""
    if platform.machine() not in unit.machines:
        return None
    features = processor_features()
    return tuple(name for name in unit.features if name not in features)


def best_unit() -> Optional[str]:
    """
    Return the fastest vector unit that the processor has, of those whose library can be used: compilers do
    not know all. If none can be used, the fastest that it has.
    """
    units = (unit.name for unit in VECTOR_UNITS if missing_features(unit) == ())
    fastest = next(units, None)
    problem = None if fastest is None else _library_problem(fastest)
    if problem is None:
        return fastest
    for slower in units:
        if _library_problem(slower) is None:
            warn_once(logger, f"ELMo runs on {slower}: {problem}.")
            return slower
    warn_once(
        logger,
        f"The simd kernel cannot be used, so ELMo runs at half of its speed or less: {problem}.",
    )
    return fastest


def unsupported_reason(name: Optional[str]) -> Optional[str]:
    """Return why the library of a vector unit, or of none, cannot run here, as a clause; `None` if it can."""
    if name is None:
        return (
            "simd needs Linux and an x86-64 processor with AVX2, which ELMO_CPU_CAPABILITY must not hide, or "
            "an ARM processor of 64 bits"
        )
    unit = _unit_of(name)
    missing = missing_features(unit)
    if missing is None:
        return f"{name} is for {unit.machines[0]} processors, and this is {platform.machine()}"
    if missing:
        return f"{name} needs a processor with {', '.join(missing)}"
    # Only now: where the instructions are missing, the library must not even be loaded.
    return _library_problem(name)


def unit_of_modules(tensor: Tensor, product_type: torch.dtype = torch.float32) -> Optional[str]:
    """
    Return the vector unit whose C++ runs the modules of a biLM that have this weight, with products in that
    type; `None` if torch's operations are to run them.
    """
    if tensor.device.type != "cpu" or tensor.dtype != torch.float32:
        return None
    if product_type not in (torch.float32, torch.bfloat16):
        return None
    name = best_unit()
    if name is None or unsupported_reason(name) is not None:
        return None
    can_multiply = product_type == torch.float32 or _unit_of(name).multiplies_bfloat16
    return name if can_multiply else None


def _unit_of(name: str) -> VectorUnit:
    return next(unit for unit in VECTOR_UNITS if unit.name == name)


@functools.cache
def _library_problem(unit: str) -> Optional[str]:
    """Return why the library of a unit that the processor has cannot be used; `None` if it can."""
    path = _library_path(unit)
    problem = f"it was not compiled for {unit} when elmo_plugin was installed"
    if path.exists():
        try:
            found = ctypes.CDLL(str(path)).abi_version()
            if found == ABI_VERSION:
                return None
            problem = f"{path} has version {found}, expected {ABI_VERSION}"
        except (OSError, AttributeError) as error:
            problem = f"its library does not load ({error})"
    return (
        f"{problem}; install the wheel of this platform, or a recent g++ (or clang, with CXX=clang++) "
        "and then elmo_plugin from its sources"
    )


def _library_path(unit: str) -> Path:
    # The underscore: AllenNLP imports every file that could be a module, except private ones.
    return Path(__file__).with_name(f"_{unit}.so")


@functools.cache
def library_of(unit: str) -> ctypes.CDLL:
    """Return the library of a vector unit, with the functions of simd.cpp."""
    library = ctypes.CDLL(str(_library_path(unit)))
    library.use_openmp(*openmp_functions())
    return library


def addresses(
    *tensors: Tuple[Optional[Tensor], Sequence[int]], dtype: torch.dtype = torch.float32
) -> List[Optional[int]]:
    """
    Return the addresses of the numbers of tensors, `None` for no tensor. Every address that the library gets
    comes from here.

    # Parameters

    tensors : `Tuple[Optional[Tensor], Sequence[int]]`
        Each with the shape that the library reads or writes.
    dtype : `torch.dtype`
        The type that it reads or writes.

    # Raises

    `ValueError` for a tensor on another device, of another type or shape, or with gaps between its numbers.
    """
    found: List[Optional[int]] = []
    for tensor, shape in tensors:
        if tensor is None:
            found.append(None)
        elif (
            tensor.device.type == "cpu"
            and tensor.dtype == dtype
            and tensor.shape == shape
            and tensor.is_contiguous()
        ):
            found.append(tensor.data_ptr())
        else:
            raise ValueError(
                f"The simd kernel was given a tensor {tuple(tensor.shape)} of {tensor.dtype} on "
                f"{tensor.device} with strides {tensor.stride()}, expected {tuple(shape)} of {dtype} on the "
                "CPU, contiguous."
            )
    return found


def c_fields(c_type: Any, names: str) -> List[Tuple[str, Any]]:
    """Return fields of the same type for a struct of ctypes."""
    return [(name, c_type) for name in names.split()]


def call(unit: str, function: str, *arguments: object) -> None:
    """
    Call a function of the library.

    # Raises

    `MemoryError` if memory or threads ran out.
    """
    if getattr(library_of(unit), function)(*arguments) != 0:
        raise MemoryError("Memory or threads ran out in the simd kernel. Take smaller batches.")
