"""Write a file that appears complete or not at all."""

import os
import secrets
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Iterator, Union


@contextmanager
def replaced_file(path: Union[str, PathLike]) -> Iterator[Path]:
    """
    Give a temporary path to write to, in the same folder. At the end of the context the temporary file, which
    must be closed, is synced to the disk and replaces `path`. On an error it is removed, and `path` is not
    changed.

    # Raises

    `OSError` if the folder cannot be written.
    """
    path = Path(path)
    partial_file = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        yield partial_file
        # Network disks and quotas may report a failed write only now.
        with open(partial_file, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(partial_file, path)
    except BaseException:
        partial_file.unlink(missing_ok=True)
        raise
