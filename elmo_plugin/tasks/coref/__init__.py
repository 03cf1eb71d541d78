"""Coreference: reader, model and predictor, all registered as `elmo_coref`."""

from elmo_plugin.tasks.coref.metrics import CoreferenceScores
from elmo_plugin.tasks.coref.model import CoreferenceResolver
from elmo_plugin.tasks.coref.reader import CoreferencePredictor, CoreferenceReader
from elmo_plugin.tasks.coref.spans import AntecedentScorer

__all__ = [
    "AntecedentScorer",
    "CoreferencePredictor",
    "CoreferenceReader",
    "CoreferenceResolver",
    "CoreferenceScores",
]
