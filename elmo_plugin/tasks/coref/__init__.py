"""Coreference: reader, model and predictor, all registered as `elmo_coref`."""

from elmo_plugin.tasks.coref.antecedent_scorer import AntecedentScorer
from elmo_plugin.tasks.coref.metrics import CoreferenceScores
from elmo_plugin.tasks.coref.model import CoreferenceResolver
from elmo_plugin.tasks.coref.predictor import CoreferencePredictor
from elmo_plugin.tasks.coref.reader import CoreferenceReader

__all__ = [
    "AntecedentScorer",
    "CoreferencePredictor",
    "CoreferenceReader",
    "CoreferenceResolver",
    "CoreferenceScores",
]
