"""What setup.py makes of the C++."""

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path
from typing import List

import pytest

from elmo_plugin.bilm.simd.library import VECTOR_UNITS, missing_features

ROOT = Path(__file__).parents[3]

UNITS = [unit.name for unit in VECTOR_UNITS if missing_features(unit) is not None]

# A compiler that does not know some flags, and for which each warning is an error.
COMPILER = """\
#!/bin/sh
for flag in "$@"; do
  case "$flag" in {unknown}) echo "g++: error: unrecognized command-line option '$flag'" >&2; exit 1 ;; esac
done
exec g++ "$@" -O0 -Werror
"""


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="needs x86-64")
@pytest.mark.parametrize(
    "unknown, lacking",
    [
        ("-mno-such-flag", []),
        ("-mavx512bf16|-mavx512vnni", ["avx512_bf16", "avx512_vnni"]),
        ("-*", UNITS),
    ],
)
def test_an_older_compiler_costs_the_vector_units_that_it_does_not_know(
    unknown: str, lacking: List[str], tmp_path: Path
) -> None:
    compiler = tmp_path / "g++"
    compiler.write_text(COMPILER.format(unknown=unknown))
    compiler.chmod(0o755)
    folders = ["--build-lib", tmp_path / "lib", "--build-temp", tmp_path / "tmp"]
    subprocess.run(
        [sys.executable, "setup.py", "--quiet", "build_ext", *folders],
        cwd=ROOT,
        env={**os.environ, "CC": str(compiler), "CXX": str(compiler)},
        check=True,
        timeout=600,
    )
    compiled = {path.stem[1:] for path in tmp_path.glob("lib/elmo_plugin/bilm/simd/*.so")}
    assert compiled == set(UNITS) - set(lacking)
