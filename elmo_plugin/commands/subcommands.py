"""Register the commands with AllenNLP: `elmo embed` is `allennlp elmo`, too."""

import argparse
from typing import Any

from allennlp.commands.subcommand import Subcommand

from elmo_plugin.commands.main import COMMANDS, Command, declare, help_formatter, module_of


def _register(name: str, command: Command) -> None:
    class ElmoSubcommand(Subcommand):
        # AllenNLP then adds --include-package.
        requires_plugins = command.loads_archives

        def add_subparser(self, parser: Any) -> argparse.ArgumentParser:
            subparser: argparse.ArgumentParser = parser.add_parser(
                self.name, help=command.help, formatter_class=help_formatter
            )
            declare(subparser, module_of(name))
            return subparser

    assert command.subcommand is not None
    Subcommand.register(command.subcommand)(ElmoSubcommand)


for _name, _command in COMMANDS.items():
    if _command.subcommand is not None:
        _register(_name, _command)
