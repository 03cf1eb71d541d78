"""End a command with one line and exit status 2, without a traceback, if the user must change something."""

import argparse
import functools
import os
import sys
from typing import Any, Callable, ContextManager, Tuple, Type

from elmo_plugin.compat.environment import INSTALL_ALLENNLP
from elmo_plugin.errors import ConfigurationError, needing

INTERRUPTED = 130  # the exit status of shells for Ctrl-C
DEBUG = "--debug"


def exits_on_user_errors(
    command: Callable[[argparse.Namespace], Any],
) -> Callable[[argparse.Namespace], Any]:
    """
    Decorate the function of a command. It reads `debug` and `prog` of its arguments.

    An error in arguments, files or text exits with status 2 and one line on stderr. Ctrl-C exits with status
    130 and one line, which has the message of the `KeyboardInterrupt`, if there is one.
    """

    @functools.wraps(command)
    def run(args: argparse.Namespace) -> Any:
        if args.debug:
            return command(args)
        try:
            return command(args)
        except BrokenPipeError:
            # The reader of a pipe, such as `head`, has ended. Python must not write to it at its end.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(1)
        except _user_errors() as error:
            line, status = "; ".join(_message(error).splitlines()), 2
            print(f"{args.prog}: error: {line}", file=sys.stderr)
        except KeyboardInterrupt as error:
            advice, status = str(error) or "the same command starts again", INTERRUPTED
            print(f"{args.prog}: interrupted; {advice}", file=sys.stderr)
        sys.exit(status)

    return run


def needing_allennlp(what: str) -> ContextManager[None]:
    """Do as `needing` does for a command or option that needs AllenNLP."""
    return needing(f"{what} needs AllenNLP", "elmo-plugin[allennlp]", f" && {INSTALL_ALLENNLP}")


def _message(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror is not None:
        # Without "[Errno 2]".
        return ": ".join(str(part) for part in (error.filename, error.strerror) if part is not None)
    return str(error)


def _user_errors() -> Tuple[Type[Exception], ...]:
    # AllenNLP's error is not one of ours, and it is loaded if it was raised.
    checks = sys.modules.get("allennlp.common.checks")
    of_allennlp = () if checks is None else (checks.ConfigurationError,)
    return (ConfigurationError, OSError, *of_allennlp)
