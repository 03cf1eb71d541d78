"""`allennlp elmo-report`: the paper's tables and figures, for any biLM and tasks."""

import argparse
import inspect
import sys
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Callable, NamedTuple, Optional, Sequence, Tuple, get_type_hints

from allennlp.commands.subcommand import Subcommand
from allennlp.common.checks import ConfigurationError

from elmo_plugin.arguments import add_options, options_from
from elmo_plugin.commands.user_errors import add_debug_argument, exits_on_user_errors


class Entry(NamedTuple):
    """
    A report: the name of its module in `elmo_plugin.report`, which is imported when the report is called; the
    name of its function, whose argument is a dataclass of options; and a line of help.
    """

    module: str
    function: str
    help: str


# In the order of the help.
REPORTS = {
    "weights": Entry(
        *("weights", "compare_weights"),
        help="Show how trained models weigh the layers of their biLM.",
    ),
    "layers": Entry(
        *("grid_reports", "compare_layers"),
        help="Train a task without ELMo, with the last layer only, and with all layers.",
    ),
    "placement": Entry(
        *("grid_reports", "compare_placements"),
        help="Train a task with ELMo at the input of its RNN, at the output, at both and at none.",
    ),
    "sample-efficiency": Entry(
        *("sample_efficiency", "compare_shares"),
        help="Train a task with and without ELMo on shares of its training data.",
    ),
    "wsd": Entry(
        *("wsd", "compare_senses"),
        help="Classify the senses of words by their vectors, layer by layer.",
    ),
    "pos": Entry(
        *("pos", "compare_tags"),
        help="Predict parts of speech from the vectors of each layer with a linear classifier.",
    ),
    "perplexity": Entry(
        *("perplexity", "compare_perplexities"),
        help="Fine-tune a biLM on the text of tasks, and measure its perplexity before and after.",
    ),
    "page": Entry(
        *("page", "write_page"),
        help="Put the tables and figures of a folder into one HTML file.",
    ),
}

_DESCRIPTION = """ Make the paper's measurements for your own biLM, tasks and data. Each report writes tables
(Markdown, CSV, JSON) and figures (PNG, SVG) into a results folder. Needs pandas, matplotlib and jinja2: pip
install "elmo_plugin[report]".
"""

_EPILOG = """
`allennlp elmo-report REPORT --help` describes a report, with examples.
"""


@Subcommand.register("elmo-report")
class ElmoReport(Subcommand):
    """Write tables and figures: `allennlp elmo-report REPORT ... -s DIR`."""

    # Reports that build what a config names have --include-package themselves: it follows the report's name.
    requires_plugins = False

    def add_subparser(self, parser: argparse._SubParsersAction) -> argparse.ArgumentParser:
        subparser: argparse.ArgumentParser = parser.add_parser(
            self.name,
            description=_DESCRIPTION,
            epilog=_EPILOG,
            help="Make the paper's tables and figures.",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        reports = subparser.add_subparsers(
            title="reports", metavar="REPORT", required=True, parser_class=_ReportParser
        )
        for name, entry in REPORTS.items():
            reports.add_parser(name, help=entry.help, entry=entry)
        return subparser


class _ReportParser(argparse.ArgumentParser):
    """The parser of a report. Its arguments are added when it is used, which imports the report's module."""

    def __init__(self, *, entry: Entry, **kwargs: Any) -> None:
        super().__init__(formatter_class=argparse.RawDescriptionHelpFormatter, **kwargs)
        self._entry: Optional[Entry] = entry

    def parse_known_args(  # type: ignore[override]
        self, args: Optional[Sequence[str]] = None, namespace: Optional[argparse.Namespace] = None
    ) -> Tuple[argparse.Namespace, Any]:
        if self._entry is not None:
            entry, self._entry = self._entry, None
            module = import_module(f"elmo_plugin.report.{entry.module}")
            report = getattr(module, entry.function)
            options_class = get_type_hints(report)["options"]
            self.description = inspect.getdoc(options_class)
            add_options(self, options_class)
            add_debug_argument(self)
            self.set_defaults(func=_command(report, options_class))
        return super().parse_known_args(args, namespace)


def check_installed() -> None:
    """
    Check that the libraries of reports are installed.

    # Raises

    `ConfigurationError` naming those that are missing.
    """
    missing = [name for name in ("jinja2", "matplotlib", "pandas") if find_spec(name) is None]
    if missing:
        raise ConfigurationError(
            f"elmo-report needs {' and '.join(missing)}, which cannot be imported. Install them with "
            '`pip install "elmo_plugin[report]"`.'
        )


def _command(report: Callable, options_class: type) -> Callable[[argparse.Namespace], None]:
    @exits_on_user_errors
    def run(args: argparse.Namespace) -> None:
        """Make the report, print the files that it wrote, and exit with an error if runs failed."""
        check_installed()
        result = report(options_from(options_class, args))
        if result is None:
            return
        for path in result.files:
            print(path)
        if result.failures:
            sys.exit(f"{len(result.failures)} runs failed:\n" + "\n".join(result.failures))

    return run
