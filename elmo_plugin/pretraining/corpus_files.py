"""Files of a language-model corpus: one tokenized sentence on each line, plain or gzip."""

import glob
import gzip
import io
import zlib
from os import PathLike
from pathlib import Path
from typing import BinaryIO, Dict, Iterator, List, Sequence, Union

from elmo_plugin.errors import ConfigurationError
from elmo_plugin.files.text import decoded_lines, split_tokens, unreadable

_MAX_SHOWN = 5  # files that an error lists


def expand_corpus(patterns: Sequence[str]) -> List[Path]:
    """
    Return the files of a corpus.

    # Parameters

    patterns : `Sequence[str]`
        Paths of files, or globs such as `lm/train-*.txt.gz`, in which `**` matches folders of any depth.
        Folders that match a glob are left out.

    # Returns

    The files, sorted by path, each once even if several patterns or links match it.

    # Raises

    `ConfigurationError` if there is no pattern, or if a pattern matches no file; if a file is empty, cannot
    be read, or has a name with `.gz` and is not gzip.
    """
    if isinstance(patterns, str) or not patterns:
        raise ConfigurationError(
            f"corpus: found {patterns!r}, expected a list of at least one path or glob. Name the files "
            "of the corpus."
        )
    matches = sorted(path for pattern in patterns for path in _matches(str(pattern)))
    files: Dict[Path, Path] = {}
    for path in matches:
        files.setdefault(path.resolve(), path)
    paths = list(files.values())
    empty = [path for path in paths if _is_empty(path)]
    if empty:
        listing = ", ".join(map(str, empty[:_MAX_SHOWN])) + (", ..." * (len(empty) > _MAX_SHOWN))
        raise ConfigurationError(
            f"corpus: {len(empty)} of {len(paths)} files are empty ({listing}), expected sentences in "
            "each. Remove them, or write them again if they were cut short."
        )
    return paths


def read_sentences(path: Union[str, PathLike]) -> Iterator[List[str]]:
    """
    Yield the sentences of a file, one at a time, so that memory does not grow with the file.

    `split_tokens` defines tokens and blank lines. Blank lines are skipped.

    # Raises

    `ConfigurationError` naming the file, if it cannot be read or has no sentence, and the line, if the line
    is not UTF-8 or longer than `MAX_LINE_BYTES`.
    """
    with CorpusFile(path) as file:
        yield from file.sentences()


class CorpusFile:
    """
    A file of sentences, opened to be read once, with its reading position.

    # Parameters

    path : `str` or `PathLike`
        A file whose name ends in `.gz` is decompressed while it is read.

    # Raises

    `ConfigurationError` if the file cannot be opened.
    """

    def __init__(self, path: Union[str, PathLike]) -> None:
        self._path = Path(path)
        try:
            self._stored: BinaryIO = open(path, "rb")  # noqa: SIM115 - closed by __exit__
        except OSError as error:
            raise unreadable(self._path, error) from error
        self._unpacked: BinaryIO = self._stored
        if self._path.suffix == ".gz":
            # GzipFile splits lines in Python, BufferedReader in C.
            self._unpacked = io.BufferedReader(gzip.GzipFile(fileobj=self._stored))

    def __enter__(self) -> "CorpusFile":
        return self

    def __exit__(self, *exception: object) -> None:
        self._stored.close()

    @property
    def bytes_read(self) -> int:
        """Return the number of bytes read so far, before decompression."""
        return self._stored.tell()

    @property
    def is_empty(self) -> bool:
        """Return whether no bytes are left. Read no more than a buffer."""
        try:
            return not self._unpacked.read(1)
        except (OSError, EOFError, zlib.error) as error:
            raise unreadable(self._path, error) from error

    def sentences(self) -> Iterator[List[str]]:
        """Yield the tokens of each line that is not blank. Raises the errors of `read_sentences`."""
        has_sentence = False
        for line in decoded_lines(self._unpacked, self._path, "one tokenized sentence"):
            tokens = split_tokens(line)
            if tokens:
                has_sentence = True
                yield tokens
        if not has_sentence:
            raise ConfigurationError(
                f"{self._path}: found no sentence, expected one tokenized sentence on each line. "
                "Remove the file from the corpus."
            )


def _matches(pattern: str) -> List[Path]:
    # First as a path, because names may contain brackets.
    if Path(pattern).is_file():
        return [Path(pattern)]
    if Path(pattern).is_dir():
        raise ConfigurationError(
            f"corpus: {pattern} is a folder, expected a file or a glob. Name its files, for instance "
            f"with {Path(pattern) / '*.txt'}."
        )
    # A broken link stays in the list, so that a missing shard is an error.
    paths = [Path(name) for name in glob.glob(pattern, recursive=True)]
    paths = [path for path in paths if not path.is_dir()]
    if not paths:
        raise ConfigurationError(
            f"corpus: {pattern} matches no file, expected the path of a file or a glob, from the folder "
            f"{Path.cwd()}. Correct the path, and quote a glob that the shell should not expand."
        )
    return paths


def _is_empty(path: Path) -> bool:
    with CorpusFile(path) as file:
        return file.is_empty
