"""Write files safely: check the place before the work, lock folders, and replace files as a whole."""

import errno
import gzip
import os
import secrets
import shutil
import sys
from contextlib import ExitStack, contextmanager
from io import TextIOWrapper
from pathlib import Path
from typing import Any, Collection, Iterator, List, Optional, TextIO

import filelock

from elmo_plugin.errors import ConfigurationError
from elmo_plugin.files.text import STANDARD_STREAM, FileId, FileName, file_id, is_unicode

LOCK_NAME = "lock"
_PARTIAL_SUFFIX = ".partial"
_DISK_IS_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # or a quota, or a limit of file sizes


def check_output_file(path: FileName, overwrite: bool, what: str = "output") -> None:
    """
    Raise `ConfigurationError` if the path is a folder or a device, the file exists and may not be replaced,
    or its folder does not exist or cannot be written. `what` is its name in errors, such as that of an
    option.
    """
    if Path(path).is_dir():
        raise ConfigurationError(
            f"{what}: {path} is a folder, expected a file. Give the path of a file in it."
        )
    if Path(path).exists() and not Path(path).is_file():
        raise ConfigurationError(
            f"{what}: {path} is a device or a pipe, which cannot be replaced, expected a file. Give the path "
            "of a file."
        )
    _check_place(Path(path), overwrite, what)


def check_output_folder(path: FileName, overwrite: bool) -> None:
    """Raise `ConfigurationError` as `check_output_file`, of a folder that is to be made or replaced."""
    if Path(path).exists() and not Path(path).is_dir():
        raise ConfigurationError(
            f"output: {path} is a file, expected a new folder. Give another path."
        )
    _check_place(Path(path), overwrite, "output")


def check_name(path: FileName, what: str) -> None:
    """Raise `ConfigurationError` if no file should have this path, or no text can name it."""
    if str(path) == STANDARD_STREAM:
        raise ConfigurationError(
            f"{what}: found {path}, standard output, expected the path of a file or folder. Give one."
        )
    if "\0" in str(path):
        raise ConfigurationError(
            f"{what}: {str(path)!r} has a null character, expected the path of a file. Correct it."
        )
    if not is_unicode(str(path)):
        raise ConfigurationError(
            f"{what}: {str(path)!r} is not UTF-8, expected a path that can be written in UTF-8. Give another."
        )


def _check_place(path: Path, overwrite: bool, what: str) -> None:
    check_name(path, what)
    if path.exists() and not overwrite:
        raise ConfigurationError(
            f"{what}: {path} exists, expected a new path. Give another one, or --overwrite to replace it."
        )
    if path.is_symlink():
        path = Path(os.path.realpath(path))  # what it points to is replaced
    if not path.parent.is_dir():
        raise ConfigurationError(
            f"{what}: there is no folder {path.parent} to write {path.name} in. Make it first, or give "
            "another path."
        )
    # The file is written beside its final place and renamed, so the permissions of the folder matter.
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise ConfigurationError(
            f"{what}: the folder {path.parent} is not writable, expected a writable one. Change its "
            "permissions, or give another path."
        )


def check_free_space(path: FileName, num_bytes: int, advice: str) -> None:
    """
    Raise `ConfigurationError` if the disk has no room for a file of at least `num_bytes`. `advice` says what
    would make it smaller.
    """
    free = shutil.disk_usage(os.path.dirname(os.path.realpath(path))).free
    if free < num_bytes:
        raise ConfigurationError(
            f"output: {path} needs at least {num_bytes / 1e9:,.1f} GB, and {free / 1e9:,.1f} GB are free. "
            f"Make room, give a path on another disk, or {advice}."
        )


def check_not_input(output: FileName, inputs: Collection[Optional[FileId]], what: str) -> None:
    """Raise `ConfigurationError`, which names the output as `what`, if it is a file that is read."""
    found = file_id(output)
    if found is not None and found in inputs:
        raise ConfigurationError(
            f"{what}: {output} is the input, expected another file. Give another path."
        )


