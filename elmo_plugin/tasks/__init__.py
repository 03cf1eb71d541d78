"""The benchmark tasks, and the code that they share: tokenizer, tag schemes, CoNLL files, JSON input."""

# AllenNLP is checked and patched before anything imports it.
# ruff: noqa: E402
from elmo_plugin.compat.patches import prepare_allennlp

prepare_allennlp()

from elmo_plugin.tasks import coref, ner, snli, squad, srl, sst
from elmo_plugin.tasks.reading import EvenBatchSampler, RuleBasedTokenizer

__all__ = ["EvenBatchSampler", "RuleBasedTokenizer", "coref", "ner", "snli", "squad", "srl", "sst"]
