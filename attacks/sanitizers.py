"""
Attacks on the C++ compiled with a sanitizer of GCC. It finds what may leave the numbers right: memory beyond
a tensor, threads that do not wait for each other, undefined operations.

    make sanitize                                      # each sanitizer, each vector unit of the processor
    python -m attacks.sanitizers threads --trials 500 --seed 7
    ELMO_CPU_CAPABILITY=avx2 python -m attacks.sanitizers address

It needs Linux, and the compiler in CXX or g++. The exit status is 1 if one found something.
"""

import argparse
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Dict, List, NamedTuple

from attacks.models import OWN_THREADS
from elmo_plugin.bilm.simd.library import VECTOR_UNITS, missing_features
from setup import COMPILER_FLAGS, UNITS_OF_MACHINES

ROOT = Path(__file__).parents[1]
SIMD = Path("elmo_plugin/bilm/simd")
COMPILER = os.environ.get("CXX", "g++")
ATTACKS = ["layers", "encoders", "models", "threads"]


class Sanitizer(NamedTuple):
    """How the C++ is compiled, and what every program that loads it must load first, with its options."""

    flags: List[str]
    library: str
    options: Dict[str, str]


SANITIZERS = {
    # What Python and torch keep until the end is no leak of ours. Optimizing takes longer than it saves.
    "address": Sanitizer(
        ["-O0", "-fsanitize=address"], "libasan.so", {"ASAN_OPTIONS": "detect_leaks=0"}
    ),
    # It follows only what is compiled with it. Arrow has more locks than it can watch for deadlocks.
    "threads": Sanitizer(
        ["-O1", "-fsanitize=thread"],
        "libtsan.so",
        {
            "TSAN_OPTIONS": "halt_on_error=1 ignore_noninstrumented_modules=1 detect_deadlocks=0",
            OWN_THREADS: "1",
        },
    ),
    "undefined": Sanitizer(
        ["-O1", "-fsanitize=undefined", "-fno-sanitize-recover=all"],
        "libubsan.so",
        {"UBSAN_OPTIONS": "print_stacktrace=1"},
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m attacks.sanitizers",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"of {', '.join(SANITIZERS)} (default: all)"
    )
    parser.add_argument(
        "--attacks",
        nargs="+",
        default=ATTACKS,
        metavar="NAME",
        help=f"of python -m attacks --list (default: {' '.join(ATTACKS)})",
    )
    parser.add_argument("--trials", type=int, default=200, help="of each attack (default: 200)")
    parser.add_argument(
        "--seed", type=int, default=0, help="other seeds make other trials (default: 0)"
    )
    arguments = parser.parse_args()
    unknown = [name for name in arguments.names if name not in SANITIZERS]
    if unknown:
        parser.error(f"unknown sanitizer {unknown[0]}, expected some of: {', '.join(SANITIZERS)}")
    # All are tried, whatever the first ones find.
    results = [
        attack_with(name, arguments.attacks, arguments.trials, arguments.seed)
        for name in arguments.names or SANITIZERS
    ]
    sys.exit(max(results))


def attack_with(name: str, attacks: List[str], trials: int, seed: int) -> int:
    """Run attacks on the C++ with a sanitizer, and return their exit status."""
    sanitizer = SANITIZERS[name]
    print(f"Compiling with the sanitizer '{name}' ...", flush=True)
    with tempfile.TemporaryDirectory(prefix="sanitizer-") as folder:
        copy = Path(folder)
        link_package(copy)
        compile_units(sanitizer, copy / SIMD)
        runtime = subprocess.run(
            [COMPILER, f"-print-file-name={sanitizer.library}"],
            capture_output=True,
            text=True,
            check=True,
        )
        # In one process: sanitizers do not survive a fork of one that has threads.
        command = [sys.executable, "-m", "attacks", *attacks, "--seed", str(seed), "--repeat"]
        return subprocess.run(
            [*command, *map(str, range(trials))],
            env={**os.environ, **sanitizer.options, "LD_PRELOAD": runtime.stdout.strip()},
            cwd=copy,
            check=False,
        ).returncode


def link_package(copy: Path) -> None:
    """Make links to all that attacks need of this repository, but the compiled libraries."""
    for name in ("attacks", "elmo_plugin", "fixtures", "tests"):
        without_libraries = shutil.ignore_patterns("*.so")
        shutil.copytree(
            ROOT / name, copy / name, copy_function=os.symlink, ignore=without_libraries
        )


def compile_units(sanitizer: Sanitizer, folder: Path) -> None:
    """Compile a library for each vector unit of this processor."""

    def compile_unit(unit: str) -> None:
        flags = [*COMPILER_FLAGS, *UNITS_OF_MACHINES[platform.machine()][unit]]
        # Reports name the lines.
        flags += [*sanitizer.flags, "-g1", "-shared", "-fPIC"]
        source = ROOT / SIMD / "simd.cpp"
        subprocess.run([COMPILER, *flags, source, "-o", folder / f"_{unit}.so"], check=True)

    units = [unit.name for unit in VECTOR_UNITS if missing_features(unit) == ()]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(compile_unit, units))


if __name__ == "__main__":
    main()
