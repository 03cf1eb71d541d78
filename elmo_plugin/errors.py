"""The error for wrong configs and data, its usual checks, and warnings that are given once."""

import functools
import logging
import re
from contextlib import contextmanager
from numbers import Integral, Real
from typing import Any, Collection, Iterator, Optional

# No path of a file is as long.
_LONG_WORD = re.compile(r"(\S{200})\S{4000,}(\S{100})")


class ConfigurationError(ValueError):
    """
    Say which file or key is wrong, what was found, what was expected, and what to do.

    AllenNLP has an error of this name, which is another class. AllenNLP handles this one where it handles its
    own: it catches `ValueError` too.

    Messages quote files, which may hold anything: characters that cannot be printed, such as those that
    control a terminal and halves of surrogate pairs, are escaped, and words of thousands of characters are
    shortened.
    """

    def __init__(self, message: str) -> None:
        self.message = printable(message)
        super().__init__(self.message)


def printable(message: str) -> str:
    """Return a message as `ConfigurationError` shows it."""
    return "".join(map(_printable, _LONG_WORD.sub(r"\1 ... \2", message)))


def one_line(message: str) -> str:
    """Return a printable message without line breaks, whatever words of the user it repeats."""
    return "; ".join(printable(message).splitlines())


def _printable(character: str) -> str:
    return character if character.isprintable() or character == "\n" else repr(character)[1:-1]


def check_choice(key: str, value: Any, choices: Collection[str]) -> None:
    """Raise `ConfigurationError` unless the value of a key is one of `choices`."""
    if value not in list(choices):
        raise ConfigurationError(f"{key} is '{value}', expected one of {', '.join(choices)}.")


def check_positive(key: str, value: Optional[int]) -> None:
    """Raise `ConfigurationError` unless the value of a key is at least 1, or `None`."""
    if value is not None and not (isinstance(value, Integral) and value >= 1):
        raise ConfigurationError(f"{key} is {value!r}, expected a positive whole number.")


def is_probability(value: Any) -> bool:
    """Return whether this is a number from 0 to 1, such as a dropout."""
    return isinstance(value, Real) and 0 <= float(value) <= 1


@contextmanager
def errors_at(place: str) -> Iterator[None]:
    """
    Add a place, such as a file or `train.conll, line 3`, to errors that do not name its file. Errors that
    name it already, such as those of a token, pass unchanged.
    """
    try:
        yield
    except ConfigurationError as error:
        file_path, comma, _ = place.partition(", ")
        if error.message.startswith(file_path + comma):
            raise
        raise ConfigurationError(f"{place}: {error.message}") from error


@contextmanager
def advising(advice: str) -> Iterator[None]:
    """Add what to do to errors that say only what was found and expected."""
    try:
        yield
    except ConfigurationError as error:
        raise ConfigurationError(f"{error.message}. {advice}") from error


@contextmanager
def needing(need: str, requirement: str, advice: str = "") -> Iterator[None]:
    """
    Raise `ConfigurationError`, which says how to install what is missing, if an import in the context fails.
    `need` says what needs which package ("Figures need matplotlib"), `requirement` is what pip installs, and
    `advice` is the end of the message: what to do next, or instead.
    """
    try:
        yield
    except ImportError as error:
        raise ConfigurationError(
            f'{need}, which cannot be imported ({error}). Install it: pip install "{requirement}"{advice}'
        ) from error


@functools.cache
def warn_once(logger: logging.Logger, message: str) -> None:
    """Log a warning, unless this process has logged the same message with the same logger."""
    # The cache has no frame, so this is the line of the caller.
    logger.warning(message, stacklevel=2)
