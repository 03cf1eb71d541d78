"""Files that appear complete or not at all."""

import os
import secrets
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Iterator, Union


@contextmanager
def replaced_file(path: Union[str, PathLike]) -> Iterator[Path]:
    """
    Give another path to write to, in the same folder. On success the file there, which must be closed by
    then, is put on the disk and replaces `path`; on failure it is removed, and what stood at `path` stays.

    # Raises

    `OSError` if the folder cannot be written.
    """
    path = Path(path)
    partial_file = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        yield partial_file
        # Network disks and quotas may refuse only now what they seemed to take.
        with open(partial_file, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(partial_file, path)
    except BaseException:
        partial_file.unlink(missing_ok=True)
        raise
