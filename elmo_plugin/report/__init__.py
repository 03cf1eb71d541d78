"""Tables and figures of what the paper measured. Each report is a module, imported when it is used."""

from elmo_plugin.report.share_reader import ShareReader

__all__ = ["ShareReader"]
