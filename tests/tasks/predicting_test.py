import pytest
from allennlp.data.tokenizers import WhitespaceTokenizer

from elmo_plugin.errors import ConfigurationError
from elmo_plugin.tasks.reading import RuleBasedTokenizer
from elmo_plugin.tasks.sst import SstPredictor, SstReader
from tests.tasks.task_testing import build_tiny, read_tiny


@pytest.fixture(scope="module")
def model():
    return build_tiny("sst", read_tiny("sst")[1])


def test_the_tokenizer_is_the_one_that_is_given_or_that_of_the_reader(model):
    predictor = SstPredictor(model, SstReader())
    assert isinstance(predictor.tokenizer, RuleBasedTokenizer)
    output = predictor.predict("Rain.  Rain.")
    assert (output["tokens"], output["sentence"]) == (["Rain", ".", "Rain", "."], "Rain.  Rain.")
    tokenizer = WhitespaceTokenizer()
    assert SstPredictor(model, SstReader(), tokenizer=tokenizer).tokenizer is tokenizer
    assert SstPredictor(model, SstReader(tokenizer=tokenizer)).tokenizer is tokenizer
    configuration = {"type": "whitespace"}
    predictor = SstPredictor(model, SstReader(), tokenizer=configuration)
    assert predictor.predict("Rain. Rain.")["tokens"] == ["Rain.", "Rain."]
    assert configuration == {"type": "whitespace"}  # not emptied
    predictor = SstPredictor(model, SstReader(), tokenizer="whitespace")
    assert predictor.predict("Rain. Rain.")["tokens"] == ["Rain.", "Rain."]
    with pytest.raises(ConfigurationError, match="tokenizer: found 5, expected the type or"):
        SstPredictor(model, SstReader(), tokenizer=5)


def test_tokens_are_taken_as_they_are(model):
    predictor = SstPredictor(model, SstReader())
    tokens = ["Dull", "writer/director", "-LRB-"]
    output = predictor.predict_tokens(tokens)
    assert output["tokens"] == tokens and "sentence" not in output
    assert predictor.predict_json({"tokens": tokens, "id": 3}) == output
