"""Files that appear complete or not at all."""

import os
import tempfile
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Iterator, Union


@contextmanager
def replaced_file(path: Union[str, PathLike]) -> Iterator[Path]:
    """
    Another path to write to, in the same folder. On success the file there replaces `path`; on failure it is
    removed, and what stood at `path` stays.

    # Raises

    `OSError` if the folder cannot be written.
    """
    path = Path(path)
    handle, partial_name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    os.close(handle)
    partial_file = Path(partial_name)
    try:
        yield partial_file
        # mkstemp makes files that only their owner may read; an ordinary file follows the umask.
        umask = os.umask(0)
        os.umask(umask)
        partial_file.chmod(0o666 & ~umask)
        os.replace(partial_file, path)
    except BaseException:
        partial_file.unlink(missing_ok=True)
        raise
