"""A folder that one process has to itself."""

from contextlib import contextmanager
from pathlib import Path
from typing import Iterator

import filelock

from elmo_plugin.errors import ConfigurationError

LOCK_NAME = "lock"


@contextmanager
def claimed_folder(folder: Path, otherwise: str) -> Iterator[None]:
    """
    Have a folder to oneself, made if need be. The system lets go of it when the process ends, however that
    comes about.

    # Parameters

    folder : `Path`
        Gets a file `lock`, which stays.
    otherwise : `str`
        The error if another process has it: what it does, and what to do.

    # Raises

    `ConfigurationError` if another process has it; `OSError` if it cannot be made.
    """
    folder.mkdir(parents=True, exist_ok=True)
    lock = filelock.FileLock(folder / LOCK_NAME)
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout as error:
        raise ConfigurationError(otherwise) from error
    try:
        yield
    finally:
        lock.release()
