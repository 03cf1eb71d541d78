"""Sentiment of sentences: reader, model and predictor, all registered as `elmo_sst`."""

from elmo_plugin.tasks.sst.model import BiattentiveClassifier
from elmo_plugin.tasks.sst.predictor import SstPredictor
from elmo_plugin.tasks.sst.reader import SstReader

__all__ = ["BiattentiveClassifier", "SstPredictor", "SstReader"]
