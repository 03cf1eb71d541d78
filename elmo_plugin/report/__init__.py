"""Tables and pictures of what the paper measured: a function for each question."""

from elmo_plugin.report.grid import GridOptions
from elmo_plugin.report.layers import compare_layers
from elmo_plugin.report.page import write_page
from elmo_plugin.report.perplexity import PerplexityOptions, compare_perplexities
from elmo_plugin.report.placement import compare_placements
from elmo_plugin.report.pos import PosOptions, compare_tags
from elmo_plugin.report.report_table import ReportTable, read_table, write_table
from elmo_plugin.report.sample_efficiency import compare_shares
from elmo_plugin.report.share_reader import ShareReader
from elmo_plugin.report.weights import compare_weights
from elmo_plugin.report.wsd import SenseOptions, compare_senses

__all__ = [
    "GridOptions",
    "PerplexityOptions",
    "PosOptions",
    "ReportTable",
    "SenseOptions",
    "ShareReader",
    "compare_layers",
    "compare_perplexities",
    "compare_placements",
    "compare_senses",
    "compare_shares",
    "compare_tags",
    "compare_weights",
    "read_table",
    "write_page",
    "write_table",
]
