"""
The console script `elmo`: its commands, parsers that import a command when it is called, and errors of the
user as one line.
"""

import argparse
import functools
import logging
import os
import sys
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from importlib import import_module
from io import TextIOWrapper
from types import ModuleType
from typing import (
    Any,
    Callable,
    Iterator,
    NamedTuple,
    NoReturn,
    Optional,
    Sequence,
    Tuple,
    get_type_hints,
)

import elmo_plugin
from elmo_plugin.arguments import add_options, options_from
from elmo_plugin.compat.environment import (
    INSTALL_ALLENNLP,
    needing_allennlp,
    without_collection,
)
from elmo_plugin.compat.training_process import sigterm_interrupts
from elmo_plugin.cpus import affinity_cpus, usable_cpus
from elmo_plugin.errors import ConfigurationError, one_line

INTERRUPTED = 130  # the exit status of shells for Ctrl-C
DEBUG = "--debug"

_DESCRIPTION = f"""\
examples:
  elmo embed sentences.txt vectors.hdf5 --average --model elmo_mini
  elmo neighbors sentences.txt --word bank --sentence "He robbed a bank ." --model elmo_mini
  elmo score sentences.txt --words --model elmo_mini
  elmo predict runs/ner/model.tar.gz sentences.jsonl
  elmo pretrain corpus/ my_elmo --size mini --hours 3

ELMo: vectors of words in context. `elmo COMMAND --help` describes a command. embed --mix, export (except
programs), predict, pretrain, serve and report need AllenNLP:
  pip install "elmo-plugin[allennlp]" && {INSTALL_ALLENNLP}
"""


help_formatter: Any = functools.partial(argparse.RawDescriptionHelpFormatter, max_help_position=32)


class Command(NamedTuple):
    """A command, whose module in this folder has its name."""

    help: str
    # Whether it may build what an archive names, which --include-package registers.
    loads_archives: bool = False


# In the order of the help.
COMMANDS = {
    "embed": Command("write the vectors of sentences to a file", loads_archives=True),
    "neighbors": Command("find the nearest occurrences of a word in context"),
    "score": Command(
        "print probabilities and perplexity of sentences, or the best words for a blank"
    ),
    "pretrain": Command("make a biLM from text, or adapt one to it"),
    "models": Command("list the models that have a name, or show one"),
    "vocab": Command("make the vocabulary of a biLM from a corpus"),
    "export": Command(
        "write the biLM of an archive as options.json and weights.hdf5, or as a program of torch or ONNX",
        loads_archives=True,
    ),
    "predict": Command("run a trained task model on JSON lines", loads_archives=True),
    "serve": Command("serve task models: a page in the browser, and JSON", loads_archives=True),
    "report": Command("make the paper's tables and figures"),
}


def main(words: Optional[Sequence[str]] = None) -> None:
    """Run the command that these words name, by default those of the command line."""
    words = sys.argv[1:] if words is None else words
    if sys.stderr is None:  # closed, which progress bars do not expect
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    is_debugging = DEBUG in words
    if usable_cpus() < affinity_cpus():
        # A quota, which torch, not yet imported, would not know.
        os.environ.setdefault("OMP_NUM_THREADS", str(usable_cpus()))
    logging.basicConfig(
        format="%(levelname)s: %(message)s", level=logging.INFO if is_debugging else logging.WARNING
    )
    # Which runs are trained, and how long it takes.
    logging.getLogger("elmo_plugin.report").setLevel(logging.INFO)
    if isinstance(sys.stdout, TextIOWrapper):
        # As the files that commands write, in any locale.
        sys.stdout.reconfigure(encoding="utf-8", errors=sys.stdout.errors)
    with exits_on_user_errors("elmo", is_debugging):
        args = _parser().parse_args(words)
        _import_packages(getattr(args, "include_package", ()))
        with sigterm_interrupts():
            args.func(args)


def module_of(command: str) -> ModuleType:
    """Import the module of a command."""
    with without_collection():
        return import_module(f"elmo_plugin.commands.{command}")


def _parser() -> "LazyParser":
    parser = LazyParser(prog="elmo", description=_DESCRIPTION, usage="%(prog)s COMMAND ...")
    version = f"elmo_plugin {elmo_plugin.__version__}"
    parser.add_argument("--version", action="version", version=version)
    parsers = parser.add_subparsers(
        title="commands", metavar="COMMAND", prog="elmo", parser_class=LazyParser
    )
    for name, command in COMMANDS.items():
        parsers.add_parser(
            name, help=command.help, declare=functools.partial(declare_command, name)
        )
    parser.set_defaults(func=lambda args: parser.print_help())
    return parser


