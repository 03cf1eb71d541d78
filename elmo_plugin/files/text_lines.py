"""Read the lines of text files of any size, with clear errors for damaged content."""

import codecs
import zlib
from os import PathLike
from typing import BinaryIO, Iterator, List, Union

from elmo_plugin.errors import ConfigurationError

# About 180,000 English words: longer than any sentence, and a bound on memory for files without line feeds.
MAX_LINE_BYTES = 1_000_000


def split_tokens(line: str) -> List[str]:
    """
    Return the tokens of a line of tokenized text; a blank line has none. All of the package uses this
    function.

    Any white space separates tokens, also a no-break space or an ideographic space, as in bilm-tf and in
    AllenNLP's ELMo. (A zero-width space is not white space in Unicode.)
    """
    return line.split()


def decoded_lines(file: BinaryIO, path: Union[str, PathLike], line_content: str) -> Iterator[str]:
    """
    Yield the lines of a UTF-8 file without the line feed. A byte order mark is dropped. The parameters are
    those of `byte_lines`.

    # Raises

    `ConfigurationError` as `byte_lines`, and naming file and line if the line is not UTF-8.
    """
    for line_number, line in enumerate(byte_lines(file, path, line_content), start=1):
        try:
            yield line.decode("utf-8")
        except UnicodeDecodeError as error:
            raise ConfigurationError(
                f"{path}, line {line_number}: found the bytes {line[error.start : error.end]!r}, "
                "expected UTF-8. Convert the file, for instance with iconv; if it is compressed, its "
                "name must end in .gz."
            ) from error


def byte_lines(file: BinaryIO, path: Union[str, PathLike], line_content: str) -> Iterator[bytes]:
    """
    Yield the lines of a file of UTF-8 without the line feed and without a byte order mark. (Python's text
    files split lines at other characters too, do not know the line of a decoding error, and read lines of any
    length into memory.)

    # Parameters

    file : `BinaryIO`
        A file of bytes.
    path : `str` or `PathLike`
        Name of the file in errors.
    line_content : `str`
        What a line should hold, for errors.

    # Raises

    `ConfigurationError` naming file and line, if the line is longer than `MAX_LINE_BYTES`; naming the file,
    if it is damaged.
    """
    line_number = 0
    while True:
        try:
            line = file.readline(MAX_LINE_BYTES + 1)
        except (OSError, EOFError, zlib.error) as error:
            raise unreadable(path, error) from error
        if not line:
            return
        line_number += 1
        if len(line) > MAX_LINE_BYTES:
            raise ConfigurationError(
                f"{path}, line {line_number}: found a line of more than {MAX_LINE_BYTES:,} bytes, "
                f"expected {line_content} on each line, ended by a line feed. Split the line."
            )
        if line_number == 1:
            line = line.removeprefix(codecs.BOM_UTF8)
        yield line.removesuffix(b"\n")


def unreadable(path: Union[str, PathLike], error: Exception) -> ConfigurationError:
    """Return the error for a text file that cannot be opened or read to its end."""
    return ConfigurationError(
        f"{path}: cannot be read ({error}), expected a text file, or a complete gzip file if its name "
        "ends in .gz. Correct the path, or get another copy of the file."
    )
