"""Semantic role labelling: reader, model and predictor, all registered as `elmo_srl`, and the metric."""

from elmo_plugin.tasks.srl.model import SrlTagger
from elmo_plugin.tasks.srl.predictor import SrlPredictor
from elmo_plugin.tasks.srl.reader import SrlReader
from elmo_plugin.tasks.srl.span_f1 import SrlSpanF1

__all__ = ["SrlPredictor", "SrlReader", "SrlSpanF1", "SrlTagger"]
