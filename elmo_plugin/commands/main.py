"""The console script `elmo`: its commands, and parsers that import a command when it is called."""

import argparse
import functools
import logging
import sys
from importlib import import_module
from types import ModuleType
from typing import Any, Callable, NamedTuple, Optional, Sequence, Tuple

import elmo_plugin
from elmo_plugin.commands.user_errors import DEBUG, exits_on_user_errors, needing_allennlp
from elmo_plugin.compat.environment import INSTALL_ALLENNLP
from elmo_plugin.errors import ConfigurationError

_DESCRIPTION = f"""\
examples:
  elmo embed sentences.txt vectors.hdf5 --average --options-file elmo_mini
  elmo neighbors sentences.txt --word bank --options-file elmo_mini
  elmo score sentences.txt --words
  elmo predict runs/ner/model.tar.gz sentences.jsonl

ELMo: vectors of words in context. `elmo COMMAND --help` describes a command. export (except programs),
predict, serve and report need AllenNLP:
  pip install "elmo-plugin[allennlp]" && {INSTALL_ALLENNLP}
"""


help_formatter: Any = functools.partial(argparse.RawDescriptionHelpFormatter, max_help_position=32)


class Command(NamedTuple):
    """A command, whose module in this folder has its name."""

    help: str
    subcommand: Optional[str] = None  # its name among those of `allennlp`
    # Whether it may build what an archive names, which --include-package registers.
    loads_archives: bool = False


# In the order of the help.
COMMANDS = {
    "embed": Command("write the vectors of sentences to a file", "elmo", loads_archives=True),
    "neighbors": Command(
        "find the nearest occurrences of a word in context, or clusters of them", "elmo-neighbors"
    ),
    "score": Command(
        "print probabilities and perplexity of sentences, or the best words for a blank"
    ),
    "models": Command("list the models that come with this package"),
    "vocab": Command("make the vocabulary of a biLM from a corpus", "elmo-vocab"),
    "export": Command(
        "write the biLM of an archive as options.json and weights.hdf5, or as a program of torch or ONNX",
        "elmo-export",
        loads_archives=True,
    ),
    "predict": Command("run a trained task model on JSON lines", loads_archives=True),
    "serve": Command("serve task models: a page in the browser, and JSON", loads_archives=True),
    "report": Command("make the paper's tables and figures", "elmo-report"),
}


def main(words: Optional[Sequence[str]] = None) -> None:
    """Run the command that these words name, by default those of the command line."""
    words = sys.argv[1:] if words is None else words
    is_debugging = DEBUG in words
    logging.basicConfig(
        format="%(levelname)s: %(message)s",
        level=logging.INFO if is_debugging else logging.WARNING,
    )
    # Which runs are trained, and how long it takes.
    logging.getLogger("elmo_plugin.report").setLevel(logging.INFO)
    exits_on_user_errors(_run)(argparse.Namespace(words=words, debug=is_debugging, prog="elmo"))


def module_of(command: str) -> ModuleType:
    """Import the module of a command."""
    return import_module(f"elmo_plugin.commands.{command}")


def _run(args: argparse.Namespace) -> None:
    parsed = _parser().parse_args(args.words)
    _import_packages(getattr(parsed, "include_package", ()))
    parsed.func(parsed)


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


def declare_command(name: str, parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of a command."""
    declare(parser, module_of(name))
    if COMMANDS[name].loads_archives:  # As AllenNLP does for its subcommands.
        parser.add_argument(
            "--include-package",
            action="append",
            default=[],
            metavar="PACKAGE",
            help="import this first: it registers what ARCHIVE names",
        )


def declare(parser: argparse.ArgumentParser, command: Any) -> None:
    """
    Declare the arguments of a command and `--debug`, and set `func`, which runs it and exits as
    `exits_on_user_errors` says. A command is a module, or another object, with functions `add_arguments` and
    `run`; one without `run` has subcommands, for which this function is called too.
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
