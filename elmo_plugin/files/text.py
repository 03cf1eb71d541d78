"""Read text and JSON that users name: sizes are limited, and errors say what is wrong where."""

import codecs
import gzip
import io
import json
import os
import stat
import sys
import zlib
from os import PathLike
from typing import Any, BinaryIO, Iterator, List, Optional, Tuple, Union

from elmo_plugin.errors import ConfigurationError

FileName = Union[str, PathLike]
FileId = Tuple[int, int]

STANDARD_STREAM = "-"  # as the name of a file: standard input or output

# The largest file that is read as a whole: options, configs, metrics and descriptions have some kilobytes.
MAX_BYTES = 10_000_000
# Levels of JSON. More would exceed Python's limit of recursion where values are copied or written.
MAX_DEPTH = 100
# About 180,000 English words: longer than any sentence, and a bound on memory for files without line feeds.
MAX_LINE_BYTES = 1_000_000


def read_text(path: FileName, content: str, max_bytes: int = MAX_BYTES) -> str:
    """
    Return the text of a UTF-8 file, without a byte order mark. `content` says in errors what the file should
    contain: "the options of a biLM".

    # Raises

    `ConfigurationError` naming the file if it cannot be read, is not a regular file, is longer than
    `max_bytes`, or is not UTF-8.
    """
    try:
        # Before it is opened: opening a pipe can wait forever, and a device may have no end.
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise OSError("not a regular file")
        with open(path, "rb") as file:
            data = file.read(max_bytes + 1)
        if len(data) > max_bytes:
            raise OSError(f"more than {max_bytes:,} bytes")
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigurationError(
            f"{path}: not UTF-8 text ({error.reason} at byte {error.start}), expected {content}. Correct the "
            "path, or convert the file."
        ) from error
    # ValueError: a null character in the path.
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigurationError(
            f"{path}: cannot be read ({reason}), expected {content}. Correct the path."
        ) from error


def read_json(path: FileName, content: str, max_bytes: int = MAX_BYTES) -> Any:
    """Return the value in a JSON file. Raise as `read_text`, and if it is not JSON, see `parse_json`."""
    text = read_text(path, content, max_bytes)
    try:
        return parse_json(text)
    except ValueError as error:
        raise ConfigurationError(
            f"{path}: not JSON ({error}), expected {content}. Correct the file."
        ) from error


def parse_json(text: str) -> Any:
    """
    Return the value of JSON text. Raise `ValueError` if the text is not JSON, has a number of thousands of
    digits, or has more than `MAX_DEPTH` levels.
    """
    try:
        value = json.loads(text)
    except RecursionError as error:
        raise ValueError(f"more than {MAX_DEPTH} levels") from error
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [item for parent in level for item in _items(parent)]
        if not level:
            return value
    raise ValueError(f"more than {MAX_DEPTH} levels")


def _items(value: Any) -> Any:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def is_unicode(text: str) -> bool:
    """
    Return whether text can be written to a file. JSON can contain half of a surrogate pair, "\\ud83d", and
    Python reads bytes of the command line that are not UTF-8 as such halves.
    """
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def file_id(path: FileName) -> Optional[FileId]:
    """Return what is equal for all names of a file, such as that of a link to it; `None` if there is none."""
    try:
        found = os.stat(path)
    except (OSError, ValueError):  # ValueError: a null character in the path
        return None
    return found.st_dev, found.st_ino


def split_tokens(line: str) -> List[str]:
    """
    Return the tokens of a line of tokenized text; a blank line has none. The whole package uses this
    definition.

    Any white space separates tokens, also a no-break space or an ideographic space, as in bilm-tf and in
    AllenNLP's ELMo. (A zero-width space is not white space in Unicode.)
    """
    return line.split()


def open_text(path: FileName, name: Optional[str] = None) -> BinaryIO:
    """
    Open a file of text for `decoded_lines` or `byte_lines`. `name` is what the user gave for it, by default
    its path: the file is decompressed if that ends in `.gz`. Raise `ConfigurationError` if it cannot be
    opened.
    """
    try:
        if str(name or path).endswith(".gz"):
            # GzipFile finds line ends in Python, BufferedReader in C.
            return io.BufferedReader(gzip.open(path))
        return open(path, "rb")
    # ValueError: a null character in the path.
    except (OSError, ValueError) as error:
        raise unreadable(name or path, error) from error


def standard_input() -> BinaryIO:
    """Return the bytes of standard input. Raise `ConfigurationError` if the process has none."""
    stream: Optional[BinaryIO] = getattr(sys.stdin, "buffer", None)
    if stream is None:
        raise ConfigurationError(
            "standard input is closed, expected text. Give it, or the path of a file in place of -."
        )
    return stream


def decoded_lines(file: BinaryIO, path: FileName, line_content: str) -> Iterator[str]:
    """
    Yield the lines of a UTF-8 file as text. Parameters and errors are those of `byte_lines`; a line that is
    not UTF-8 is an error too, which names file and line.
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


def byte_lines(
    file: BinaryIO, path: FileName, line_content: str, too_long: Optional[bytes] = None
) -> Iterator[bytes]:
    """
    Yield the lines of a UTF-8 file as bytes, without the line feed and without a byte order mark. (Python's
    text files split lines at other characters too, do not know the line of a decoding error, and read lines
    of any length into memory.) `path` is the name of the file in errors, and `line_content` what they expect
    on a line. `too_long`, if given, is yielded in place of a line that is longer than `MAX_LINE_BYTES`.

    # Raises

    `ConfigurationError` naming file and line, if the line is longer than `MAX_LINE_BYTES` and there is no
    `too_long`; naming the file, if it is damaged.
    """
    line_number = 0
    while True:
        try:
            line = file.readline(MAX_LINE_BYTES + 1)
            is_too_long = len(line.removesuffix(b"\n")) > MAX_LINE_BYTES
            if is_too_long and too_long is not None:
                while line and not line.endswith(b"\n"):
                    line = file.readline(MAX_LINE_BYTES)
                line, is_too_long = too_long + b"\n", False
        except (OSError, EOFError, zlib.error) as error:
            raise unreadable(path, error) from error
        if not line:
            return
        line_number += 1
        if is_too_long:
            raise ConfigurationError(
                f"{path}, line {line_number}: found a line of more than {MAX_LINE_BYTES:,} bytes, "
                f"expected {line_content} on each line, ended by a line feed. Split the line."
            )
        if line_number == 1:
            line = line.removeprefix(codecs.BOM_UTF8)
        yield line.removesuffix(b"\n")


def unreadable(path: FileName, error: Exception) -> ConfigurationError:
    """Return the error for a text file that cannot be opened or read to its end."""
    reason = getattr(error, "strerror", None) or error
    return ConfigurationError(
        f"{path}: cannot be read ({reason}), expected a text file, or a complete gzip file if its name "
        "ends in .gz. Correct the path, or get another copy of the file."
    )
