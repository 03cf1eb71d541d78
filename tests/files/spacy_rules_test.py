"""The memory of spaCy's rules is bounded, and what they give stays."""

import pytest

from elmo_plugin.files import spacy_rules
from elmo_plugin.files.spacy_rules import SpacyRules


def test_words_are_forgotten_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("spacy")
    rules = SpacyRules("en", "sentencizer")
    at_first = len(rules.pipeline().vocab.strings)
    monkeypatch.setattr(spacy_rules, "MAX_WORDS", at_first + 50)
    sizes = []
    for number in range(100):
        document = rules.pipeline()(f"It isn't word{number}. Or?")
        assert [token.text for token in document] == [
            *["It", "is", "n't", f"word{number}", ".", "Or", "?"]
        ]
        assert len(list(document.sents)) == 2
        sizes.append(len(rules.pipeline().vocab.strings))
    # What one text adds is at most its tokens, with their lower case, prefixes, suffixes and shapes.
    assert max(sizes) <= at_first + 50 + 7 * 5
