import pytest
import spacy
from allennlp.data.tokenizers import SpacyTokenizer, WhitespaceTokenizer

from elmo_plugin.errors import ConfigurationError
from elmo_plugin.tasks import RuleBasedTokenizer
from elmo_plugin.tasks.predicting import bracketed, build_sentence_tokenizer, described_span


def test_a_spacy_model_on_this_machine_is_used(tmp_path):
    spacy.blank("de").to_disk(tmp_path / "german")
    tokenizer = build_sentence_tokenizer(spacy_model=str(tmp_path / "german"))
    assert isinstance(tokenizer, SpacyTokenizer)
    assert [token.text for token in tokenizer.tokenize("Er kam ca. um zwei.")][2] == "ca."


def test_spans_are_in_brackets_and_nest():
    spans = [(2, 3, "D"), (0, 3, "A"), (1, 2, "C"), (0, 2, "B")]
    assert bracketed(["a", "b", "c", "d"], spans) == "[A [B a [C b]] [D c]] d"


def test_the_text_of_a_span_is_as_written_where_tokens_know_their_characters():
    metadata = {"words": ["New", "York", "!"], "sentence": "In New  York!"}
    assert described_span(metadata, 0, 2) == {"start": 0, "end": 2, "text": "New York"}
    metadata["character_offsets"] = [(3, 6), (8, 12), (12, 13)]
    expected = {"start": 0, "end": 2, "text": "New  York", "start_char": 3, "end_char": 12}
    assert described_span(metadata, 0, 2) == expected
    metadata["document"] = metadata.pop("sentence")
    assert described_span(metadata, 0, 2) == expected


def test_the_tokenizer_is_the_one_that_is_given_or_splits_by_rules():
    assert isinstance(build_sentence_tokenizer(), RuleBasedTokenizer)
    tokenizer = WhitespaceTokenizer()
    assert build_sentence_tokenizer(tokenizer) is tokenizer
    configuration = {"type": "whitespace"}
    assert isinstance(build_sentence_tokenizer(configuration), WhitespaceTokenizer)
    assert configuration == {"type": "whitespace"}  # not emptied


@pytest.mark.parametrize(
    "tokenizer, spacy_model, message",
    [
        (None, "xx_none_sm", "Run `python -m spacy download xx_none_sm`"),
        ({"type": "whitespace"}, "en_core_web_sm", "are both given, expected at most one"),
    ],
)
def test_other_tokenizers_are_refused(tokenizer, spacy_model, message):
    with pytest.raises(ConfigurationError, match=message):
        build_sentence_tokenizer(tokenizer, spacy_model)
