"""`allennlp elmo-report`: the paper's tables and figures, for a biLM and tasks of one's own."""

import argparse
from typing import Tuple

from allennlp.commands.subcommand import Subcommand

from elmo_plugin.report.layers import Layers
from elmo_plugin.report.page import Page
from elmo_plugin.report.perplexity import Perplexity
from elmo_plugin.report.placement import Placement
from elmo_plugin.report.pos import POS
from elmo_plugin.report.sample_efficiency import SampleEfficiency
from elmo_plugin.report.subreport import Subreport
from elmo_plugin.report.weights import Weights
from elmo_plugin.report.wsd import WSD

# In the order of the help.
SUBREPORTS: Tuple[Subreport, ...] = (
    Weights(),
    Layers(),
    Placement(),
    SampleEfficiency(),
    WSD(),
    POS(),
    Perplexity(),
    Page(),
)

_DESCRIPTION = """
Measure and draw what the paper measured, for a biLM, tasks and data of yours. Each report writes tables
(Markdown, CSV, JSON) and pictures (PNG, SVG; they need matplotlib) into a results folder.
"""

_EPILOG = """
`allennlp elmo-report REPORT --help` explains a report, with examples.
"""


@Subcommand.register("elmo-report")
class ElmoReport(Subcommand):
    """Tables and pictures: `allennlp elmo-report REPORT ... -s DIR`."""

    # Reports that build what a config names have --include-package themselves: it follows the report's name.
    requires_plugins = False

    def add_subparser(self, parser: argparse._SubParsersAction) -> argparse.ArgumentParser:
        subparser: argparse.ArgumentParser = parser.add_parser(
            self.name,
            description=_DESCRIPTION,
            epilog=_EPILOG,
            help="Measure and draw what the paper measured.",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        reports = subparser.add_subparsers(title="reports", metavar="REPORT", required=True)
        for report in SUBREPORTS:
            report_parser = reports.add_parser(
                report.name,
                description=report.description,
                help=report.help,
                formatter_class=argparse.RawDescriptionHelpFormatter,
            )
            report.add_arguments(report_parser)
            report_parser.set_defaults(func=report.run)
        return subparser
