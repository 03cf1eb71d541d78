"""Question answering: reader, model and predictor, all registered as `elmo_squad`."""

from elmo_plugin.tasks.squad.model import QuestionAnswerer, TruncatedNormalInitializer
from elmo_plugin.tasks.squad.reader import SquadPredictor, SquadReader

__all__ = ["QuestionAnswerer", "SquadPredictor", "SquadReader", "TruncatedNormalInitializer"]
