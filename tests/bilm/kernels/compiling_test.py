"""What setup.py makes of avx512.cpp."""

import ctypes
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path
from typing import List, Optional

import pytest

ROOT = Path(__file__).parents[3]

pytestmark = [
    pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++"),
    pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="needs x86-64"),
]

# An assembler that does not know some instructions, and a compiler for which each warning is an error.
COMPILER = """\
#!/bin/sh
for macro in {needed}; do
  case "$*" in *-D$macro*|*.so) ;; *) echo "Error: no such instruction" >&2; exit 1 ;; esac
done
exec g++ "$@" -O0 -Werror
"""


@pytest.mark.parametrize(
    "needed, weight_bytes",
    [
        ([], [4, 2, 1]),
        (["ELMO_WITHOUT_BFLOAT16"], [4, 1]),
        (["ELMO_WITHOUT_BFLOAT16", "ELMO_WITHOUT_INT8"], [4]),
        (["ELMO_WITHOUT_ANYTHING"], None),
    ],
)
def test_an_older_assembler_costs_the_precisions_that_it_does_not_know(
    needed: List[str], weight_bytes: Optional[List[int]], tmp_path: Path
) -> None:
    compiler = tmp_path / "g++"
    compiler.write_text(COMPILER.format(needed=" ".join(needed)))
    compiler.chmod(0o755)
    folders = ["--build-lib", tmp_path / "lib", "--build-temp", tmp_path / "tmp"]
    subprocess.run(
        [sys.executable, "setup.py", "--quiet", "build_ext", *folders],
        cwd=ROOT,
        env={**os.environ, "CC": str(compiler), "CXX": str(compiler)},
        check=True,
        timeout=600,
    )
    libraries = list(tmp_path.glob("lib/**/_avx512*.so"))
    if weight_bytes is None:
        assert not libraries
        return
    (library,) = libraries
    compiled = ctypes.CDLL(str(library))
    assert [size for size in (4, 2, 1) if compiled.has_type(size)] == weight_bytes
