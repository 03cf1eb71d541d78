"""Semantic role labeling: reader, model and predictor, all registered as `elmo_srl`."""

from elmo_plugin.tasks.srl.model import SrlTagger
from elmo_plugin.tasks.srl.reader import SrlPredictor, SrlReader

__all__ = ["SrlPredictor", "SrlReader", "SrlTagger"]
