"""Files for the HDF5 library, which crashes the process when a write fails."""

import io
import os
from pathlib import Path
from typing import Any, List, Optional, Tuple


class GuardedFile(io.FileIO):
    """
    A file for `h5py.File` that hides write errors from the HDF5 library.

    After a failed write, as on a full disk, the HDF5 library continues and crashes when it closes the file.
    This file keeps in memory what could not be written, so that the library can close it as usual, and raises
    the error at the end of the `with` block. Check `raise_error` often, since writes after an error take
    memory.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path, "x+")
        self.error: Optional[OSError] = None
        self._unwritten: List[Tuple[int, bytes]] = []  # positions and what belongs there

    def raise_error(self) -> None:
        """Raise the error of the first failed write, if there was one."""
        if self.error is not None:
            raise OSError(self.error.errno, self.error.strerror) from self.error

    def __exit__(self, *exception: Any) -> None:
        try:
            if self.error is None:
                os.fsync(self.fileno())
        finally:
            super().__exit__(*exception)
        if exception[0] is None:
            self.raise_error()

    # h5py calls these methods:

    def write(self, data: Any) -> int:
        rest = memoryview(data).cast("B")
        size = len(rest)
        try:
            while self.error is None and rest:
                rest = rest[super().write(rest) :]
        except OSError as error:
            self.error = error
        if rest:
            position = self.tell()
            self._unwritten.append((position, bytes(rest)))
            self.seek(position + len(rest))
        return size

    def readinto(self, buffer: Any) -> int:
        """Fill the buffer, with zeros after the end of the file, as HDF5's own drivers do."""
        view = memoryview(buffer).cast("B")
        start, end = self.tell(), self.tell() + len(view)
        view[:] = bytes(len(view))
        super().readinto(view)
        for position, data in self._unwritten:
            first, last = max(start, position), min(end, position + len(data))
            if first < last:
                view[first - start : last - start] = data[first - position : last - position]
        self.seek(end)
        return len(view)

    def truncate(self, size: Any = None) -> int:
        try:
            if self.error is None:
                super().truncate(size)
        except OSError as error:
            self.error = error
        return int(size)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        position = super().seek(offset, whence)
        ends = [start + len(data) for start, data in self._unwritten]
        if whence == os.SEEK_END and ends and max(ends) > position:
            position = super().seek(max(ends) + offset)
        return position
