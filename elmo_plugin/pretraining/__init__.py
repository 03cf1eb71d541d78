"""Pretraining: corpus, streams, softmaxes and the model that trains a biLM."""

from elmo_plugin.pretraining.adaptive_softmax import AdaptiveSoftmax
from elmo_plugin.pretraining.full_softmax import FullSoftmax
from elmo_plugin.pretraining.lm_vocabulary import LMVocabulary
from elmo_plugin.pretraining.lm_word_vocabulary import LMWordVocabulary
from elmo_plugin.pretraining.model import BiLMTrainingModel
from elmo_plugin.pretraining.reader import BiLMReader
from elmo_plugin.pretraining.sampled_softmax import SampledSoftmax
from elmo_plugin.pretraining.softmax import LMSoftmax
from elmo_plugin.pretraining.stream_data_loader import StreamDataLoader
from elmo_plugin.pretraining.training_state import BiLMStateCallback
from elmo_plugin.pretraining.validate_first import ValidateFirstCallback

__all__ = [
    "AdaptiveSoftmax",
    "BiLMReader",
    "BiLMStateCallback",
    "BiLMTrainingModel",
    "FullSoftmax",
    "LMSoftmax",
    "LMVocabulary",
    "LMWordVocabulary",
    "SampledSoftmax",
    "StreamDataLoader",
    "ValidateFirstCallback",
]
