import pytest
from allennlp.data.tokenizers import WhitespaceTokenizer

from elmo_plugin.tasks.predicting import bracketed, described_span
from elmo_plugin.tasks.reading import RuleBasedTokenizer
from elmo_plugin.tasks.sst import SstPredictor, SstReader
from tests.tasks.task_testing import build_tiny, read_tiny


@pytest.fixture(scope="module")
def model():
    return build_tiny("sst", read_tiny("sst")[1])


def test_the_tokenizer_is_the_one_that_is_given_or_that_of_the_reader(model):
    predictor = SstPredictor(model, SstReader())
    assert isinstance(predictor.tokenizer, RuleBasedTokenizer)
    output = predictor.predict_sentence("Rain.  Rain.")
    assert (output["tokens"], output["sentence"]) == (["Rain", ".", "Rain", "."], "Rain.  Rain.")
    tokenizer = WhitespaceTokenizer()
    assert SstPredictor(model, SstReader(), tokenizer=tokenizer).tokenizer is tokenizer
    assert SstPredictor(model, SstReader(tokenizer=tokenizer)).tokenizer is tokenizer
    configuration = {"type": "whitespace"}
    predictor = SstPredictor(model, SstReader(), tokenizer=configuration)
    assert predictor.predict_sentence("Rain. Rain.")["tokens"] == ["Rain.", "Rain."]
    assert configuration == {"type": "whitespace"}  # not emptied


def test_tokens_are_taken_as_they_are(model):
    predictor = SstPredictor(model, SstReader())
    tokens = ["Dull", "writer/director", "-LRB-"]
    output = predictor.predict_tokens(tokens)
    assert output["tokens"] == tokens and "sentence" not in output
    assert predictor.predict_json({"words": tokens, "id": 3}) == output


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