@contextmanager
def replaced_file(path: FileName) -> Iterator[Path]:
    """
    Give a temporary path to write to, in the same folder. At the end of the context the temporary file, which
    must be closed, is synced to the disk and replaces `path`, or the file that this links to. On an error it
    is removed, and `path` is not changed.
    """
    with replaced_files(path) as (partial_file,):
        yield partial_file


@contextmanager
def replaced_files(*paths: FileName) -> Iterator[List[Path]]:
    """
    Give temporary paths for files that belong together, as `replaced_file` does. A process that is killed
    leaves all previous files or all new ones, or none at the last path: never files that do not belong
    together. The error for a full disk, a write's, names no file: it gets the name of the first one.
    """
    targets = [Path(os.path.realpath(path)) for path in paths]
    *partial_files, previous = [
        path.with_name(f".{path.name}.{secrets.token_hex(4)}{_PARTIAL_SUFFIX}")
        for path in (*targets, targets[-1])
    ]
    for path in targets:
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    try:
        yield partial_files
        for partial_file in partial_files:
            # Network disks and quotas may report a failed write only now.
            with open(partial_file, "rb+") as file:
                os.fsync(file.fileno())
        if len(targets) > 1 and targets[-1].exists():
            os.replace(targets[-1], previous)  # until another one is replaced
        for partial_file, path in zip(partial_files, targets):
            os.replace(partial_file, path)
    except BaseException as error:
        if partial_files[0].exists() and previous.exists():  # none was replaced
            os.replace(previous, targets[-1])
        if isinstance(error, OSError) and error.errno in _DISK_IS_FULL and not error.filename:
            error.filename = str(paths[0])
        raise
    finally:
        for leftover in (*partial_files, previous):
            leftover.unlink(missing_ok=True)


def remove_partial_files(folder: FileName) -> None:
    """Remove temporary files of processes that were killed, from a folder that no process writes in now."""
    for path in Path(folder).glob(f".*{_PARTIAL_SUFFIX}"):
        path.unlink()


def check_output_option(path: Optional[FileName], overwrite: bool, option: str) -> None:
    """
    Raise `ConfigurationError` as `check_output_file` for a path that `opened_output` is to open, or if there
    is no file for `overwrite`. `option` is the one that gives the path.
    """
    if path is not None and path != STANDARD_STREAM:
        check_output_file(path, overwrite, option)
    elif overwrite:
        raise ConfigurationError(f"--overwrite is given without {option} FILE. Leave it out.")


@contextmanager
def opened_output(path: Optional[FileName]) -> Iterator[TextIO]:
    """
    Open a file of text as `replaced_file` does, compressed if its name ends in `.gz`, as it is read; or give
    standard output for `None` and `-`.
    """
    if path is None or path == STANDARD_STREAM:
        if sys.stdout is None:
            raise ConfigurationError("Standard output is closed, expected an open one, or a file.")
        yield sys.stdout
        return
    with replaced_file(path) as new_path, ExitStack() as stack:
        file: Any = stack.enter_context(open(new_path, "wb"))
        if str(path).endswith(".gz"):
            # The same text has the same bytes, whatever the time and the name of the temporary file.
            file = stack.enter_context(gzip.GzipFile("", "wb", fileobj=file, mtime=0))
        with TextIOWrapper(file, encoding="utf-8") as text:
            yield text


@contextmanager
def claimed_folder(folder: Path, error_message: str) -> Iterator[None]:
    """
    Lock a folder within the context, by a file `lock` in it that remains. The folder is made if it does not
    exist. When the process ends or is killed, the system releases the lock. Raise `ConfigurationError` with
    `error_message` if another process has it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    try:
        lock = filelock.FileLock(folder / LOCK_NAME).acquire(timeout=0)
    except filelock.Timeout as error:
        raise ConfigurationError(error_message) from error
    with lock:
        yield
