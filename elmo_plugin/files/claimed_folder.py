"""Folders that one process at a time may use."""

from contextlib import contextmanager
from pathlib import Path
from typing import Iterator

import filelock

from elmo_plugin.errors import ConfigurationError

LOCK_NAME = "lock"


@contextmanager
def claimed_folder(folder: Path, error_message: str) -> Iterator[None]:
    """
    Lock a folder within the context. It is made if it is not there. The system releases the lock when the
    process ends, also when it is killed.

    # Parameters

    folder : `Path`
        Gets a file `lock`, which stays.
    error_message : `str`
        What the other process does, and what to do.

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
