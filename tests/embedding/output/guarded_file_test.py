import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import h5py
import numpy
import pytest

from elmo_plugin.embedding.output.guarded_file import GuardedFile, WriteError


@pytest.fixture
def small_disk(monkeypatch: pytest.MonkeyPatch) -> int:
    """Only so many bytes of a file can be written."""
    limit, pwrite = 5000, os.pwrite

    def limited(handle: int, data: Any, position: int) -> int:
        room = limit - position
        if room <= 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return pwrite(handle, bytes(data)[:room], position)

    monkeypatch.setattr(os, "pwrite", limited)
    return limit


def test_hdf5_writes_what_it_writes_by_itself(tmp_path: Path) -> None:
    guarded = GuardedFile(tmp_path / "guarded.hdf5")
    for target in (guarded, tmp_path / "plain.hdf5"):
        with h5py.File(target, "w") as file:
            for number in range(100):
                file.create_dataset(str(number), data=numpy.full((3, number), number, "float32"))
    guarded.close()
    guarded.check()
    with h5py.File(tmp_path / "guarded.hdf5") as file:
        assert len(file) == 100
        assert (file["99"][...] == 99).all()


def test_a_failure_is_kept_until_it_is_asked_for(tmp_path: Path, small_disk: int) -> None:
    guarded = GuardedFile(tmp_path / "file")
    assert guarded.write(b"a" * 4000) == 4000
    guarded.check()
    assert guarded.write(b"b" * 4000) == 4000
    with pytest.raises(WriteError, match="No space left"):
        guarded.check()
    assert guarded.tell() == guarded.seek(0, os.SEEK_END) == 8000
    guarded.close()
    assert (tmp_path / "file").stat().st_size == small_disk


def test_what_could_not_be_written_is_read_back(tmp_path: Path, small_disk: int) -> None:
    guarded = GuardedFile(tmp_path / "file")
    guarded.write(b"a" * 4000 + b"b" * 4000)
    guarded.seek(7000)
    guarded.write(b"c" * 500)
    guarded.seek(-1000, os.SEEK_CUR)
    assert guarded.read(2000) == b"b" * 500 + b"c" * 500 + b"b" * 500 + bytes(500)
    guarded.seek(3999)
    assert guarded.read(3502) == b"a" + b"b" * 3000 + b"c" * 500 + b"b"
    guarded.close()


def test_hdf5_is_closed_in_order_where_writing_fails(tmp_path: Path) -> None:
    """In a process of its own, since HDF5 crashes it where a plain file fails."""
    script = """
import resource, sys, h5py, numpy
from elmo_plugin.embedding.output.guarded_file import GuardedFile
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
guarded = GuardedFile(sys.argv[1])
file = h5py.File(guarded, "w")
try:
    for number in range(1000):
        file.create_dataset(str(number), data=numpy.zeros((3, 5, 12), "float32"))
        guarded.check()
finally:
    file.close()
    guarded.close()
    print("closed")
"""
    result = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "file.hdf5")],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert result.stdout.strip() == "closed"
    assert result.returncode == 1
    assert result.stderr.strip().splitlines()[-1].endswith("WriteError: [Errno 27] File too large")
    assert "Exception ignored" not in result.stderr
