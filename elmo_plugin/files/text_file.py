"""Read whole files of text and JSON, with a limit of their size and clear errors."""

import json
import os
import stat
from os import PathLike
from typing import Any, Union

from elmo_plugin.errors import ConfigurationError

# Options, configs, metrics and descriptions have some kilobytes.
MAX_BYTES = 10_000_000
# More levels would exceed Python's limit of recursion where values are copied or written.
MAX_DEPTH = 100


def read_text(path: Union[str, PathLike], content: str) -> str:
    """
    Return the text of a UTF-8 file, without a byte order mark.

    # Parameters

    path : `str` or `PathLike`
        A local file.
    content : `str`
        What the file should contain, for errors: "the options of a biLM".

    # Raises

    `ConfigurationError` naming the file if it cannot be read, is not a regular file, is longer than
    `MAX_BYTES`, or is not UTF-8.
    """
    try:
        # Before it is opened: opening a pipe can wait forever, and a device may have no end.
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise OSError("not a regular file")
        with open(path, "rb") as file:
            data = file.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise OSError(f"more than {MAX_BYTES:,} bytes")
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


def read_json(path: Union[str, PathLike], content: str) -> Any:
    """
    Return the value in a JSON file.

    # Raises

    `ConfigurationError` as `read_text`, and if the file is not JSON or is nested too deeply.
    """
    text = read_text(path, content)
    try:
        return parse_json(text)
    except ValueError as error:
        raise ConfigurationError(
            f"{path}: not JSON ({error}), expected {content}. Correct the file."
        ) from error


def parse_json(text: str) -> Any:
    """
    Return the value of JSON text.

    # Raises

    `ValueError` if the text is not JSON, has a number of thousands of digits, or has more than `MAX_DEPTH`
    levels.
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
