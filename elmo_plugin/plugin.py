"""
The plugin for AllenNLP. Importing this module patches AllenNLP for current Python and torch, and registers
everything that configs can name.
"""

# The environment is checked before anything imports AllenNLP, whose own errors would not say what to do.
# ruff: noqa: E402
from elmo_plugin.compat.patches import prepare_allennlp
from elmo_plugin.compat.training_process import end_with_parent

prepare_allennlp()
end_with_parent()

import torch

from elmo_plugin import pretraining, report, tasks
from elmo_plugin.bilm.threads import most_threads
from elmo_plugin.commands import allennlp_elmo
from elmo_plugin.modules.elmo_token_embedder import ElmoTokenEmbedder
from elmo_plugin.modules.text_encoder import TextEncoder


def limit_threads() -> None:
    """
    Give torch no more threads than a quota of CPU time has CPUs, unless the user has chosen another number
    (`most_threads`). At import: AllenNLP offers no later moment at which no thread has been started yet.
    """
    threads = most_threads()
    if threads < torch.get_num_threads():
        torch.set_num_threads(threads)


limit_threads()

__all__ = ["ElmoTokenEmbedder", "TextEncoder", "allennlp_elmo", "pretraining", "report", "tasks"]
