"""A limit on what compressed files expand to: a small one can expand to more than a disk holds."""

import gzip
import os
import zipfile
from typing import Optional

from elmo_plugin.errors import ConfigurationError
from elmo_plugin.files.text import MAX_BYTES, FileName

# Weights hardly shrink. Zeros shrink a thousandfold.
MAX_EXPANSION = 100


def check_expansion(path: FileName, num_bytes: int) -> None:
    """
    Raise `ConfigurationError` if a compressed file expands to more than `MAX_EXPANSION` times its size, and
    `MAX_BYTES`.
    """
    size = os.stat(path).st_size
    if num_bytes > MAX_EXPANSION * size + MAX_BYTES:
        raise ConfigurationError(
            f"{path}: its {size:,} bytes expand to {num_bytes:,} or more, expected at most {MAX_EXPANSION} "
            "times its size. Do not trust this file; get it from another source."
        )


def check_zip(path: FileName) -> None:
    """Raise as `check_expansion` for a zip file, such as weights that torch has saved. Other files pass."""
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            check_expansion(path, sum(member.file_size for member in archive.infolist()))


class BoundedGzipFile(gzip.GzipFile):
    """Reads a compressed file. Raise `ConfigurationError` as `check_expansion`, before too much is read."""

    def __init__(self, path: FileName) -> None:
        super().__init__(path, "rb")
        self._path = path

    def read(self, size: Optional[int] = -1) -> bytes:
        check_expansion(self._path, self.tell() + max(size or 0, 0))
        return super().read(size)
