"""Which instructions the processor has, as far as this package may use them."""

import functools
import os
import platform
from pathlib import Path
from typing import Dict, FrozenSet, Tuple

from allennlp.common.checks import ConfigurationError

# Set it to use less than the processor has: to compare, or to test what another processor would run. For
# torch and oneDNN too, set ATEN_CPU_CAPABILITY and ONEDNN_MAX_CPU_ISA.
CAPABILITY_VARIABLE = "ELMO_CPU_CAPABILITY"

# Each level allows what starts with one of its prefixes; other instructions of the processor are hidden.
_LEVELS: Dict[str, Tuple[str, ...]] = {
    "default": (),
    "avx2": ("avx2", "fma", "f16c"),
    "avx512": ("avx2", "fma", "f16c", "avx512"),
    "all": ("",),
}


def processor_features() -> FrozenSet[str]:
    """
    Return the instruction sets that this package may use, named as Linux names them: `avx2`, `fma`, `avx512f`,
    `avx512_bf16`, `avx512_vnni`, `amx_bf16`, ... Empty where the operating system does not tell.

    The environment variable `ELMO_CPU_CAPABILITY` (`default`, `avx2`, `avx512`, `all`) limits them.

    # Raises

    `ConfigurationError` if the variable has another value.
    """
    level = os.environ.get(CAPABILITY_VARIABLE, "all").lower()
    if level not in _LEVELS:
        raise ConfigurationError(
            f"{CAPABILITY_VARIABLE} is '{level}', expected one of: {', '.join(_LEVELS)}. Unset it to use all "
            "that the processor has."
        )
    return frozenset(name for name in _reported() if name.startswith(_LEVELS[level]))


def has_bfloat16_products() -> bool:
    """Whether products of bfloat16 matrices are faster than those of float32 on this processor."""
    return not processor_features().isdisjoint({"avx512_bf16", "amx_bf16", "bf16"})


@functools.lru_cache(maxsize=1)
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
