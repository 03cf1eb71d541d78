"""
The compiled libraries of elmo_plugin, and wheels of them. pyproject.toml has everything else.

The environment variable `ELMO_BUILD_MACHINE` names the machine that libraries are compiled for, which a
cross-compiler in CC, CXX and LDCXXSHARED makes; `none` is for a wheel without them. If it is set, a library
that cannot be compiled is an error.
"""

import copy
import os
import platform
from glob import glob
from pathlib import Path
from typing import Dict, List, Tuple

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

BUILD_MACHINE = os.environ.get("ELMO_BUILD_MACHINE", "")

# The fast kernel of frozen biLMs, compiled once for each vector unit; simd/library.py loads the fastest that
# the processor has and that was compiled. Without a compiler the package installs all the same and runs
# slower, see docs/speed.md. The names of the units are those of `VECTOR_UNITS` in simd/library.py.
AVX512 = ["-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mfma"]
X86_UNITS = {
    "amx": [*AVX512, "-mavx512vnni", "-mamx-tile", "-mamx-bf16", "-mamx-int8"],
    "avx512_bf16": [*AVX512, "-mavx512vnni", "-mavx512bf16"],
    "avx512_vnni": [*AVX512, "-mavx512vnni"],
    "avx512": AVX512,
    "avx2": ["-mavx2", "-mfma"],
}
ARM_UNITS: Dict[str, List[str]] = {"neon_dotprod": ["-march=armv8.2-a+dotprod"], "neon": []}
UNITS_OF_MACHINES = {
    "x86_64": X86_UNITS,
    "aarch64": ARM_UNITS,
    "arm64": ARM_UNITS,
}


COMPILER_FLAGS = [
    *("-O3", "-std=c++17", "-pthread", "-Wall", "-Wextra"),
    # GCC's own headers of intrinsics, before GCC 13; and vectors as arguments, which are all inlined.
    *("-Wno-uninitialized", "-Wno-maybe-uninitialized", "-Wno-psabi"),
    # Debugging information is several times as large as the code.
    "-g0",
    # Python's own flags may have it; with it, GCC keeps fewer vectors in registers.
    "-fno-wrapv",
    # A row has the same result, to the bit, whichever rows it is multiplied with.
    "-ffp-contract=off",
]


def vector_unit_extension(unit: str, flags: List[str]) -> Extension:
    return Extension(
        f"elmo_plugin.bilm.simd._{unit}",
        ["elmo_plugin/bilm/simd/simd.cpp"],
        depends=glob("elmo_plugin/bilm/simd/*.h"),
        language="c++",
        extra_compile_args=[*COMPILER_FLAGS, *flags],
        # Whoever installs from source runs slower without it; whoever publishes a wheel must know.
        optional=not BUILD_MACHINE,
    )


class BuildLibraries(build_ext):
    """They are no modules of Python: one file serves all versions of it."""

    def get_ext_filename(self, fullname: str) -> str:
        return str(Path(*fullname.split("."))) + ".so"

    def finalize_options(self) -> None:
        super().finalize_options()
        self.parallel = self.parallel or True  # on all processors

    def build_extension(self, ext: Extension) -> None:
        # All are of one source, so each needs a folder for what is made of it.
        command = copy.copy(self)
        command.build_temp = str(Path(self.build_temp) / ext.name)
        build_ext.build_extension(command, ext)

    def copy_extensions_to_source(self) -> None:
        # Where this source did not compile, no library of an older one stays.
        for ext in self.extensions:
            Path(self.get_ext_filename(ext.name)).unlink(missing_ok=True)
        super().copy_extensions_to_source()


class PlatformWheel(bdist_wheel):
    """A wheel for every Python 3 of a platform."""

    def finalize_options(self) -> None:
        if BUILD_MACHINE not in ("", "none"):
            self.plat_name = f"linux_{BUILD_MACHINE}"
        super().finalize_options()

    def get_tag(self) -> Tuple[str, str, str]:
        return "py3", "none", super().get_tag()[2]


# Tests and attacks import this file, for the compiler's flags.
if __name__ == "__main__":
    units = UNITS_OF_MACHINES.get(BUILD_MACHINE or platform.machine(), {})
    setup(
        cmdclass={"bdist_wheel": PlatformWheel, "build_ext": BuildLibraries},
        ext_modules=[vector_unit_extension(*unit) for unit in units.items()],
    )
