"""The plugin for AllenNLP: importing this module registers everything that configs can name."""

# The environment is checked before anything imports AllenNLP, whose own errors would not say what to do.
# ruff: noqa: E402
from elmo_plugin.compat import prepare_allennlp

prepare_allennlp()

from elmo_plugin import commands, modules, pretraining, report, tasks

__all__ = ["commands", "modules", "pretraining", "report", "tasks"]
