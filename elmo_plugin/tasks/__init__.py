"""The benchmark tasks, and what they share: tokenizer, tag schemes, CoNLL files, JSON input."""

from elmo_plugin.tasks import coref, ner, snli, squad, srl, sst
from elmo_plugin.tasks.reading import RuleBasedTokenizer

__all__ = ["RuleBasedTokenizer", "coref", "ner", "snli", "squad", "srl", "sst"]
