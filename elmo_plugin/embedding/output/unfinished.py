"""Output under way: kept beside its final place until it is complete, and gone on with."""

import json
import shutil
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any, Dict, Iterator, NamedTuple, Optional, Union

from allennlp.common.checks import ConfigurationError

from elmo_plugin.embedding.output.embedding_writer import WriterState
from elmo_plugin.files.claimed_folder import LOCK_NAME, claimed_folder
from elmo_plugin.files.replaced_file import replaced_file

SUFFIX = ".partial"


class Progress(NamedTuple):
    """
    How far a run has come.

    # Parameters

    num_sentences, num_tokens : `int`
        So many are written.
    digest : `str`
        Of the sentences written, see `SentenceDigest`.
    writer_state : `WriterState`
        Where the writer stands.
    product : `str`, optional
        The name of the output within the folder, when it is complete.
    """

    num_sentences: int
    num_tokens: int
    digest: str
    writer_state: WriterState
    product: Optional[str] = None


class UnfinishedOutput:
    """
    The folder `OUTPUT.partial`, in which a run keeps what it has written, and how far it has come.

    # Parameters

    output : `str` or `PathLike`
        Where the output is to be when it is complete.
    """

    def __init__(self, output: Union[str, PathLike]) -> None:
        self.output = Path(output)
        self.folder = self.output.with_name(self.output.name + SUFFIX)
        self._progress_file = self.folder / "progress.json"

    def progress(self) -> Optional[Progress]:
        """
        How far an interrupted run has come; `None` if nothing of one is there.

        # Raises

        `ConfigurationError` if the folder is no such run's.
        """
        content = self._content()
        return None if content is None else Progress(**content["progress"])

    def take_up(self, former: Optional[Progress], settings: Dict[str, Any]) -> Optional[Progress]:
        """
        Take up what `progress` gave, and do what needs no sentences: remove the folder of a run that had not
        come far, and put an output that is complete to its place.

        # Returns

        The progress that is to be gone on with; `None` if there is none.

        # Raises

        `ConfigurationError` if the interrupted run had other settings, or another process has it; `OSError`
        if something cannot be written.
        """
        if former is None:
            self.remove_if_empty()
            return None
        content = self._content()
        if content is not None:
            check_same_settings(content["settings"], settings, str(self.folder))
        if former.product is not None:
            with self.claimed():
                self.publish()
            return None
        return former

    @contextmanager
    def claimed(self) -> Iterator[None]:
        """
        Have the folder to oneself, made if need be.

        # Raises

        `ConfigurationError` if another process has it; `OSError` if it cannot be made.
        """
        with claimed_folder(
            self.folder,
            f"output: another process is writing {self.output} (it holds {self.folder}). Wait for it, or "
            "give another path.",
        ):
            yield

    def clear(self) -> None:
        """Remove what an interrupted run has left."""
        self._progress_file.unlink(missing_ok=True)
        for path in self.folder.iterdir():
            if path.name != LOCK_NAME:
                _remove(path)

    def save(self, progress: Progress, settings: Dict[str, Any]) -> None:
        """
        Keep how far the run has come.

        # Raises

        `OSError` if it cannot be written.
        """
        content = {"settings": settings, "progress": progress._asdict()}
        with replaced_file(self._progress_file) as path:
            path.write_text(json.dumps(content), encoding="utf-8")

    def publish(self) -> None:
        """
        Put the complete output to its place, if it is not there yet, and remove the folder.

        # Raises

        `OSError` if that fails.
        """
        progress = self.progress()
        assert progress is not None and progress.product is not None
        product = self.folder / progress.product
        if product.exists():
            if self.output.is_dir():
                # A folder cannot be replaced at once.
                self.output.rename(self.folder / "former")
            product.replace(self.output)
        self.remove()

    def remove_if_empty(self) -> None:
        """
        Remove the folder of a run that had not come far enough to be gone on with.

        # Raises

        `ConfigurationError` if another process has it.
        """
        if self.folder.exists() and self.progress() is None:
            with self.claimed():
                self.remove()

    def remove(self) -> None:
        """Remove the folder and all in it."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _content(self) -> Optional[Dict[str, Any]]:
        if not self._progress_file.exists():
            return None
        try:
            content: Dict[str, Any] = json.loads(self._progress_file.read_text(encoding="utf-8"))
            Progress(**content["progress"])
            content["settings"].items()
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ConfigurationError(
                f"{self._progress_file}: cannot be read as the progress of a run ({error}). Remove "
                f"{self.folder}, or give --overwrite to start anew."
            ) from error
        return content


def check_same_settings(former: Dict[str, Any], settings: Dict[str, Any], where: str) -> None:
    """
    # Parameters

    former, settings : `Dict[str, Any]`
        Those of the run that is to be gone on with, and those of this one.
    where : `str`
        Names the former run in errors.

    # Raises

    `ConfigurationError` that names what differs.
    """
    # As JSON has them, tuples are lists.
    settings = json.loads(json.dumps(settings))
    different = [
        f"{name} was {former.get(name)!r}, now {settings.get(name)!r}"
        for name in dict.fromkeys([*former, *settings])
        if former.get(name) != settings.get(name)
    ]
    if different:
        raise ConfigurationError(
            f"--resume: {where} was made with other settings: {'; '.join(different)}. Give the same ones, or "
            "--overwrite to start anew."
        )


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()
