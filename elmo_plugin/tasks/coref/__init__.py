"""Coreference: reader, model and predictor, all registered as `elmo_coref`."""

from elmo_plugin.tasks.coref.model import CoreferenceResolver
from elmo_plugin.tasks.coref.reader import CoreferencePredictor, CoreferenceReader

__all__ = ["CoreferencePredictor", "CoreferenceReader", "CoreferenceResolver"]
