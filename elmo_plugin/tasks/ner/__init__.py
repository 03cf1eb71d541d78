"""Named entity recognition: reader, model and predictor, all registered as `elmo_ner`."""

from elmo_plugin.tasks.ner.model import NerTagger
from elmo_plugin.tasks.ner.predictor import NerPredictor
from elmo_plugin.tasks.ner.reader import NerReader

__all__ = ["NerPredictor", "NerReader", "NerTagger"]
