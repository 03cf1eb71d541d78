import json
from pathlib import Path

import pytest
from allennlp.common.checks import ConfigurationError
from allennlp.data.tokenizers import WhitespaceTokenizer
from allennlp.models import load_archive
from allennlp.predictors import Predictor

from elmo_plugin.tasks.ner import NerPredictor
from tests.tasks.task_testing import overfitted_archive, run_predict

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


def test_predictions_in_a_batch_equal_single_ones(predictor):
    inputs = [
        {"sentence": "Peter flew from Paris to São Paulo."},
        {"tokens": ["Rain"]},
        {"sentence": "The United Nations Security Council met."},
    ]
    assert predictor.predict_batch_json(inputs) == [predictor.predict_json(i) for i in inputs]


def test_the_command_predicts_from_json_lines(predictor, archive_file, tmp_path):
    inputs = [
        {"sentence": "São Paulo hired Mary."},
        {"tokens": ["Rain"]},
        {"words": ["Paris", "."]},
    ]
    input_file, output_file = tmp_path / "input.jsonl", tmp_path / "output.jsonl"
    input_file.write_text("".join(json.dumps(i) + "\n" for i in inputs) + "\n")
    run_predict(archive_file, input_file, "--batch-size", 2, "--output-file", output_file)
    lines = output_file.read_text(encoding="utf-8").splitlines()
    assert [json.loads(line) for line in lines] == [predictor.predict_json(i) for i in inputs]
    assert "São" in lines[0]


@pytest.mark.parametrize("batch_size", [1, 3])
def test_the_command_predicts_from_a_data_file(archive_file, tmp_path, batch_size):
    output_file = tmp_path / "output.jsonl"
    run_predict(
        *(archive_file, TINY / "train.conll", "--use-dataset-reader", "--silent"),
        *("--batch-size", batch_size, "--output-file", output_file),
    )
    tagged = [json.loads(line)["tagged"] for line in output_file.read_text().splitlines()]
    assert tagged == [
        "[PER Mary Smith] visited [LOC New York] .",
        "[PER Kofi Annan] spoke .",
        "The storm passed .",
        "[PER Peter] flew from [LOC Paris] to [LOC São Paulo] .",
        "Her [LOC London] [LOC Paris] train was late .",
        "[ORG Siemens] hired [PER Mary] in [LOC Berlin] .",
        "The [ORG United Nations Security Council] met .",
        "Rain",
    ]


def test_another_tokenizer_can_be_given(archive):
    model, reader = archive.model, archive.validation_dataset_reader
    predictor = NerPredictor(model, reader, tokenizer=WhitespaceTokenizer())
    assert predictor.predict_sentence("Rain. Rain.")["words"] == ["Rain.", "Rain."]
    # This tokenizer gives no offsets.
    [span] = predictor.predict_sentence("Mary  Smith visited Rain")["spans"]
    assert span == {"label": "PER", "start": 0, "end": 2, "text": "Mary Smith"}
    from_command = Predictor.from_archive(archive, extra_args={"tokenizer": {"type": "whitespace"}})
    assert from_command.predict_sentence("Rain. Rain.")["words"] == ["Rain.", "Rain."]


def test_a_missing_spacy_model_is_refused(archive):
    with pytest.raises(ConfigurationError, match="spacy_model is 'xx_none_sm', expected a spaCy"):
        Predictor.from_archive(archive, extra_args={"spacy_model": "xx_none_sm"})


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
