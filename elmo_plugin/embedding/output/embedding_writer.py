"""What a format of embedded sentences has to do."""

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Dict, Optional, Protocol

import numpy

from elmo_plugin.embedding.sentence_file import Sentence

# A JSON object that says where a writer stands.
WriterState = Dict[str, Any]


class EmbeddingWriter(Protocol):
    """
    Writes the vectors of sentences to a file or a folder, in the order of the input. It can go back to where
    it was at its last checkpoint, whenever the program was killed.
    """

    @property
    def settings(self) -> Dict[str, Any]:
        """What has to be the same where one run goes on with what another has written; for JSON."""

    def check(self, index: int, text: str) -> None:
        """
        Take note of a sentence that is to be written. Called once for each, before `write` or `skip`; for
        all sentences before the first is embedded, if the input can be read twice.

        # Raises

        `ConfigurationError` naming the line, if the format cannot hold it beside those before.
        """

    def open(self, folder: Path, state: Optional[WriterState]) -> AbstractContextManager[None]:
        """
        Write within the context.

        # Parameters

        folder : `Path`
            One that is there, to keep everything in.
        state : `WriterState`, optional
            What `checkpoint` gave: what was written after it is dropped. `None` to begin.

        # Raises

        `OSError` if it cannot be written.
        """

    def skip(self, sentence: Sentence) -> None:
        """Take note of a sentence that was written before the checkpoint gone back to."""

    def write(self, sentence: Sentence, vectors: numpy.ndarray) -> None:
        """
        # Parameters

        sentence : `Sentence`
            One that was checked.
        vectors : `numpy.ndarray`
            `(num_layers, num_tokens, dim)` or `(num_tokens, dim)`.

        # Raises

        `OSError` if it cannot be written.
        """

    def checkpoint(self) -> WriterState:
        """
        Make sure that what was written is on the disk.

        # Returns

        What to give to `open` to go on from here. The former checkpoint holds until the next call.

        # Raises

        `OSError` if something could not be written.
        """

    def finish(self, about: Dict[str, Any]) -> Path:
        """
        Complete what was written.

        # Parameters

        about : `Dict[str, Any]`
            What it is, to be kept with it.

        # Returns

        The file or folder within the folder given to `open`.

        # Raises

        `OSError` if something could not be written.
        """
