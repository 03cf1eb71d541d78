"""Lines of text files, however large the file or wrong its content."""

import codecs
import zlib
from os import PathLike
from typing import BinaryIO, Iterator, List, Union

from elmo_plugin.errors import ConfigurationError

# Some 180,000 English words: far over any sentence, and little memory when no line ever ends.
MAX_LINE_BYTES = 1_000_000


def split_tokens(line: str) -> List[str]:
    """
    Return the tokens of a line of tokenized text, none for a blank line: the one definition of both.

    Any white space separates tokens, a no-break space or an ideographic space too, as in bilm-tf and in
    AllenNLP's ELMo. (A zero-width space is no white space in Unicode.)
    """
    return line.split()


def decoded_lines(file: BinaryIO, path: Union[str, PathLike], line_content: str) -> Iterator[str]:
    """
    The lines of a UTF-8 file without their line feed; a byte order mark is dropped.

    # Parameters

    file : `BinaryIO`
        Bytes, since text files split lines at more than the line feed, decode in blocks that hide
        the line, and hold a line in memory however long it is.
    path : `str` or `PathLike`
        Names the file in errors.
    line_content : `str`
        What errors say that a line should hold.

    # Raises

    `ConfigurationError` naming file and line, if the line is not UTF-8 or longer than
    `MAX_LINE_BYTES`; naming the file, if it is damaged.
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
                f"expected {line_content} on each line, which a line feed ends. Split the line."
            )
        if line_number == 1:
            line = line.removeprefix(codecs.BOM_UTF8)
        try:
            yield line.decode("utf-8").removesuffix("\n")
        except UnicodeDecodeError as error:
            raise ConfigurationError(
                f"{path}, line {line_number}: found the bytes {line[error.start : error.end]!r}, "
                "expected UTF-8. Convert the file, for instance with iconv; if it is compressed, its "
                "name must end in .gz."
            ) from error


def unreadable(path: Union[str, PathLike], error: Exception) -> ConfigurationError:
    """The error to raise when a file of text cannot be opened or read to its end."""
    return ConfigurationError(
        f"{path}: cannot be read ({error}), expected a text file, or a complete gzip file if its name "
        "ends in .gz. Correct the path, or get another copy of the file."
    )
