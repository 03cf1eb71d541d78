"""Parsers of commands, which import what they parse when they are used."""

import argparse
import functools
from typing import Any, Callable, Optional, Sequence, Tuple

from elmo_plugin.commands.user_errors import DEBUG, exits_on_user_errors

help_formatter: Any = functools.partial(argparse.RawDescriptionHelpFormatter, max_help_position=32)


def declare(parser: argparse.ArgumentParser, command: Any) -> None:
    """
    Declare the arguments of a command and `--debug`, and set `func`, which runs it and exits as
    `exits_on_user_errors` says.

    # Parameters

    command
        Its module, or another object with functions `add_arguments` and `run`. One without `run` has
        subcommands, for which this function is called too.
    """
    command.add_arguments(parser)
    if hasattr(command, "run"):
        parser.add_argument(
            DEBUG, action="store_true", help="show the traceback of an error, not only its message"
        )
        parser.set_defaults(func=exits_on_user_errors(command.run), prog=parser.prog)
        parser.usage = parser.usage or _short_usage(parser)


def _short_usage(parser: argparse.ArgumentParser) -> str:
    """Return the usage with what must be given, where argparse would list all options."""
    words = ["%(prog)s"]
    for action in parser._actions:
        if action.required:
            value = str(action.metavar or action.dest.upper())
            words.append(
                " ".join([*action.option_strings[-1:], value]) + "..." * (action.nargs == "+")
            )
    return " ".join([*words, "[options]"])


class LazyParser(argparse.ArgumentParser):
    """
    A parser whose arguments are declared by a function when it is used, because importing them takes time.
    Its errors are one line.
    """

    def __init__(
        self, *, declare: Optional[Callable[["LazyParser"], None]] = None, **settings: Any
    ) -> None:
        super().__init__(**{"formatter_class": help_formatter, **settings})
        self._declare = declare

    def parse_known_args(  # type: ignore[override]
        self, args: Optional[Sequence[str]] = None, namespace: Optional[argparse.Namespace] = None
    ) -> Tuple[argparse.Namespace, Any]:
        if self._declare is not None:
            declare, self._declare = self._declare, None
            declare(self)
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> Any:
        self.exit(2, f"{self.prog}: error: {message}. See {self.prog} --help.\n")
