"""The folder `OUTPUT.partial`, which keeps the finished parts of an output until all of them are written."""

import json
import os
import secrets
import shutil
from contextlib import suppress
from os import PathLike
from pathlib import Path
from typing import Any, ContextManager, Dict, Union

from elmo_plugin.embedding.parts import PartsFolder
from elmo_plugin.embedding.sentences import PARTIAL
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.files.output import LOCK_NAME, claimed_folder, replaced_file

_RUN_NAME = "run.json"
_PARTS_NAME = "parts"  # the first letters of the name


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
        names = [path.name for path in self.folder.iterdir()] if self.folder.is_dir() else [""]
        # Of a run that was killed before it wrote its settings there are these files.
        is_own = all(name.startswith((LOCK_NAME, f".{_RUN_NAME}")) for name in names)
        if _RUN_NAME not in names and not is_own:
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

    def begin(self, settings: Dict[str, Any], overwrite: bool) -> None:
        """
        Empty the folder, and begin a run with these settings. `overwrite` says whether the run, also when it
        is resumed, may replace the output.
        """
        self._remove_content()
        with replaced_file(self._run_file) as file:
            run = {"settings": settings, "overwrite": overwrite}
            file.write_text(json.dumps(run), encoding="utf-8")

    @property
    def settings(self) -> Dict[str, Any]:
        """Settings of the interrupted run; empty if there is none."""
        return dict(self._run()["settings"])

    @property
    def overwrites(self) -> bool:
        """Whether the interrupted run may replace an output that existed when it began."""
        return bool(self._run()["overwrite"])

    @property
    def may_replace(self) -> bool:
        """Whether no output exists, or the interrupted run may replace it."""
        return not self.output.exists() or self.overwrites

    @property
    def parts_folder(self) -> PartsFolder:
        """Where the parts are."""
        return PartsFolder(next(self.folder.glob(f"{_PARTS_NAME}*"), self.folder / _PARTS_NAME))

    def renamed_parts_folder(self) -> PartsFolder:
        """
        Rename the folder of parts, or make it, and return it. Workers of a previous run, which may still be
        running, do not know the new name and cannot write there.
        """
        renamed = PartsFolder(self.folder / f"{_PARTS_NAME}-{secrets.token_hex(4)}")
        with suppress(FileNotFoundError):
            self.parts_folder.path.rename(renamed.path)
        renamed.make()
        return renamed

    def publish(self, product: Path) -> None:
        """
        Move the complete output, `product`, to its place, and remove the folder.

        # Raises

        `ConfigurationError` if another program has written a file there.
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
        shutil.rmtree(self.folder, ignore_errors=True)

    def _remove_content(self) -> None:
        for path in self.folder.iterdir():
            if path.is_dir():
                # Renamed first, so that workers cannot add files to it.
                shutil.rmtree(path.rename(path.with_name(f"removed-{secrets.token_hex(4)}")))
            elif path.name not in (LOCK_NAME, _RUN_NAME):
                path.unlink()

    def _run(self) -> Dict[str, Any]:
        """Return the settings of the interrupted run, and whether it may replace the output."""
        if not self._run_file.exists():
            return {"settings": {}, "overwrite": False}
        try:
            run = json.loads(self._run_file.read_text(encoding="utf-8"))
            return {"settings": dict(run["settings"]), "overwrite": run["overwrite"] is True}
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigurationError(
                f"{self.name}/{_RUN_NAME}: cannot be read ({error}). Give --overwrite to start again."
            ) from error
