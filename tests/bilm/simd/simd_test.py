"""simd_test.cpp on emulated ARM processors; `attacks.sanitizers` and the tests of runners are for x86-64."""

import shutil
import subprocess
from pathlib import Path

import pytest

from setup import ARM_UNITS, COMPILER_FLAGS

ROOT = Path(__file__).parents[3]

COMPILER = shutil.which("aarch64-linux-gnu-g++")
EMULATOR = shutil.which("qemu-aarch64") or shutil.which("qemu-aarch64-static")


@pytest.mark.slow
@pytest.mark.skipif(
    COMPILER is None or EMULATOR is None,
    reason="needs aarch64-linux-gnu-g++ and qemu-aarch64 (Debian: g++-aarch64-linux-gnu, qemu-user)",
)
@pytest.mark.parametrize("unit", ARM_UNITS)
def test_arm_emulated(unit: str, tmp_path: Path) -> None:
    program = tmp_path / "simd_test"
    flags = ["-static", *COMPILER_FLAGS, *ARM_UNITS[unit]]
    sources = ["-I", ROOT / "elmo_plugin" / "bilm" / "simd", Path(__file__).with_suffix(".cpp")]
    subprocess.run([COMPILER, *flags, *sources, "-o", program], check=True, timeout=600)
    result = subprocess.run(
        [EMULATOR, program], capture_output=True, text=True, timeout=600, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.count("passed") == 4
