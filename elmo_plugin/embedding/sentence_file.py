"""Files of sentences to embed: one on each line."""

import gzip
import io
import sys
from os import PathLike
from pathlib import Path
from typing import IO, Any, BinaryIO, Iterator, List, Optional, Tuple, Union

from allennlp.common.checks import ConfigurationError

from elmo_plugin.embedding.checked_sentences import TOKENIZERS, CheckedSentences, Sentence
from elmo_plugin.files.text_lines import decoded_lines, unreadable

# Names that belong to every source of sentences are to be had here too.
__all__ = ["STANDARD_INPUT", "TOKENIZERS", "Sentence", "SentenceFile"]

STANDARD_INPUT = "-"


class SentenceFile(CheckedSentences):
    """
    A source of sentences that never holds more than a line in memory. It can be read again from where it
    stood, unless it is a pipe.

    # Parameters

    source : `str`, `PathLike`, or an open file
        A path, unpacked as it is read if its name ends in `.gz`; `-` for standard input; or a file that
        is open for reading text or bytes.
    tokenizer : `str`, optional (default = `"whitespace"`)
        A key of `TOKENIZERS`.
    skip_blank : `bool`, optional (default = `False`)
        Leave blank lines out; they are counted all the same. Otherwise they are errors.

    # Raises

    `ConfigurationError` if there is no such tokenizer, or the file cannot be opened.
    """

    _control_advice = (
        r"Remove such characters, for instance with: perl -CSD -pe 's/[^\P{Cc}\t\n]//g'"
    )

    def __init__(
        self,
        source: Union[str, PathLike, IO[Any]],
        tokenizer: str = "whitespace",
        skip_blank: bool = False,
    ) -> None:
        # Fails before the file is opened, if there is no such tokenizer.
        super().__init__(str(source), tokenizer, skip_blank)
        self.name, self._file = _opened(source)
        self._is_text = isinstance(self._file, io.TextIOBase)
        self._start = _position(self._file)

    def __enter__(self) -> "SentenceFile":
        return self

    def __exit__(self, *exception: object) -> None:
        if self._file is not sys.stdin.buffer:
            self._file.close()

    @property
    def can_be_read_again(self) -> bool:
        """Whether the sentences can be looked at before they are embedded."""
        return self._start is not None

    def _texts(self) -> Iterator[Tuple[int, str, Optional[List[str]]]]:
        if self._start is not None:
            self._file.seek(self._start)
        lines = (
            self._text_lines()
            if self._is_text
            else decoded_lines(self._file, self.name, "one sentence")
        )
        for index, line in enumerate(lines):
            yield index, line, None

    def _text_lines(self) -> Iterator[str]:
        try:
            yield from self._file
        except UnicodeDecodeError as error:
            raise ConfigurationError(
                f"{self.name}: found the bytes {error.object[error.start : error.end]!r}, expected "
                f"{error.encoding}. Convert the file, or open it with its encoding. (Give its path, or open "
                "it in mode 'rb', to be told the line.)"
            ) from error


def _opened(source: Union[str, PathLike, IO[Any]]) -> Any:
    """The name of a source, and the file."""
    if not isinstance(source, (str, PathLike)):
        return str(getattr(source, "name", "input_file")), source
    if str(source) == STANDARD_INPUT:
        return "standard input", sys.stdin.buffer
    path = Path(source)
    try:
        file: BinaryIO = open(path, "rb")  # noqa: SIM115 - closed by __exit__
    except OSError as error:
        raise unreadable(path, error) from error
    if path.suffix == ".gz":
        # GzipFile takes lines apart in Python, BufferedReader does it in C.
        file = io.BufferedReader(_GzipFile(file))
    return str(path), file


class _GzipFile(gzip.GzipFile):
    """A `GzipFile` that closes the file below it, and can be read again only if that can."""

    def __init__(self, stored: BinaryIO) -> None:
        super().__init__(fileobj=stored)
        self._stored = stored

    def seekable(self) -> bool:
        return self._stored.seekable()

    def close(self) -> None:
        super().close()
        self._stored.close()


def _position(file: IO[Any]) -> Any:
    """Where a file stands, or `None` if it cannot be put there again."""
    try:
        return file.tell() if file.seekable() else None
    except OSError:  # a text file of which lines were taken by `next`
        return None
