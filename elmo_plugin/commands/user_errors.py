"""End a command with one line and exit status 2, without a traceback, if the user must change something."""

import argparse
import functools
import sys
from typing import Any, Callable

from allennlp.common.checks import ConfigurationError

INTERRUPTED = 130  # the exit status of shells for Ctrl-C


def add_debug_argument(parser: argparse.ArgumentParser) -> None:
    """Add `--debug`, which `exits_on_user_errors` reads."""
    parser.add_argument(
        "--debug", action="store_true", help="show the traceback of an error, not only its message"
    )
    parser.set_defaults(prog=parser.prog)


def exits_on_user_errors(
    command: Callable[[argparse.Namespace], Any],
) -> Callable[[argparse.Namespace], Any]:
    """
    Decorate the function of a command: an error in arguments, files or text exits with status 2 and one line
    on stderr, Ctrl-C with status 130.
    """

    @functools.wraps(command)
    def run(args: argparse.Namespace) -> Any:
        if args.debug:
            return command(args)
        try:
            return command(args)
        except ConfigurationError as error:
            message = error.message
        except OSError as error:
            message = error.strerror or str(error)
            if error.filename is not None:
                message = f"{error.filename}: {message}"
        except KeyboardInterrupt:
            print(f"{args.prog}: interrupted", file=sys.stderr)
            sys.exit(INTERRUPTED)
        print(f"{args.prog}: error: {'; '.join(message.splitlines())}", file=sys.stderr)
        sys.exit(2)

    return run
