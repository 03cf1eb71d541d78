"""Subcommands of `allennlp`."""

from elmo_plugin.commands.elmo import ElmoCommand, embed_text
from elmo_plugin.commands.elmo_export import ElmoExport, export_bilm
from elmo_plugin.commands.elmo_neighbors import ElmoNeighbors, compare_occurrences
from elmo_plugin.commands.elmo_report import ElmoReport
from elmo_plugin.commands.elmo_vocab import ElmoVocab, make_vocabulary

__all__ = [
    "ElmoCommand",
    "ElmoExport",
    "ElmoNeighbors",
    "ElmoReport",
    "ElmoVocab",
    "compare_occurrences",
    "embed_text",
    "export_bilm",
    "make_vocabulary",
]
