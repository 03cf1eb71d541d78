"""The folder `OUTPUT.partial`, which keeps the finished parts of an output until all of them are written."""

import errno
import json
import os
import re
import secrets
import shutil
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from os import PathLike
from pathlib import Path
from typing import Any, Callable, ContextManager, Dict, Iterator, List, Optional, Sequence, Union

from elmo_plugin.embedding.parts import Part
from elmo_plugin.embedding.sentences import PARTIAL
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.files.claimed_folder import LOCK_NAME, claimed_folder
from elmo_plugin.files.replaced_file import replaced_file

# Parts whose headers are read at the same time: network disks have a high latency.
NUM_THREADS = 16

_RUN_NAME = "run.json"
_PARTS_NAME = "parts"  # the first letters of the name
# A file that versions before parts wrote.
_OLD_NAME = "progress.json"
_PART_NAME = re.compile(r"part-\d{5,}-\d{10,}\.\w+")


class WriteError(OSError):
    """The output cannot be written."""


class PartialOutput:
    """The folder `OUTPUT.partial`: the parts of a run, and its settings."""

    def __init__(self, output: Union[str, PathLike]) -> None:
        self.output = Path(os.path.abspath(output))  # workers run in other folders
        self.folder = self.output.with_name(self.output.name + PARTIAL)
        self.name = f"{os.fspath(output)}{PARTIAL}"  # in errors: relative if `output` is
        self._run_file = self.folder / _RUN_NAME

    def check(self, overwrite: bool, resume: bool) -> None:
        """
        Check what an interrupted run has left in the folder.

        # Raises

        `ConfigurationError` if the folder was made by another program or an earlier version, or if it holds
        parts and neither `overwrite` nor `resume` is set.
        """
        if not self.folder.exists():
            return
        names = {path.name for path in self.folder.iterdir()} if self.folder.is_dir() else {""}
        is_old = _OLD_NAME in names
        # The files of a run that was killed before it wrote its settings.
        first_names = {name for name in names if name.startswith((LOCK_NAME, f".{_RUN_NAME}"))}
        if not is_old and _RUN_NAME not in names and names - first_names:
            raise ConfigurationError(
                f"output: {self.name} was not made by this command, expected no such path: the command keeps "
                "unfinished output there. Remove it, or give another output."
            )
        if overwrite:
            return
        if is_old:
            raise ConfigurationError(
                f"output: {self.name} is from an interrupted run of an earlier version, which this version "
                "cannot resume. Finish it with that version, or give --overwrite to start again."
            )
        if self.num_parts and not resume:
            raise ConfigurationError(
                f"output: {self.name} holds {self.num_parts:,} parts of a run that was interrupted. "
                "Continue it with --resume (resume=True), or start again with --overwrite."
            )
        self._run()

    def locked(self) -> ContextManager[None]:
        """Make and lock the folder, so that no other process writes this output."""
        return claimed_folder(
            self.folder,
            f"output: another process is writing {self.output} (it has locked {self.folder}). Wait for it, "
            "or give another path.",
        )

    def begin(self, settings: Dict[str, Any], may_replace: bool) -> None:
        """
        Empty the folder, and begin a run with these settings. `may_replace` says whether the output that
        exists now may be replaced, by this run or when it is resumed.
        """
        self._remove_content()
        run = {"settings": settings, "replaces": self._identity() if may_replace else None}
        with replaced_file(self._run_file) as file:
            file.write_text(json.dumps(run), encoding="utf-8")

    def new_parts_folder(self) -> Path:
        """
        Rename the folder of parts, or make it, and return it. Workers of a previous run, which may still be
        running, do not know the new name and cannot write there.
        """
        new_folder = self.folder / f"{_PARTS_NAME}-{secrets.token_hex(4)}"
        if self.parts_folder.is_dir():
            return self.parts_folder.rename(new_folder)
        new_folder.mkdir()
        return new_folder

    @property
    def parts_folder(self) -> Path:
        """Where the parts are."""
        return next(self.folder.glob(f"{_PARTS_NAME}*"), self.folder / _PARTS_NAME)

    @property
    def num_parts(self) -> int:
        """Number of finished parts."""
        return sum(1 for _ in self._part_files())

    @property
    def settings(self) -> Dict[str, Any]:
        """Settings of the interrupted run; empty if there is none."""
        settings: Dict[str, Any] = self._run().get("settings", {})
        return settings

    @property
    def may_replace(self) -> bool:
        """Whether no output exists, or the one that this run was allowed to replace."""
        identity = self._identity()
        return identity is None or identity == self._run().get("replaces")

    def parts(self, read_part: Callable[[Path], Part]) -> Dict[Part, Path]:
        """Return the finished parts and their files, in the order of the input."""
        paths = list(self._part_files())
        with ThreadPoolExecutor(NUM_THREADS) as threads:
            parts = dict(zip(threads.map(read_part, paths), paths))
        return dict(sorted(parts.items()))

    def remove_leftovers(self) -> None:
        """Remove the unfinished files that killed processes have left beside the parts."""
        kept = set(self._part_files())
        for path in self.parts_folder.iterdir():
            if path not in kept:
                _remove(path)

    def publish(self, product: Path) -> None:
        """
        Move the complete output, `product`, to its place, and remove the folder.

        # Raises

        `ConfigurationError` if another program has written a file there; `OSError` if it cannot be moved.
        """
        if not self.may_replace:
            raise ConfigurationError(
                f"output: {self.output} was written by another program during the run. Move it away, then "
                "give --resume: the output is complete and will be moved there."
            )
        if self.output.is_dir():
            # A folder cannot be replaced by one call.
            self.output.rename(self.folder / "replaced")
        product.replace(self.output)
        with suppress(OSError):  # not every file system can sync folders
            folder = os.open(self.output.parent, os.O_RDONLY)
            os.fsync(folder)
            os.close(folder)
        self.remove()

    def remove(self) -> None:
        """Remove the folder. The file with the settings goes last, so that a killed run still has it."""
        self._remove_content()
        self._run_file.unlink(missing_ok=True)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _remove_content(self) -> None:
        for path in self.folder.iterdir():
            if path.name not in (LOCK_NAME, _RUN_NAME):
                _remove(path)

    def _part_files(self) -> Iterator[Path]:
        folder = self.parts_folder
        if folder.is_dir():
            for path in folder.iterdir():
                if _PART_NAME.fullmatch(path.name):
                    yield path

    def _run(self) -> Dict[str, Any]:
        if not self._run_file.exists():
            return {}
        try:
            run: Dict[str, Any] = json.loads(self._run_file.read_text(encoding="utf-8"))
            run["settings"].items()
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ConfigurationError(
                f"{self.name}/{_RUN_NAME}: cannot be read ({error}). Give --overwrite to start again."
            ) from error
        return run

    def _identity(self) -> Optional[List[int]]:
        """Identify the file or folder at the path of the output; `None` if there is none."""
        try:
            status = os.stat(self.output)
        except FileNotFoundError:
            return None
        return [status.st_ino, status.st_mtime_ns]


