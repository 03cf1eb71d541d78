"""The benchmark tasks, and what they share: tokenizer, tag schemes, CoNLL files, JSON input."""

from elmo_plugin.tasks import ner, snli, squad, srl
from elmo_plugin.tasks.rule_based_tokenizer import RuleBasedTokenizer

__all__ = ["RuleBasedTokenizer", "ner", "snli", "squad", "srl"]
