"""Natural-language inference: reader, model and predictor, all registered as `elmo_snli`."""

from elmo_plugin.tasks.snli.model import SnliClassifier
from elmo_plugin.tasks.snli.predictor import SnliPredictor
from elmo_plugin.tasks.snli.reader import SnliReader

__all__ = ["SnliClassifier", "SnliPredictor", "SnliReader"]
