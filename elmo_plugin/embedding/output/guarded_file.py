"""A file under HDF5 that remembers the first failure instead of raising it."""

import os
from os import PathLike
from typing import List, Optional, Tuple, Union

from elmo_plugin.embedding.output.undo_log import UndoLog


class WriteError(OSError):
    """Something could not be written."""


class GuardedFile:
    """
    A file for `h5py.File` that never fails towards HDF5.

    Where a write fails, as on a full disk, the HDF5 library goes on, prints errors from destructors, and
    crashes when it closes the file. This one keeps what could not be written in memory, so that the library
    can be closed in order; `check` then raises. What is written after a failure should be little.

    # Parameters

    path : `str` or `PathLike`
        Is written anew, or written on if it exists.

    # Attributes

    undo_log : `UndoLog`, optional
        If set, takes what is overwritten.

    # Raises

    `OSError` if it cannot be opened.
    """

    def __init__(self, path: Union[str, PathLike]) -> None:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        self._file = open(handle, "r+b", buffering=0)  # noqa: SIM115 - closed by close()
        self.undo_log: Optional[UndoLog] = None
        self._position = 0
        self._error: Optional[OSError] = None
        self._unwritten: List[Tuple[int, bytes]] = []  # positions and what belongs there

    def check(self) -> None:
        """Raise `WriteError` if something failed."""
        if self._error is not None:
            reason = self._error.strerror or str(self._error)
            raise WriteError(self._error.errno, reason) from self._error

    def sync(self) -> int:
        """The length of the file, when its content is on the disk; raises nothing, see `check`."""
        try:
            # Network disks and quotas may refuse what they seemed to take.
            os.fsync(self._file.fileno())
        except OSError as error:
            self._error = self._error or error
        return os.fstat(self._file.fileno()).st_size

    def close(self) -> None:
        """Close the file when its content is on the disk; raises nothing, see `check`."""
        self.sync()
        self._file.close()

    # What h5py calls:

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        if whence == os.SEEK_END:
            ends = [position + len(data) for position, data in self._unwritten]
            offset += max([os.fstat(self._file.fileno()).st_size, *ends])
        elif whence == os.SEEK_CUR:
            offset += self._position
        self._position = offset
        return offset

    def tell(self) -> int:
        return self._position

    def read(self, size: int) -> bytes:
        buffer = bytearray(size)
        return bytes(buffer[: self.readinto(buffer)])

    def readinto(self, buffer: Union[bytearray, memoryview]) -> int:
        """Fills the buffer, with zeros where the file has nothing, as HDF5's own drivers do."""
        view = memoryview(buffer).cast("B")
        start, size = self._position, len(view)
        view[:] = bytes(size)
        try:
            stored = os.pread(self._file.fileno(), size, start)
            view[: len(stored)] = stored
        except OSError as error:
            self._error = self._error or error
        for position, data in self._unwritten:
            first, last = max(start, position), min(start + size, position + len(data))
            if first < last:
                view[first - start : last - start] = data[first - position : last - position]
        self._position += size
        return size

    def write(self, data: bytes) -> int:
        rest = memoryview(data).cast("B")
        size = len(rest)
        try:
            if self._error is None and self.undo_log is not None:
                self.undo_log.keep(self._file.fileno(), self._position, size)
            while self._error is None and rest:
                num_written = os.pwrite(self._file.fileno(), rest, self._position)
                self._position += num_written
                rest = rest[num_written:]
        except OSError as error:
            self._error = error
        if rest:
            self._unwritten.append((self._position, bytes(rest)))
            self._position += len(rest)
        return size

    def truncate(self, size: int) -> int:
        try:
            if self._error is None:
                if self.undo_log is not None:
                    self.undo_log.keep(self._file.fileno(), size, self.undo_log.length)
                os.ftruncate(self._file.fileno(), size)
        except OSError as error:
            self._error = error
        return size

    def flush(self) -> None:
        pass  # nothing is buffered
