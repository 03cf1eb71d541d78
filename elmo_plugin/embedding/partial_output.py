"""The folder `OUTPUT.partial`, which keeps the finished parts of an output until all of them are written."""

import errno
import hashlib
import json
import logging
import os
import secrets
import shutil
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from os import PathLike
from pathlib import Path
from typing import (
    Any,
    ContextManager,
    Dict,
    Iterator,
    List,
    NamedTuple,
    Optional,
    Sequence,
    Tuple,
    Union,
)

import numpy

from elmo_plugin.embedding.formats import OutputFormat
from elmo_plugin.embedding.parts import Block, Part
from elmo_plugin.embedding.sentences import PARTIAL
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.files.output import LOCK_NAME, claimed_folder, replaced_file

# Parts that are read at the same time: network disks have a high latency.
NUM_THREADS = 16
# Bytes of a part that are read together.
READ_BYTES = 2**20

_RUN_NAME = "run.json"
_PARTS_NAME = "parts"  # the first letters of the name
_DATA, _DESCRIPTIONS = "data", "descriptions"

logger = logging.getLogger(__name__)


class WriteError(OSError):
    """The output cannot be written."""


class PartsFolder(NamedTuple):
    """
    The folder of the finished parts. Can be pickled, to be sent to workers.

    The vectors of a part are a file in `data`. It is complete when its description exists: a file in
    `descriptions` with the `Part` as JSON on the first line, and on the second a checksum of this line and of
    the vectors.
    """

    path: Path

    @property
    def num_parts(self) -> int:
        """Number of finished parts."""
        return len(self._descriptions())

    def write(self, block: Block, vectors: Sequence[numpy.ndarray], format: OutputFormat) -> Part:
        """
        Write a block and its vectors as a part, see `OutputFormat.write_part`.

        # Raises

        `WriteError` if it cannot be written.
        """
        part = block.part
        data = self.path / _DATA / f"{part.name}.{format.part_ending}"
        description = json.dumps(part._asdict()).encode() + b"\n"
        with write_errors():
            with replaced_file(data) as new_path:
                with open(new_path, "wb") as file:
                    format.write_part(file, part.source, block.sentences, vectors)
                checksum = _checksum(description, new_path)
            with replaced_file(self._description_of(data)) as new_path:
                new_path.write_bytes(description + checksum)
        return part

    def parts(self) -> Dict[Part, Path]:
        """Return the finished parts and the files of their vectors, in the order of the input."""
        with ThreadPoolExecutor(NUM_THREADS) as threads:
            parts = dict(threads.map(_read_part, self._descriptions()))
        return dict(sorted(parts.items()))

    def remove_damaged(self) -> None:
        """Remove the parts that differ from their checksums, with a warning for each."""
        descriptions = self._descriptions()
        with ThreadPoolExecutor(NUM_THREADS) as threads:
            for path, is_intact in zip(descriptions, threads.map(_is_intact, descriptions)):
                if not is_intact:
                    data = _data_of(path)
                    logger.warning("%s is damaged: it is computed again.", data.name)
                    path.unlink()
                    data.unlink(missing_ok=True)

    def remove_leftovers(self) -> None:
        """Remove the unfinished files that killed processes have left beside the parts."""
        kept = set(map(_data_of, self._descriptions()))
        for path in (self.path / _DATA).iterdir():
            if path not in kept:
                _remove(path)

    def _description_of(self, data: Path) -> Path:
        return self.path / _DESCRIPTIONS / f"{data.name}.json"

    def _descriptions(self) -> List[Path]:
        return sorted((self.path / _DESCRIPTIONS).glob("part-*.json"))


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

        `ConfigurationError` if the folder was made by another program, or if it holds parts and neither
        `overwrite` nor `resume` is set.
        """
        if not self.folder.exists():
            return
        names = {path.name for path in self.folder.iterdir()} if self.folder.is_dir() else {""}
        # The files of a run that was killed before it wrote its settings.
        first_names = {name for name in names if name.startswith((LOCK_NAME, f".{_RUN_NAME}"))}
        if _RUN_NAME not in names and names - first_names:
            raise ConfigurationError(
                f"output: {self.name} was not made by this command, expected no such path: the command keeps "
                "unfinished output there. Remove it, or give another output."
            )
        if overwrite:
            return
        num_parts = self.parts_folder.num_parts
        if num_parts and not resume:
            raise ConfigurationError(
                f"output: {self.name} holds {num_parts:,} parts of a run that was interrupted. Continue it "
                "with --resume (resume=True), or start again with --overwrite."
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

    def new_parts_folder(self) -> PartsFolder:
        """
        Rename the folder of parts, or make it, and return it. Workers of a previous run, which may still be
        running, do not know the new name and cannot write there.
        """
        new_folder = self.folder / f"{_PARTS_NAME}-{secrets.token_hex(4)}"
        if self.parts_folder.path.is_dir():
            self.parts_folder.path.rename(new_folder)
        for name in (_DATA, _DESCRIPTIONS):
            (new_folder / name).mkdir(parents=True, exist_ok=True)
        return PartsFolder(new_folder)

    @property
    def parts_folder(self) -> PartsFolder:
        """Where the parts are."""
        name = next(self.folder.glob(f"{_PARTS_NAME}*"), self.folder / _PARTS_NAME)
        return PartsFolder(name)

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
    if error.errno == errno.EFBIG:
        return "Raise the limit on the size of files (ulimit -f), or give a path on another disk"
    return "Give another path if this disk is damaged or not connected"


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        # Renamed first, so that workers cannot add files to it.
        shutil.rmtree(path.rename(path.with_name(f"removed-{secrets.token_hex(4)}")))
    else:
        path.unlink(missing_ok=True)


def _read_part(description: Path) -> Tuple[Part, Path]:
    with open(description, "rb") as file:
        return Part(**json.loads(file.readline())), _data_of(description)


def _is_intact(description: Path) -> bool:
    """Return whether a part has the checksum that was computed when it was written."""
    line, _, checksum = description.read_bytes().partition(b"\n")
    try:
        return checksum == _checksum(line + b"\n", _data_of(description))
    except OSError:
        return False


def _data_of(description: Path) -> Path:
    return description.parents[1] / _DATA / description.stem


def _checksum(description: bytes, data: Path) -> bytes:
    digest = hashlib.blake2b(description, digest_size=16)
    with open(data, "rb") as file:
        while chunk := file.read(READ_BYTES):
            digest.update(chunk)
    return digest.hexdigest().encode()
