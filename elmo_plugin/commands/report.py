"""`elmo report`: the paper's tables and figures, for any biLM and tasks."""

import argparse
import inspect
import sys
from functools import partial, wraps
from importlib import import_module
from types import SimpleNamespace
from typing import Any, get_type_hints

from elmo_plugin.commands.main import LazyParser, declare
from elmo_plugin.compat.environment import needing_allennlp
from elmo_plugin.errors import needing

# MODULE.FUNCTION in `elmo_plugin.report`, imported when the report is called, and help, in the order of the
# help. The argument of a function is a dataclass of options.
REPORTS = {
    "weights": (
        "weights.compare_weights",
        "Show how trained models weigh the layers of their biLM.",
    ),
    "layers": (
        "task_reports.compare_layers",
        "Train a task without ELMo, with the last layer only, and with all layers.",
    ),
    "placement": (
        "task_reports.compare_placements",
        "Train a task with ELMo at the input of its RNN, at the output, at both and at none.",
    ),
    "vectors": (
        "task_reports.compare_vectors",
        "Train a task without pretrained vectors, with word vectors, and with several biLMs.",
    ),
    "sample-efficiency": (
        "task_reports.compare_shares",
        "Train a task with and without ELMo on shares of its training data.",
    ),
    "wsd": ("wsd.compare_senses", "Classify the senses of words by their vectors, layer by layer."),
    "pos": (
        "pos.compare_tags",
        "Predict parts of speech from the vectors of each layer with a linear classifier.",
    ),
    "perplexity": (
        "perplexity.compare_perplexities",
        "Adapt a biLM to the text of tasks, and measure its perplexity before and after.",
    ),
}

DESCRIPTION = """\
example:
  %(prog)s layers training_configs/ner_small.jsonnet -s results

Repeat the paper's measurements with your own biLM, tasks and data. Each report writes tables (Markdown, CSV,
JSON) and figures (PNG, SVG) into a results folder. Needs matplotlib: pip install "elmo-plugin[report]".
`%(prog)s REPORT --help` describes a report, with examples.
"""


USAGE = "%(prog)s REPORT ..."


def add_subcommands(parser: argparse.ArgumentParser) -> None:
    """Declare the reports."""
    reports = parser.add_subparsers(
        title="reports", metavar="REPORT", required=True, prog=parser.prog, parser_class=LazyParser
    )
    for name, (_, help) in REPORTS.items():
        reports.add_parser(name, help=help, declare=partial(declare_report, name))


def declare_report(name: str, parser: argparse.ArgumentParser) -> None:
    """Declare the options of a report."""
    module, _, function_name = REPORTS[name][0].partition(".")
    with needing_allennlp(f"report {name}"):
        import elmo_plugin.plugin  # noqa: F401 - patches and registers

        function = getattr(import_module(f"elmo_plugin.report.{module}"), function_name)
    options_class = get_type_hints(function)["options"]

    @wraps(function)  # which takes the same options
    def run(options: Any) -> None:
        """Make the report, print the files that it wrote, and exit with an error if runs failed."""
        with needing("report needs matplotlib", "elmo-plugin[report]"):
            import matplotlib  # noqa: F401
        report = function(options)
        if report is None:  # after a dry run
            return
        print(*report.files, sep="\n")
        if report.failures:
            sys.exit(f"{len(report.failures)} runs failed:\n" + "\n".join(report.failures))

    declare(parser, SimpleNamespace(DESCRIPTION=inspect.getdoc(options_class), run=run))
