"""simd_test.cpp on emulated ARM processors, and with sanitizers on the vector units of this one."""

import importlib.util
import os
import platform
import shutil
import subprocess
from pathlib import Path
from types import ModuleType
from typing import List

import pytest

from elmo_plugin.bilm.simd.library import VECTOR_UNITS, missing_features

ROOT = Path(__file__).parents[3]

ARM_COMPILER = shutil.which("aarch64-linux-gnu-g++")
ARM_EMULATOR = shutil.which("qemu-aarch64") or shutil.which("qemu-aarch64-static")

UNITS = [unit.name for unit in VECTOR_UNITS if missing_features(unit) == ()]
# With the optimization with which compiling and running take the least time together.
SANITIZERS = {
    "address": ["-O0", "-fsanitize=address"],
    "threads": ["-O1", "-fsanitize=thread"],
    "undefined behavior": ["-O1", "-fsanitize=undefined", "-fno-sanitize-recover=all"],
}
# `make sanitize` tests all of them; other commands the fastest unit, with what is compiled in seconds.
if "ELMO_SANITIZE_ALL" not in os.environ:
    del UNITS[1:], SANITIZERS["undefined behavior"]

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def setup_script() -> ModuleType:
    """The module setup.py, which has the compiler's flags."""
    specification = importlib.util.spec_from_file_location("setup_script", ROOT / "setup.py")
    module = importlib.util.module_from_spec(specification)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("setuptools.setup", lambda **arguments: None)
        specification.loader.exec_module(module)
    return module


def run_test_program(compiler: List[str], runner: List[str], folder: Path) -> None:
    program = folder / "simd_test"
    sources = ["-I", ROOT / "elmo_plugin" / "bilm" / "simd", Path(__file__).with_suffix(".cpp")]
    subprocess.run([*compiler, *sources, "-o", program], check=True, timeout=600)
    result = subprocess.run(
        [*runner, program], capture_output=True, text=True, timeout=600, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.count("passed") == 4


@pytest.mark.skipif(
    ARM_COMPILER is None or ARM_EMULATOR is None,
    reason="needs aarch64-linux-gnu-g++ and qemu-aarch64 (Debian: g++-aarch64-linux-gnu, qemu-user)",
)
@pytest.mark.parametrize("unit", ["neon", "neon_dotprod"])
def test_arm_emulated(unit: str, setup_script: ModuleType, tmp_path: Path) -> None:
    flags = [*setup_script.COMPILER_FLAGS, *setup_script.ARM_UNITS[unit]]
    run_test_program([ARM_COMPILER, "-static", *flags], [ARM_EMULATOR], tmp_path)


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
@pytest.mark.parametrize("sanitizer", SANITIZERS)
@pytest.mark.parametrize("unit", UNITS)
def test_with_sanitizers(
    unit: str, sanitizer: str, setup_script: ModuleType, tmp_path: Path
) -> None:
    units = setup_script.UNITS_OF_MACHINES.get(platform.machine(), {})
    flags = [*setup_script.COMPILER_FLAGS, *units.get(unit, []), *SANITIZERS[sanitizer]]
    run_test_program(["g++", *flags], [], tmp_path)
