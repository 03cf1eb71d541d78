"""Tables and figures of the paper's measurements. Each report is a module, imported on use."""

from elmo_plugin.report.share_reader import ShareReader

__all__ = ["ShareReader"]
