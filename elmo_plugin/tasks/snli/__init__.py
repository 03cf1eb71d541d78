"""Natural-language inference: whether a hypothesis follows from a premise."""

from elmo_plugin.tasks.snli.model import SnliClassifier
from elmo_plugin.tasks.snli.predictor import SnliPredictor
from elmo_plugin.tasks.snli.reader import SnliReader

__all__ = ["SnliClassifier", "SnliPredictor", "SnliReader"]
