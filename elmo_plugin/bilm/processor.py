"""
The instructions of the processor that this package may use.

To imitate a processor with fewer instructions, hide them from this package, torch and oneDNN:

    ELMO_CPU_CAPABILITY=avx2 ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 python ...
"""

import functools
import os
import platform
from pathlib import Path
from typing import Dict, FrozenSet, Tuple

import torch

from elmo_plugin.errors import ConfigurationError

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
    if level not in _LEVELS:
        raise ConfigurationError(
            f"{CAPABILITY_VARIABLE} is '{level}', expected one of: {', '.join(_LEVELS)}. Unset it to use all "
            "that the processor has."
        )
    return _allowed(level)


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
    field = "Features" if platform.machine() in ("aarch64", "arm64") else "flags"
    for line in cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines():
        name, _, value = line.partition(":")
        if name.strip() == field:
            return frozenset(value.split())
    return frozenset()
