"""Semantic role labelling: reader, model and predictor, all registered as `elmo_srl`, and the metric."""

from elmo_plugin.tasks.srl.model import SrlSpanF1, SrlTagger
from elmo_plugin.tasks.srl.reader import SrlPredictor, SrlReader

__all__ = ["SrlPredictor", "SrlReader", "SrlSpanF1", "SrlTagger"]
