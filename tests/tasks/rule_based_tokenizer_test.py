import pytest
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from allennlp.data.tokenizers import Tokenizer
from hypothesis import given, settings
from hypothesis import strategies as st

from elmo_plugin.tasks import RuleBasedTokenizer

TOKENIZER = RuleBasedTokenizer()


def test_contractions_and_punctuation_are_split_and_abbreviations_are_not():
    tokens = TOKENIZER.tokenize("Mary didn't fly to the U.S., did she?")
    assert [token.text for token in tokens] == (
        ["Mary", "did", "n't", "fly", "to", "the", "U.S.", ",", "did", "she", "?"]
    )


def test_offsets_point_at_the_tokens():
    tokens = TOKENIZER.tokenize("  São  Paulo.")
    assert [(token.idx, token.idx_end) for token in tokens] == [(2, 5), (7, 12), (12, 13)]


@given(st.text())
@settings(deadline=None)
def test_tokens_and_white_space_make_up_the_text(text):
    end = 0
    for token in TOKENIZER.tokenize(text):
        assert text[end : token.idx].strip() == ""
        assert text[token.idx : token.idx_end] == token.text
        assert token.text.strip() != ""
        end = token.idx_end
    assert text[end:].strip() == ""


def test_text_may_be_longer_than_a_spacy_pipeline_allows():
    assert len(TOKENIZER.tokenize("word " * 250_000)) == 250_000


def test_language_decides_the_rules():
    german = Tokenizer.from_params(Params({"type": "elmo_rule_based", "language": "de"}))
    assert [token.text for token in german.tokenize("Er kam ca. um zwei.")] == (
        ["Er", "kam", "ca.", "um", "zwei", "."]
    )


def test_tokenizer_can_be_built_again_from_its_params():
    params = RuleBasedTokenizer(language="de").to_params()
    assert params.as_dict() == {"type": "elmo_rule_based", "language": "de"}
    assert isinstance(Tokenizer.from_params(params), RuleBasedTokenizer)


def test_unknown_language_is_refused():
    with pytest.raises(ConfigurationError, match="language is 'qq', expected the code of a lang"):
        RuleBasedTokenizer(language="qq")
