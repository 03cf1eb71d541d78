"""The bidirectional language model: sizes, character encoder, LSTM layers, weight files."""

from elmo_plugin.bilm.bilm import BiLM
from elmo_plugin.bilm.characters import batch_to_ids
from elmo_plugin.bilm.frozen import FrozenBiLM, InferenceSettings
from elmo_plugin.bilm.options import BiLMOptions

__all__ = ["BiLM", "BiLMOptions", "FrozenBiLM", "InferenceSettings", "batch_to_ids"]
