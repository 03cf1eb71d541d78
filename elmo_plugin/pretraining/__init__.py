"""Pretraining: corpus, streams, softmaxes and the model that trains a biLM."""

# AllenNLP is checked and patched before anything imports it.
# ruff: noqa: E402
from elmo_plugin.compat.patches import prepare_allennlp

prepare_allennlp()

from elmo_plugin.bilm.lm_vocabulary import LMVocabulary
from elmo_plugin.pretraining.callbacks import BiLMStateCallback, ValidateFirstCallback
from elmo_plugin.pretraining.checkpointer import AtomicCheckpointer
from elmo_plugin.pretraining.model import BiLMTrainingModel
from elmo_plugin.pretraining.perplexity import BiLMPerplexity
from elmo_plugin.pretraining.predictor import BiLMPredictor
from elmo_plugin.pretraining.reader import BiLMReader
from elmo_plugin.pretraining.sampled_softmax import SampledSoftmax
from elmo_plugin.pretraining.softmax import FullSoftmax, LMSoftmax
from elmo_plugin.pretraining.stream_data_loader import StreamDataLoader
from elmo_plugin.pretraining.word_vocabulary import LMWordVocabulary

__all__ = [
    "AtomicCheckpointer",
    "BiLMPerplexity",
    "BiLMPredictor",
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
