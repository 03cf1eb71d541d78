"""A `.npy` file that grows."""

import io
import os
from pathlib import Path
from typing import Tuple

import numpy
from numpy.lib import format as npy_format


class AppendedArray:
    """
    An array in a `.npy` file to whose first dimension items are added. The file can be read after `close`.

    # Parameters

    path : `Path`
        Of the file.
    item_shape : `Tuple[int, ...]`
        Of one item.
    dtype : `str`
        Of the array.
    num_items : `int`, optional (default = 0)
        How many items of the file to keep; there is no need of the file for 0.

    # Raises

    `OSError` if the file cannot be written.
    """

    def __init__(
        self, path: Path, item_shape: Tuple[int, ...], dtype: str, num_items: int = 0
    ) -> None:
        self.num_items = num_items
        self._item_shape = item_shape
        self._dtype = numpy.dtype(dtype)
        header = self._header()
        item_bytes = self._dtype.itemsize * int(numpy.prod(item_shape, dtype="int64"))
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        self._file = open(handle, "r+b")  # noqa: SIM115 - closed by close()
        self._file.write(header)
        self._file.truncate(len(header) + num_items * item_bytes)
        self._file.seek(0, os.SEEK_END)

    def append(self, items: numpy.ndarray) -> None:
        """Add items, `(num_items, *item_shape)`."""
        self._file.write(numpy.ascontiguousarray(items, dtype=self._dtype).data)
        self.num_items += len(items)

    def sync(self) -> None:
        """Have the disk hold what was added."""
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Write how many items there are, and close the file."""
        try:
            self._file.seek(0)
            self._file.write(self._header())
            self.sync()
        finally:
            self._file.close()

    def _header(self) -> bytes:
        # numpy leaves room for as many items as there can be, so that all headers are equally long.
        header = io.BytesIO()
        npy_format.write_array_header_1_0(
            header,
            {
                "descr": npy_format.dtype_to_descr(self._dtype),
                "fortran_order": False,
                "shape": (self.num_items, *self._item_shape),
            },
        )
        return header.getvalue()
