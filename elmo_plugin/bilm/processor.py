"""
The instructions of the processor that this package may use.

To imitate an x86-64 processor with fewer instructions on Linux, hide them from this package, torch and
oneDNN:

    ELMO_CPU_CAPABILITY=avx2 ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 python ...
"""

import ctypes
import functools
import os
import platform
from pathlib import Path
from typing import Dict, FrozenSet, Tuple

import torch

from elmo_plugin.errors import ConfigurationError, check_choice

CPU = torch.device("cpu")

# The environment variable that hides instructions from this package.
CAPABILITY_VARIABLE = "ELMO_CPU_CAPABILITY"

# Each level allows features that start with one of its prefixes.
_AVX2 = ("avx2", "fma", "f16c")
_AVX512 = (*_AVX2, "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")
_LEVELS: Dict[str, Tuple[str, ...]] = {
    "default": (),
    "avx2": _AVX2,
    "avx512": _AVX512,
    "avx512_vnni": (*_AVX512, "avx512_vnni"),
    "all": ("",),
}


def processor_features() -> FrozenSet[str]:
    """
    Return the instruction sets that this package may use, by their names in Linux's `/proc/cpuinfo`: `avx2`,
    `avx512f`, `amx_bf16`, ... Empty on other operating systems. The environment variable
    `ELMO_CPU_CAPABILITY` (`default`, `avx2`, `avx512`, `avx512_vnni`, `all`) hides some.

    # Raises

    `ConfigurationError` if the variable has another value.
    """
    level = os.environ.get(CAPABILITY_VARIABLE, "all").lower()
    check_choice(CAPABILITY_VARIABLE, level, _LEVELS)
    return _allowed(level)


def check_device(device: torch.device) -> None:
    """Raise `ConfigurationError` if torch cannot use a device here."""
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ConfigurationError(
            f"device is '{device}', which torch cannot use here ({str(error).splitlines()[0]}). Give a GPU "
            "that torch finds, or the CPU: device cpu, cuda_device -1."
        ) from error


def checked_device(cuda_device: int) -> torch.device:
    """Return the GPU of this index, or the CPU for -1. Raise an error as `check_device`."""
    device = CPU if cuda_device < 0 else torch.device("cuda", cuda_device)
    check_device(device)
    return device


def has_bfloat16_products(device: torch.device = CPU) -> bool:
    """
    Return whether a device multiplies matrices of bfloat16 faster than those of float32. Without
    instructions for that, torch takes several times as long as in float32.
    """
    if device.type == "cpu":
        return not processor_features().isdisjoint({"avx512_bf16", "amx_bf16", "bf16"})
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= (8, 0)


@functools.cache
def _allowed(level: str) -> FrozenSet[str]:
    return frozenset(name for name in _reported() if name.startswith(_LEVELS[level]))


def _reported() -> FrozenSet[str]:
    cpuinfo = Path("/proc/cpuinfo")
    if not cpuinfo.exists():
        return frozenset()
    fields: Dict[str, str] = {}  # of the first processor
    for line in cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines():
        name, _, value = line.partition(":")
        fields.setdefault(name.strip(), value.strip())
    is_arm = platform.machine() in ("aarch64", "arm64")
    features = set(fields.get("Features" if is_arm else "flags", "").split())
    if fields.get("vendor_id") == "GenuineIntel":
        # On Intel these instructions run at half of the speed of float32. AMX does not need them.
        features.discard("avx512_bf16")
    if "amx_tile" in features and not _may_use_tiles():
        features -= {"amx_tile", "amx_bf16", "amx_int8"}
    return frozenset(features)


def _may_use_tiles() -> bool:
    """Request the tile registers of AMX, which Linux grants only on request. Return whether it did."""
    arch_prctl, request_permission, tile_data = 158, 0x1023, 18
    return ctypes.CDLL(None).syscall(arch_prctl, request_permission, tile_data) == 0
