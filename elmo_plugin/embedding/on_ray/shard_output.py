"""A folder of parts that workers write, until it is complete."""

import hashlib
import logging
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any, Dict, Iterator, List, NoReturn, Optional, Union

from allennlp.common.checks import ConfigurationError

from elmo_plugin.embedding.embed_file import EmbeddedFile
from elmo_plugin.embedding.on_ray.shard_input import ShardContent, check_same_shards
from elmo_plugin.embedding.on_ray.shard_parts import Part, check_parts, complete_parts
from elmo_plugin.embedding.output.about_file import read_about, write_about
from elmo_plugin.embedding.output.guarded_file import WriteError
from elmo_plugin.embedding.output.unfinished import Progress, UnfinishedOutput, check_same_settings

logger = logging.getLogger(__name__)

# Within the folder of the unfinished output.
PRODUCT_NAME = "vectors"


class ShardOutput:
    """
    The output of a run on several workers, that may be interrupted and gone on with.

    # Parameters

    path : `str` or `PathLike`
        The folder that is to be there when it is complete.
    settings : `Dict[str, Any]`
        What the output depends on, beside the input; for JSON.

    # Attributes

    folder : `Path`
        Where workers write parts.
    parts : `List[Part]`
        Those that are written, by this run or the one that it goes on with.
    num_sentences, num_tokens : `int`
        How many are in them.
    """

    def __init__(self, path: Union[str, PathLike], settings: Dict[str, Any]) -> None:
        self._path = Path(path)
        self._settings = settings
        # Workers run elsewhere.
        self._unfinished = UnfinishedOutput(self._path.absolute())
        self._former: Optional[Progress] = None
        self.folder = self._unfinished.folder / PRODUCT_NAME
        self.parts: List[Part] = []
        self.num_sentences = 0
        self.num_tokens = 0
        self._contents: List[ShardContent] = []

    def look_for_former(self, overwrite: bool, resume: bool) -> Optional[Progress]:
        """
        Look for an interrupted run, before any work.

        # Returns

        What is known of the run that is to be gone on with; `None` if there is none.

        # Raises

        `ConfigurationError` if there is one and it is neither to be gone on with nor overwritten, or it had
        other settings.
        """
        if overwrite:
            return None
        former = self._unfinished.progress()
        if former is not None and not resume:
            raise ConfigurationError(
                f"output: {self._unfinished.folder} holds what an interrupted run has written. Go on with it "
                "by --resume (resume=True), or start anew by --overwrite."
            )
        self._former = self._unfinished.take_up(former, self._settings)
        return self._former

    def complete(self, contents: List[ShardContent]) -> EmbeddedFile:
        """
        What an output holds that is complete.

        # Raises

        `ConfigurationError` if it is not made of this input with these settings.
        """
        about = read_about(self._path)
        assert about is not None  # checked before any work
        check_same_settings(about["settings"], self._settings, str(self._path))
        check_same_shards(about["input"], contents, str(self._path))
        logger.info("%s is complete: nothing is left to do.", self._path)
        return EmbeddedFile(about["num_sentences"], about["num_tokens"])

    @contextmanager
    def open(self, contents: List[ShardContent]) -> Iterator[None]:
        """
        Have workers write parts within the context. After it the output is complete and in its place, unless
        the context was left by an exception: then parts are kept for another run to go on with, and what
        stands in the output's place stays.

        # Parameters

        contents : `List[ShardContent]`
            Of all shards.

        # Raises

        `ConfigurationError` if the run that is gone on with had another input, if another process writes the
        output, or if sentences are missing at the end; `WriteError`, an `OSError`, if something cannot be
        written.
        """
        if self._former is not None:
            former_contents = self._former.writer_state["input"]
            check_same_shards(former_contents, contents, str(self._unfinished.folder))
        self._contents = contents
        with self._unfinished.claimed():
            try:
                self._begin()
                yield
                self._finish()
            except BaseException as error:
                self._leave(error)

    def add(self, part: Part) -> None:
        """Take note of a part that was written."""
        self.parts.append(part)
        self.num_sentences += part.num_sentences
        self.num_tokens += part.num_tokens
        if len(self.parts) == 1:
            # From now on there is something to go on with.
            self._save()

    def _begin(self) -> None:
        if self._former is None:
            self._unfinished.clear()
        self.folder.mkdir(exist_ok=True)
        self._count_parts()

    def _finish(self) -> None:
        # What is on the disk counts, not what was said of it.
        self._count_parts()
        check_parts(self.parts, self._contents)
        digest = hashlib.blake2b(digest_size=16)
        for content in self._contents:
            digest.update(content.digest.encode())
        about = {
            "settings": self._settings,
            "num_sentences": self.num_sentences,
            "num_tokens": self.num_tokens,
            "digest": digest.hexdigest(),
            "input": self._input(),
        }
        write_about(self.folder, about)
        self._save(PRODUCT_NAME)
        self._unfinished.publish()

    def _leave(self, error: BaseException) -> NoReturn:
        if self.parts:
            outcome = (
                f"{self.num_sentences:,} sentences are kept in {self._unfinished.folder}, to be gone on with "
                "by --resume (resume=True)"
            )
            logger.warning("Interrupted: %s.", outcome)
        else:
            self._unfinished.remove()
            outcome = "nothing of it is left"
        # Those of disks have numbers.
        if isinstance(error, OSError) and error.errno is not None:
            raise WriteError(
                error.errno,
                f"{self._path}: cannot be written after {self.num_sentences:,} sentences "
                f"({error.strerror}); {outcome}. Make room on the disk, or give a path on another one",
            ) from error
        raise error

    def _count_parts(self) -> None:
        self.parts = complete_parts(self.folder)
        self.num_sentences = sum(part.num_sentences for part in self.parts)
        self.num_tokens = sum(part.num_tokens for part in self.parts)

    def _save(self, product: Optional[str] = None) -> None:
        state = {"input": self._input()}
        progress = Progress(self.num_sentences, self.num_tokens, "", state, product)
        self._unfinished.save(progress, self._settings)

    def _input(self) -> List[Dict[str, Any]]:
        return [content._asdict() for content in self._contents]