class LazyParser(argparse.ArgumentParser):
    """
    A parser whose arguments are declared by a function when it is used, because importing them takes time.
    Its errors are one line, which has the likely spelling of an unknown option.
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
        parsed, unknown = super().parse_known_args(args, namespace)
        if unknown:  # also where it is the parser of a command, whose options are known here
            names_last = not any(word.startswith("-") for word in unknown) and any(
                word.startswith("-") for word in args or ()
            )
            words = " ".join(map(self._with_likely_spelling, unknown))
            hint = " (give names before options)" if names_last else ""
            self.error(f"unrecognized arguments: {words}{hint}")
        return parsed, unknown

    def _with_likely_spelling(self, word: str) -> str:
        flag = word.partition("=")[0]
        likely = get_close_matches(flag, self._option_string_actions, 1) if flag[:1] == "-" else []
        return f"{word} (did you mean {likely[0]}?)" if likely else word

    def error(self, message: str) -> Any:
        self.exit(2, f"{self.prog}: error: {one_line(message)}. See {self.prog} --help.\n")


def declare_command(name: str, parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of a command."""
    declare(parser, module_of(name))
    if COMMANDS[name].loads_archives:  # As `allennlp` does for `allennlp elmo`.
        parser.add_argument(
            "--include-package",
            action="append",
            default=[],
            metavar="PACKAGE",
            help="Python package to import first: it registers classes that ARCHIVE names",
        )


def declare(parser: argparse.ArgumentParser, command: Any) -> None:
    """
    Declare the arguments of a command and `--debug`, and set `func`, which runs it and exits as
    `exits_on_user_errors` says. A command is a module, or another object, of the form that
    `elmo_plugin.commands` describes; one with `add_subcommands` in place of `run` has subcommands, for which
    this function is called too.
    """
    parser.description, parser.usage = command.DESCRIPTION, getattr(command, "USAGE", None)
    if hasattr(command, "add_subcommands"):
        command.add_subcommands(parser)
        return
    options_class = get_type_hints(command.run)["options"]
    add_options(parser, options_class)
    parser.add_argument(
        DEBUG, action="store_true", help="show the traceback of an error, not only its message"
    )
    parser.usage = parser.usage or _short_usage(parser)

    def run(args: argparse.Namespace) -> None:
        with exits_on_user_errors(parser.prog, args.debug):
            command.run(options_from(options_class, args))

    parser.set_defaults(func=run)


def _short_usage(parser: argparse.ArgumentParser) -> str:
    """Return the usage with what must be given, where argparse would list all options."""
    words = ["%(prog)s"]
    for action in parser._actions:
        if action.required:
            value = action.metavar or action.dest.upper()
            values = [value] if isinstance(value, str) else value
            words.append(
                " ".join([*action.option_strings[-1:], *values]) + "..." * (action.nargs == "+")
            )
    return " ".join([*words, "[options]"])


def _import_packages(names: Sequence[str]) -> None:
    for name in names:
        with needing_allennlp("--include-package"):
            from allennlp.common.util import import_module_and_submodules
        try:
            import_module_and_submodules(name)
        except ImportError as error:
            raise ConfigurationError(
                f"--include-package: cannot import {name} ({error}). Correct the name, or install the "
                "package."
            ) from error


@contextmanager
def exits_on_user_errors(prog: str, is_debugging: bool) -> Iterator[None]:
    """
    Exit with status 2 and one line on stderr after an error in arguments, files or text. Ctrl-C, or SIGTERM
    while a command runs, exits with status 130 and one line, which has the message of the
    `KeyboardInterrupt`, if there is one. When debugging, errors are not caught.
    """
    if is_debugging:
        yield
        return
    try:
        yield
        print(end="", flush=True)  # What cannot be written is an error of the command.
    except BrokenPipeError:  # The reader of a pipe, such as `head`, has ended.
        _discard_output()
        sys.exit(1)
    except _user_errors() as error:
        _exit(2, f"{prog}: error: {one_line(_message(error))}")
    except KeyboardInterrupt as error:
        advice = str(error) or "the same command starts again"
        _exit(INTERRUPTED, f"{prog}: interrupted; {advice}")


def _exit(status: int, message: str) -> NoReturn:
    print(message, file=sys.stderr)
    try:
        print(end="", flush=True)
    except OSError:  # a full disk; or a reader that the same Ctrl-C has ended
        _discard_output()
    sys.exit(status)


def _discard_output() -> None:
    """Write what is left to nowhere: at its end Python would write it again, and fail."""
    with suppress(OSError, AttributeError):  # where it is no file
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _message(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror is not None:
        # Without "[Errno 2]".
        return ": ".join(str(part) for part in (error.filename, error.strerror) if part is not None)
    if isinstance(error, MemoryError) and not error.args:
        return "memory ran out. Free some, or give smaller input."
    if isinstance(error, RuntimeError):  # of a GPU
        return f"{error} Give smaller batches, or another device."
    return str(error)


def _user_errors() -> Tuple[Any, ...]:
    # AllenNLP's error is not one of ours, and it is loaded if it was raised.
    checks = sys.modules.get("allennlp.common.checks")
    of_allennlp = () if checks is None else (checks.ConfigurationError,)
    torch = sys.modules.get("torch")
    of_torch = () if torch is None else (torch.cuda.OutOfMemoryError,)
    return (ConfigurationError, OSError, MemoryError, *of_torch, *of_allennlp)
