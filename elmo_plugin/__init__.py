"""ELMo for AllenNLP: importing this package registers everything that configs can name."""

# The environment is checked before anything imports AllenNLP, whose own errors would not say what to do.
# ruff: noqa: E402
from elmo_plugin.compat import check_environment, patch_allennlp

check_environment()
patch_allennlp()

# Before the imports, as reports name it.
__version__ = "0.1.0"

from elmo_plugin import commands, pretraining, tasks
from elmo_plugin.bilm import BiLM, batch_to_ids
from elmo_plugin.embedding import ElmoEmbedder
from elmo_plugin.modules import Elmo, ElmoTokenEmbedder, TextEncoder

__all__ = [
    "BiLM",
    "Elmo",
    "ElmoEmbedder",
    "ElmoTokenEmbedder",
    "TextEncoder",
    "batch_to_ids",
    "commands",
    "pretraining",
    "tasks",
]
