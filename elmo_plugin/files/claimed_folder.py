"""Lock a folder, so that one process at a time uses it."""

from contextlib import contextmanager
from pathlib import Path
from typing import Iterator

import filelock

from elmo_plugin.errors import ConfigurationError

LOCK_NAME = "lock"


@contextmanager
def claimed_folder(folder: Path, error_message: str) -> Iterator[None]:
    """
    Lock a folder within the context. The folder is made if it does not exist. When the process ends or is
    killed, the system releases the lock.

    # Parameters

    folder : `Path`
        The folder. A file `lock` is made in it and is not removed.
    error_message : `str`
        Says that another process uses the folder, and what to do.

    # Raises

    `ConfigurationError` with this message if another process has the lock; `OSError` if the folder cannot be
    made.
    """
    folder.mkdir(parents=True, exist_ok=True)
    lock = filelock.FileLock(folder / LOCK_NAME)
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout as error:
        raise ConfigurationError(error_message) from error
    try:
        yield
    finally:
        lock.release()