def check_same_settings(
    previous: Dict[str, Any],
    settings: Dict[str, Any],
    where: Union[str, PathLike],
    ignored: Sequence[str] = (),
) -> None:
    """
    Compare the settings of a previous run with those of this one.

    # Parameters

    where : `str` or `PathLike`
        The path of the previous run, for errors.
    ignored : `Sequence[str]`, optional (default = none)
        Names of settings that may differ.

    # Raises

    `ConfigurationError` naming the settings that differ.
    """
    # Through JSON, as the previous ones were: tuples become lists.
    settings = json.loads(json.dumps(settings))
    different = [
        f"{name} was {previous.get(name)!r}, now {settings.get(name)!r}"
        for name in dict.fromkeys([*previous, *settings])
        if name not in ignored and previous.get(name) != settings.get(name)
    ]
    if different:
        raise ConfigurationError(
            f"--resume: {where} was made with other settings: {'; '.join(different)}. Give the same ones, or "
            "--overwrite to start again."
        )


@contextmanager
def write_errors() -> Iterator[None]:
    """Raise a failure to write as `WriteError`."""
    try:
        yield
    except WriteError:
        raise
    except OSError as error:
        raise WriteError(error.errno, error.strerror or str(error)) from error


def advice_for(error: OSError) -> str:
    """Return what the user can do about a file that cannot be written."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "Make room on the disk, or give a path on another disk"
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return "Change the permissions, or give a path where this user may write"
    return "Give another path if this disk is damaged or not connected"


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        # Renamed first, so that workers cannot add files to it.
        shutil.rmtree(path.rename(path.with_name(f"removed-{secrets.token_hex(4)}")))
    else:
        path.unlink(missing_ok=True)
