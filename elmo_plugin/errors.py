"""The error for wrong configs and data, and for packages that are not installed."""

from contextlib import contextmanager
from typing import Iterator


class _Unattached(Exception):
    # A base that AllenNLP's class replaces once it is loaded: Python exchanges only bases of one layout.
    pass


class ConfigurationError(_Unattached, ValueError):
    """
    Says which file or key is wrong, what was found, what was expected, and what to do.

    If AllenNLP is loaded, it is a subclass of AllenNLP's error of this name, so that code which catches that
    one catches this one too.
    """

    def __init__(self, message: str) -> None:
        # Not `super()`, which becomes AllenNLP's.
        ValueError.__init__(self, message)
        self.message = message


@contextmanager
def needing(need: str, requirement: str, advice: str = "") -> Iterator[None]:
    """
    Import, within the context, a package that comes with an extra.

    # Parameters

    need : `str`
        What needs which package: "--print-completion needs shtab".
    requirement : `str`
        What pip installs.
    advice : `str`, optional
        The end of the message: what to do next, or instead.

    # Raises

    `ConfigurationError` that says how to install what is missing.
    """
    try:
        yield
    except ImportError as error:
        raise ConfigurationError(
            f'{need}, which cannot be imported ({error}). Install it: pip install "{requirement}"{advice}'
        ) from error


def join_allennlp() -> None:
    """Make `ConfigurationError` a subclass of AllenNLP's. Called once AllenNLP is loaded."""
    from allennlp.common.checks import ConfigurationError as AllenNLPConfigurationError

    ConfigurationError.__bases__ = (AllenNLPConfigurationError, ValueError)
