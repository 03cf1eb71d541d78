"""Where embedded sentences go: to a writer, kept as they come, and to their place when all are there."""

import logging
from contextlib import ExitStack, contextmanager, suppress
from os import PathLike
from typing import Any, Dict, Iterator, NoReturn, Optional, Union

import numpy
from allennlp.common.checks import ConfigurationError

from elmo_plugin.embedding.output.embedding_settings import SentenceDigest
from elmo_plugin.embedding.output.embedding_writer import EmbeddingWriter, WriterState
from elmo_plugin.embedding.output.guarded_file import WriteError
from elmo_plugin.embedding.output.unfinished import Progress, UnfinishedOutput
from elmo_plugin.embedding.sentence_file import Sentence

logger = logging.getLogger(__name__)

# Of vectors. What is written after a checkpoint is lost when the program is killed.
BYTES_PER_CHECKPOINT = 2**27


class EmbeddingOutput:
    """
    The output of a run that may be interrupted, and gone on with.

    # Parameters

    path : `str` or `PathLike`
        Where it is to be when it is complete.
    writer : `EmbeddingWriter`
        Writes it.
    settings : `Dict[str, Any]`
        What the output depends on, beside the input; for JSON.
    resumable : `bool`
        Whether another run can go on with it.

    # Attributes

    num_sentences, num_tokens : `int`
        So many are written, by this run or the one that it goes on with.
    """

    def __init__(
        self,
        path: Union[str, PathLike],
        writer: EmbeddingWriter,
        settings: Dict[str, Any],
        resumable: bool = True,
    ) -> None:
        self._path = path
        self._writer = writer
        self._settings = settings
        self._resumable = resumable
        self._unfinished = UnfinishedOutput(path)
        self._former: Optional[Progress] = None
        self._digest = SentenceDigest()
        self._num_unsaved_bytes = 0
        self.num_sentences = 0
        self.num_tokens = 0

    def look_for_former(self, overwrite: bool, resume: bool) -> Optional[Progress]:
        """
        Look for an interrupted run, before any work.

        # Returns

        How far the run came that is to be gone on with; `None` if there is none.

        # Raises

        `ConfigurationError` if there is one and it is neither to be gone on with nor overwritten, or it had
        other settings.
        """
        if overwrite:
            return None
        former = self._unfinished.progress()
        if former is not None and not resume:
            raise ConfigurationError(
                f"output: {self._unfinished.folder} holds {former.num_sentences:,} sentences of a run that "
                "was interrupted. Go on with it by --resume (resume=True), or start anew by --overwrite."
            )
        with self._writing():
            self._former = self._unfinished.take_up(former, self._settings)
        return self._former

    @contextmanager
    def open(self) -> Iterator[None]:
        """
        Write within the context. After it the output is complete and in its place, unless the context was
        left by an exception: then what was written is kept for another run to go on with, and what stands in
        the output's place stays.

        # Raises

        `WriteError`, an `OSError`, if it cannot be written; `ConfigurationError` if another process writes
        it.
        """
        with self._writing():
            claim = ExitStack()
            claim.enter_context(self._unfinished.claimed())
        with claim:
            try:
                yield from self._run_writer()
            except BaseException as error:
                self._leave(error)

    def skip(self, sentence: Sentence) -> bool:
        """
        Whether a sentence, the next of the input, was written by the run that is gone on with.

        # Raises

        `ConfigurationError` if the input is another one.
        """
        if self._former is None or self.num_sentences >= self._former.num_sentences:
            return False
        self._count(sentence)
        self._writer.skip(sentence)
        if self.num_sentences == self._former.num_sentences:
            check_same_input(str(self._digest), self._former)
        return True

    def write(self, sentence: Sentence, vectors: numpy.ndarray) -> None:
        """
        Write a sentence.

        # Raises

        `WriteError` if it cannot be written.
        """
        with self._writing():
            self._writer.write(sentence, vectors)
            self._count(sentence)
            self._num_unsaved_bytes += vectors.nbytes
            if self._num_unsaved_bytes >= BYTES_PER_CHECKPOINT:
                self._save()

    def _run_writer(self) -> Iterator[None]:
        with ExitStack() as stack:
            with self._writing():
                if self._former is None:
                    self._unfinished.clear()
                state = None if self._former is None else self._former.writer_state
                writing = stack.enter_context(ExitStack())
                writing.enter_context(self._writer.open(self._unfinished.folder, state))
            try:
                yield
            except BaseException as error:
                # Nothing that is done is to be lost; and a second failure would hide the first.
                with suppress(OSError):
                    if self._num_unsaved_bytes and not isinstance(error, WriteError):
                        self._save()
                with suppress(OSError):
                    writing.close()
                raise
            if self._former is not None and self.num_sentences < self._former.num_sentences:
                check_same_input("", self._former)  # the input ended before
            with self._writing():
                product = self._writer.finish(self._about())
                writing.close()
                self._keep_progress({}, product.name)
                self._unfinished.publish()

    def _about(self) -> Dict[str, Any]:
        return {
            "settings": self._settings,
            "num_sentences": self.num_sentences,
            "num_tokens": self.num_tokens,
            "digest": str(self._digest),
        }

    def _count(self, sentence: Sentence) -> None:
        self._digest.add(sentence.line_index, sentence.text)
        self.num_sentences += 1
        self.num_tokens += len(sentence.tokens)

    def _save(self) -> None:
        if self._resumable:
            self._keep_progress(self._writer.checkpoint())
            self._num_unsaved_bytes = 0

    def _keep_progress(self, writer_state: WriterState, product: Optional[str] = None) -> None:
        counts = (self.num_sentences, self.num_tokens, str(self._digest))
        self._unfinished.save(Progress(*counts, writer_state, product), self._settings)

    def _leave(self, error: BaseException) -> NoReturn:
        kept = self._unfinished.progress()
        if kept is None:
            self._unfinished.remove()
            outcome = "nothing of it is left"
        else:
            outcome = (
                f"{kept.num_sentences:,} sentences are kept in {self._unfinished.folder}, to be gone on with "
                "by --resume (resume=True)"
            )
        if not isinstance(error, WriteError):
            if kept is not None:
                logger.warning("Interrupted: %s.", outcome)
            raise error
        raise WriteError(
            error.errno,
            f"{self._path}: cannot be written after {self.num_sentences:,} sentences ({error.strerror}); "
            f"{outcome}. Make room on the disk, or give a path on another one",
        ) from error

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except WriteError:
            raise
        except OSError as error:
            raise WriteError(error.errno, error.strerror or str(error)) from error


def check_same_input(digest: str, former: Progress) -> None:
    """
    # Raises

    `ConfigurationError` if the sentences of this digest are not those that the former run has written.
    """
    if digest != former.digest:
        raise ConfigurationError(
            "--resume: the interrupted run had another input: what it has written "
            f"({former.num_sentences:,} sentences) are not the first sentences here. Give the same input, or "
            "--overwrite to start anew."
        )
