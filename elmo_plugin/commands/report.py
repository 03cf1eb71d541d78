"""`elmo report`: the paper's tables and figures, for any biLM and tasks."""

import argparse
import inspect
import sys
from functools import partial
from importlib import import_module
from typing import Callable, NamedTuple, get_type_hints

from elmo_plugin.arguments import add_options, options_from
from elmo_plugin.commands.parsers import LazyParser, declare
from elmo_plugin.commands.user_errors import needing_allennlp
from elmo_plugin.errors import needing


class Entry(NamedTuple):
    """A report: a function in a module of `elmo_plugin.report`. Its argument is a dataclass of options."""

    function: str  # MODULE.FUNCTION; the module is imported when the report is called
    help: str


# In the order of the help.
REPORTS = {
    "weights": Entry(
        "weights.compare_weights", "Show how trained models weigh the layers of their biLM."
    ),
    "layers": Entry(
        "grid_reports.compare_layers",
        "Train a task without ELMo, with the last layer only, and with all layers.",
    ),
    "placement": Entry(
        "grid_reports.compare_placements",
        "Train a task with ELMo at the input of its RNN, at the output, at both and at none.",
    ),
    "vectors": Entry(
        "grid_reports.compare_vectors",
        "Train a task without pretrained vectors, with word vectors, and with several biLMs.",
    ),
    "sample-efficiency": Entry(
        "sample_efficiency.compare_shares",
        "Train a task with and without ELMo on shares of its training data.",
    ),
    "wsd": Entry(
        "wsd.compare_senses", "Classify the senses of words by their vectors, layer by layer."
    ),
    "pos": Entry(
        "pos.compare_tags",
        "Predict parts of speech from the vectors of each layer with a linear classifier.",
    ),
    "perplexity": Entry(
        "perplexity.compare_perplexities",
        "Fine-tune a biLM on the text of tasks, and measure its perplexity before and after.",
    ),
}

_DESCRIPTION = """\
example:
  %(prog)s layers training_configs/ner_small.jsonnet -s results

Repeat the paper's measurements with your own biLM, tasks and data. Each report writes tables (Markdown, CSV,
JSON) and figures (PNG, SVG) into a results folder. Needs pandas and matplotlib: pip install
"elmo-plugin[report]". `%(prog)s REPORT --help` describes a report, with examples.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the reports."""
    parser.usage, parser.description = "%(prog)s REPORT ...", _DESCRIPTION
    reports = parser.add_subparsers(
        title="reports",
        metavar="REPORT",
        required=True,
        prog=parser.prog,
        parser_class=LazyParser,
    )
    for name, entry in REPORTS.items():
        reports.add_parser(name, help=entry.help, declare=partial(_declare, name))


def _declare(name: str, parser: argparse.ArgumentParser) -> None:
    module, function = REPORTS[name].function.split(".")
    with needing_allennlp(f"report {name}"):
        import elmo_plugin.plugin  # noqa: F401 - patches and registers

        declare(parser, _Report(getattr(import_module(f"elmo_plugin.report.{module}"), function)))


class _Report:
    """A report as a command, from a function whose argument is a dataclass of options."""

    def __init__(self, function: Callable) -> None:
        self._function = function
        self._options_class = get_type_hints(function)["options"]

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.description = inspect.getdoc(self._options_class)
        add_options(parser, self._options_class)

    def run(self, args: argparse.Namespace) -> None:
        """Make the report, print the files that it wrote, and exit with an error if runs failed."""
        with needing("report needs matplotlib and pandas", "elmo-plugin[report]"):
            import matplotlib  # noqa: F401
            import pandas  # noqa: F401
        report = self._function(options_from(self._options_class, args))
        if report is None:  # after a dry run
            return
        print(*report.files, sep="\n")
        if report.failures:
            sys.exit(f"{len(report.failures)} runs failed:\n" + "\n".join(report.failures))
