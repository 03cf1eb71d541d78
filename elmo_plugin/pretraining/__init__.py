"""Pretraining: corpus, streams, softmaxes and the model that trains a biLM."""

# AllenNLP is checked and patched before anything imports it.
# ruff: noqa: E402
from elmo_plugin.compat.patches import prepare_allennlp

prepare_allennlp()

from elmo_plugin.pretraining.corpus import BiLMReader, LMWordVocabulary
from elmo_plugin.pretraining.model import BiLMTrainingModel
from elmo_plugin.pretraining.predictor import BiLMPredictor
from elmo_plugin.pretraining.progress import ProgressCallback, ValidateFirstCallback
from elmo_plugin.pretraining.recovery import AtomicCheckpointer, BiLMStateCallback
from elmo_plugin.pretraining.softmax import FullSoftmax, LMSoftmax, SampledSoftmax
from elmo_plugin.pretraining.stream_data_loader import StreamDataLoader

__all__ = [
    "AtomicCheckpointer",
    "BiLMPredictor",
    "BiLMReader",
    "BiLMStateCallback",
    "BiLMTrainingModel",
    "FullSoftmax",
    "LMSoftmax",
    "LMWordVocabulary",
    "ProgressCallback",
    "SampledSoftmax",
    "StreamDataLoader",
    "ValidateFirstCallback",
]
