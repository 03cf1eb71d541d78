from pathlib import Path

import pytest
from allennlp.common.checks import ConfigurationError
from allennlp.data.tokenizers import WhitespaceTokenizer
from allennlp.models import load_archive
from allennlp.predictors import Predictor

from elmo_plugin.tasks.ner import NerPredictor
from tests.tasks.task_testing import overfitted_archive

TINY = Path(__file__).parents[3] / "fixtures" / "ner" / "tiny"


@pytest.fixture(scope="module")
def archive_file(tmp_path_factory):
    """A tagger that knows the tiny sentences by heart."""
    return overfitted_archive(TINY / "experiment.jsonnet", tmp_path_factory.mktemp("ner"))


@pytest.fixture(scope="module")
def archive(archive_file):
    return load_archive(archive_file)


@pytest.fixture(scope="module")
def predictor(archive):
    return Predictor.from_archive(archive)


def test_a_sentence_is_split_and_its_entities_have_characters(predictor):
    assert predictor.predict_sentence("Mary  Smith visited New York.") == {
        "words": ["Mary", "Smith", "visited", "New", "York", "."],
        "tags": ["B-PER", "L-PER", "O", "B-LOC", "L-LOC", "O"],
        "spans": [
            {
                "label": "PER",
                "start": 0,
                "end": 2,
                "text": "Mary  Smith",
                "start_char": 0,
                "end_char": 11,
            },
            {
                "label": "LOC",
                "start": 3,
                "end": 5,
                "text": "New York",
                "start_char": 20,
                "end_char": 28,
            },
        ],
        "tagged": "[PER Mary Smith] visited [LOC New York] .",
        "sentence": "Mary  Smith visited New York.",
    }


def test_tokens_are_taken_as_they_are(predictor):
    words = ["Her", "London", "Paris", "train", "was", "late", "."]
    expected = {
        "words": words,
        "tags": ["O", "U-LOC", "U-LOC", "O", "O", "O", "O"],
        "spans": [
            {"label": "LOC", "start": 1, "end": 2, "text": "London"},
            {"label": "LOC", "start": 2, "end": 3, "text": "Paris"},
        ],
        "tagged": "Her [LOC London] [LOC Paris] train was late .",
    }
    assert predictor.predict_tokens(words) == expected
    assert predictor.predict_json({"words": words, "id": 3}) == expected


def test_a_sentence_without_entities_has_no_spans(predictor):
    output = predictor.predict_sentence("The storm passed.")
    assert (output["spans"], output["tagged"]) == ([], "The storm passed .")


def test_another_tokenizer_can_be_given(archive):
    model, reader = archive.model, archive.validation_dataset_reader
    predictor = NerPredictor(model, reader, tokenizer=WhitespaceTokenizer())
    assert predictor.predict_sentence("Rain. Rain.")["words"] == ["Rain.", "Rain."]
    # This tokenizer gives no offsets.
    [span] = predictor.predict_sentence("Mary  Smith visited Rain")["spans"]
    assert span == {"label": "PER", "start": 0, "end": 2, "text": "Mary Smith"}
    from_command = Predictor.from_archive(archive, extra_args={"tokenizer": {"type": "whitespace"}})
    assert from_command.predict_sentence("Rain. Rain.")["words"] == ["Rain.", "Rain."]


@pytest.mark.parametrize(
    "inputs, message",
    [
        ({}, r"Found the keys \(none\) in the input, expected exactly one of 'sentence', 'tokens'"),
        ({"text": "Rain"}, "Found the keys 'text' in the input"),
        ({"sentence": "Rain", "tokens": ["Rain"]}, "Found the keys 'sentence', 'tokens'"),
        ({"sentence": ["Rain"]}, r"'sentence' is \[\"Rain\"\], expected a text"),
        ({"sentence": " "}, "'sentence' is \" \", expected a text that is not empty"),
        ({"tokens": "Rain"}, "'tokens' is \"Rain\", expected a list of words"),
        ({"tokens": []}, r"'tokens' is \[\], expected a list of words that is not empty"),
        ({"words": ["Rain", 3]}, r"'words'\[1\] is 3, expected a word"),
    ],
)
def test_wrong_input_is_refused_with_an_example(predictor, inputs, message):
    with pytest.raises(ConfigurationError, match=message) as error:
        predictor.predict_json(inputs)
    assert '{"sentence": "John Smith lives in Paris."}' in str(error.value)
