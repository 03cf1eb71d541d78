"""What a file format for embedded sentences has to do."""

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

import numpy

from elmo_plugin.embedding.sentence_file import Sentence


class EmbeddingWriter(Protocol):
    """Writes the vectors of sentences to one file, in the order of the input."""

    def check(self, index: int, text: str) -> None:
        """
        Take note of a sentence that is to be written. Called once for each, before `write`; for all
        sentences before the first is embedded, if the input can be read twice.

        # Raises

        `ConfigurationError` naming the line, if the format cannot hold it beside those before.
        """

    def open(self, path: Path) -> AbstractContextManager[None]:
        """
        Write to `path` within the context; the file is complete after it, unless the context was left by an
        exception.

        # Raises

        `WriteError`, an `OSError`, if it cannot be written to the end.
        """

    def write(self, sentence: Sentence, vectors: numpy.ndarray) -> None:
        """
        # Parameters

        sentence : `Sentence`
            One that was checked.
        vectors : `numpy.ndarray`
            `(num_layers, num_tokens, dim)` or `(num_tokens, dim)`.

        # Raises

        `WriteError` if it cannot be written.
        """
