"""Write files by libraries of C++, on disks that may become full."""

import io
import os
from typing import Any, Optional


class FailSafeFile(io.FileIO):
    """
    A file for `h5py.File`, `torch.save` and `torch.export.save`, whose write errors are hidden from the
    library.

    After a failed write, as on a full disk, HDF5 crashes the process when it closes the file, and
    `torch.export` does so when it writes the end of the file; after an interrupt, `torch.save` does. This
    file accepts and drops all that is written after an error, or an interrupt in it, and raises the error at
    the end of its context.
    """

    _error: Optional[BaseException] = None

    def raise_error(self) -> None:
        """Raise the error of the first failed write, or the interrupt in it, if there was one."""
        if isinstance(self._error, OSError):
            raise OSError(self._error.errno, self._error.strerror) from self._error
        if self._error is not None:
            raise self._error

    def __exit__(self, *exception: Any) -> None:
        try:
            self.raise_error()  # also if HDF5 has failed, because it did not find what was dropped
            os.fsync(self.fileno())
        finally:
            super().__exit__(*exception)

    # The libraries call these methods:

    def write(self, data: Any) -> int:
        rest = memoryview(data).cast("B")
        size = len(rest)
        try:
            while self._error is None and rest:
                rest = rest[super().write(rest) :]
        except BaseException as error:
            self._error = error
        return size

    def readinto(self, buffer: Any) -> int:
        """Fill the buffer, with zeros after the end of the file, as HDF5's own drivers do."""
        view = memoryview(buffer).cast("B")
        view[:] = bytes(len(view))
        super().readinto(view)
        return len(view)

    def truncate(self, size: Any = None) -> int:
        try:
            super().truncate(size)
        except BaseException as error:
            self._error = self._error or error
        return int(size)
