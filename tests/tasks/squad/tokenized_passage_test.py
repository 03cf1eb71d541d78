import pytest
from allennlp.common.checks import ConfigurationError
from allennlp.data.tokenizers import WhitespaceTokenizer

from elmo_plugin.tasks.rule_based_tokenizer import RuleBasedTokenizer
from elmo_plugin.tasks.squad.tokenized_passage import TokenizedPassage

TEXT = " It rained  in Paris. "
#       0123456789012345678901


def build_passage(max_tokens=None):
    return TokenizedPassage.from_text(TEXT, RuleBasedTokenizer(), max_tokens)


def test_each_token_has_its_characters():
    passage = build_passage()
    words = [token.text for token in passage.field]
    assert words == ["It", "rained", "in", "Paris", "."]
    assert [TEXT[start:end] for start, end in passage.offsets] == words
    assert passage.characters_of(1, 3) == (4, 20)


@pytest.mark.parametrize(
    "start, end, tokens",
    [
        (15, 20, (3, 3)),
        (15, 21, (3, 4)),
        (12, 20, (2, 3)),
        (4, 20, (1, 3)),
        # White space around the tokens.
        (0, 4, (0, 0)),
        (10, 22, (2, 4)),
        # Inside of tokens.
        (16, 18, (3, 3)),
        (6, 13, (1, 2)),
    ],
)
def test_the_fewest_covering_tokens_are_found(start, end, tokens):
    assert build_passage().covering_tokens(start, end) == tokens


def test_tokens_beyond_the_maximum_are_dropped():
    passage = build_passage(max_tokens=4)
    assert (len(passage.field), len(passage.offsets)) == (4, 4)
    assert passage.covering_tokens(12, 20) == (2, 3)
    assert passage.covering_tokens(15, 21) is None
    assert passage.covering_tokens(20, 21) is None


def test_a_tokenizer_without_offsets_is_refused():
    with pytest.raises(
        ConfigurationError, match=r"WhitespaceTokenizer does not say where .* 'It' stands, expected"
    ):
        TokenizedPassage.from_text(TEXT, WhitespaceTokenizer())


def test_a_passage_without_tokens_is_refused():
    with pytest.raises(ConfigurationError, match="passage without tokens"):
        TokenizedPassage.from_text(" \n", RuleBasedTokenizer())
