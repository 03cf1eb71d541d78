"""A file that HDF5 can close normally after a failed write."""

import io
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from elmo_plugin.embedding.guarded_file import GuardedFile

WRITE_ON_A_SMALL_DISK = """
import resource, sys, h5py, numpy
from elmo_plugin.embedding.guarded_file import GuardedFile
limit = int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
try:
    with GuardedFile(sys.argv[1]) as guarded, h5py.File(guarded, "w") as file:
        for number in range(1000):
            file[str(number)] = numpy.zeros((3, 5, 12), "float32")
            guarded.raise_error()
except OSError as error:
    print("failed", error.errno)
"""


@pytest.mark.parametrize("limit", [0, 1000, 40_000, 200_000])
def test_hdf5_closes_it_normally_after_a_failed_write(tmp_path: Path, limit: int) -> None:
    """In a separate process, since HDF5 crashes it if a plain file fails."""
    result = subprocess.run(
        [sys.executable, "-c", WRITE_ON_A_SMALL_DISK, str(tmp_path / "file.hdf5"), str(limit)],
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert result.stdout.strip() == "failed 27", result.stderr
    assert result.returncode == 0 and "Exception ignored" not in result.stderr


def test_what_could_not_be_written_is_read_back(tmp_path: Path) -> None:
    class SmallDisk(io.FileIO):
        def write(self, data: Any) -> int:
            room = 5000 - self.tell()
            if room <= 0:
                raise OSError(28, os.strerror(28))
            return super().write(bytes(data)[:room])

    class Guarded(GuardedFile, SmallDisk):
        pass

    file = Guarded(tmp_path / "file")
    assert file.write(b"a" * 4000) == 4000 and file.error is None
    assert file.write(b"b" * 4000) == 4000
    assert file.tell() == file.seek(0, os.SEEK_END) == 8000
    file.seek(7000)
    file.write(b"c" * 500)
    buffer = bytearray(3502)
    file.seek(3999)
    assert file.readinto(buffer) == 3502
    assert bytes(buffer) == b"a" + b"b" * 3000 + b"c" * 500 + b"b"
    with pytest.raises(OSError, match="No space left"):
        file.raise_error()
    file.close()
    assert (tmp_path / "file").stat().st_size == 5000
