"""What every subcommand of `allennlp elmo-report` is."""

import argparse
from typing import Protocol


class Subreport(Protocol):
    """
    A question that `allennlp elmo-report` answers.

    # Parameters

    name : `str`
        Of the subcommand, such as `layers`.
    help : `str`
        One line for the list of subcommands.
    description : `str`
        For `--help`, with examples.
    """

    name: str
    help: str
    description: str

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the arguments of the subcommand."""

    def run(self, args: argparse.Namespace) -> None:
        """Do the work that the arguments ask for."""
