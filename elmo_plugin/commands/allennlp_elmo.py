"""`allennlp elmo`, as AllenNLP 0.9 called it: `elmo embed`."""

import argparse
from typing import Any

from allennlp.commands.subcommand import Subcommand

from elmo_plugin.commands.main import COMMANDS, declare, help_formatter, module_of


@Subcommand.register("elmo")
class ElmoSubcommand(Subcommand):
    """`elmo embed` among the commands of `allennlp`."""

    # AllenNLP then adds --include-package.
    requires_plugins = True

    def add_subparser(self, parser: Any) -> argparse.ArgumentParser:
        subparser: argparse.ArgumentParser = parser.add_parser(
            self.name, help=COMMANDS["embed"].help, formatter_class=help_formatter
        )
        declare(subparser, module_of("embed"))
        return subparser
