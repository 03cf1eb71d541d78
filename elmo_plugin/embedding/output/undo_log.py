"""What a file held before it was overwritten, so that a killed program's file can be put back."""

import os
import struct
import zlib
from os import PathLike
from typing import List, Tuple, Union

_RECORD = struct.Struct("<QQI")  # position, number of bytes, their CRC-32


class UndoLog:
    """
    The bytes of a file below `length` that were overwritten, in a file of its own. Each stands here before it
    is overwritten there, so that the file can be put back whenever the program is killed.

    # Parameters

    path : `str` or `PathLike`
        Of the log; written anew.
    length : `int`
        How much of the file is protected. What is added beyond needs no log: it is cut off.

    # Raises

    `OSError` if the log cannot be written.
    """

    def __init__(self, path: Union[str, PathLike], length: int) -> None:
        self.path = path
        self.length = length
        self._log = open(path, "wb", buffering=0)  # noqa: SIM115 - closed by close()

    def keep(self, handle: int, position: int, size: int) -> None:
        """
        To be called before `size` bytes at `position` of the file are overwritten or cut off.

        # Raises

        `OSError` if they cannot be kept.
        """
        size = min(position + size, self.length) - position
        if size > 0:
            held = os.pread(handle, size, position)
            record = _RECORD.pack(position, len(held), zlib.crc32(held)) + held
            if self._log.write(record) != len(record):
                raise OSError(f"{self.path}: a record was cut short")

    def close(self) -> None:
        """Close the log; it stays."""
        self._log.close()


def roll_back(path: Union[str, PathLike], log: Union[str, PathLike], length: int) -> None:
    """
    Put a file back to what it was when its log was begun.

    # Parameters

    path : `str` or `PathLike`
        The file.
    log : `str` or `PathLike`
        Of its `UndoLog`. If there is none, nothing was overwritten.
    length : `int`
        How long it was.
    """
    records = _records(log) if os.path.exists(log) else []
    with open(path, "r+b") as file:
        # What was overwritten twice stands in the log twice, the older bytes first.
        for position, held in reversed(records):
            file.seek(position)
            file.write(held)
        file.truncate(length)
        file.flush()
        os.fsync(file.fileno())


def _records(log: Union[str, PathLike]) -> List[Tuple[int, bytes]]:
    """Whole records: before the end of the last one stands there, nothing is overwritten."""
    records = []
    with open(log, "rb") as file:
        while len(header := file.read(_RECORD.size)) == _RECORD.size:
            position, size, checksum = _RECORD.unpack(header)
            held = file.read(size)
            if len(held) != size or zlib.crc32(held) != checksum:
                break
            records.append((position, held))
    return records
