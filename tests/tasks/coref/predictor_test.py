import json

import pytest
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from allennlp.data.tokenizers import WhitespaceTokenizer
from allennlp.models import load_archive
from allennlp.predictors import Predictor

from elmo_plugin.tasks.coref import CoreferencePredictor
from elmo_plugin.tasks.coref.predictor import SentenceSplitter
from tests.tasks.task_testing import FIXTURES, overfitted_archive

TINY = FIXTURES / "coref" / "tiny"

# Two sentences of the training data, as they might be written.
DOCUMENT = "The  King of Spain's wife left him.\n\nShe loved Spain."
SENTENCES = [
    ["The", "King", "of", "Spain", "'s", "wife", "left", "him", "."],
    ["She", "loved", "Spain", "."],
]
CLUSTERS = [[[0, 4], [7, 8]], [[0, 6], [9, 10]], [[3, 4], [11, 12]]]
MARKED = "[2 [1 The King of [3 Spain]] 's wife] left [1 him] . [2 She] loved [3 Spain] ."


@pytest.fixture(scope="module")
def archive_file(tmp_path_factory):
    """A model that knows the tiny documents by heart."""
    folder = tmp_path_factory.mktemp("coref")
    whole_documents = json.dumps(
        {
            "model.max_training_sentences": None,
            "model.text_encoder.dropout": 0.0,
            "model.lexical_dropout": 0.0,
            "model.dropout": 0.0,
        }
    )
    experiment = Params.from_file(TINY / "experiment.jsonnet", params_overrides=whole_documents)
    experiment.to_file(folder / "experiment.json")
    return overfitted_archive(folder / "experiment.json", folder, num_steps=100)


@pytest.fixture(scope="module")
def archive(archive_file):
    return load_archive(archive_file)


@pytest.fixture(scope="module")
def predictor(archive):
    return Predictor.from_archive(archive)


def test_a_document_is_split_and_its_mentions_have_characters(predictor):
    output = predictor.predict_document(DOCUMENT)
    assert output["words"] == [word for sentence in SENTENCES for word in sentence]
    assert (output["clusters"], output["marked"]) == (CLUSTERS, MARKED)
    assert output["document"] == DOCUMENT
    assert output["mentions"][:2] == [
        {
            "cluster": 2,
            "start": 0,
            "end": 6,
            "text": "The  King of Spain's wife",
            "start_char": 0,
            "end_char": 25,
        },
        {
            "cluster": 1,
            "start": 0,
            "end": 4,
            "text": "The  King of Spain",
            "start_char": 0,
            "end_char": 18,
        },
    ]
    assert [mention["text"] for mention in output["mentions"][2:]] == [
        "Spain",
        "him",
        "She",
        "Spain",
    ]
    for mention in output["mentions"]:
        assert DOCUMENT[mention["start_char"] : mention["end_char"]] == mention["text"]


def test_sentences_are_taken_as_they_are(predictor):
    output = predictor.predict_sentences(SENTENCES)
    assert (output["clusters"], output["marked"]) == (CLUSTERS, MARKED)
    assert output["mentions"][-1] == {"cluster": 3, "start": 11, "end": 12, "text": "Spain"}
    assert set(output) == {"words", "clusters", "mentions", "marked"}


def test_a_document_without_coreference_has_no_clusters(predictor):
    output = predictor.predict_sentences([["rain"]])
    assert output == {"words": ["rain"], "clusters": [], "mentions": [], "marked": "rain"}


def test_the_genre_reaches_the_model(predictor):
    [known] = predictor.instances_from_json({"sentences": SENTENCES, "genre": "bc"})
    [unknown] = predictor.instances_from_json({"sentences": SENTENCES})
    assert (known["genre"].genre, unknown["genre"].genre) == ("bc", None)


def test_another_tokenizer_can_be_given(archive):
    predictor = CoreferencePredictor(
        archive.model, archive.validation_dataset_reader, tokenizer=WhitespaceTokenizer()
    )
    output = predictor.predict_document("Rain. Rain.")
    assert output["words"] == ["Rain.", "Rain."]


def test_sentences_end_at_marks_and_at_blank_lines():
    text = "CHAPTER I\n\n  Mr. Smith paid $3.50 (why?). Rain!\nIt\n \nfell  \n\n\n"
    found = [sentence.split() for _, sentence in SentenceSplitter().split(text)]
    assert found == [
        ["CHAPTER", "I"],
        ["Mr.", "Smith", "paid", "$3.50", "(why?)."],
        ["Rain!"],
        ["It"],
        ["fell"],
    ]
    for first_character, sentence in SentenceSplitter().split(text):
        assert text[first_character:].startswith(sentence)


@pytest.mark.parametrize(
    "inputs, message",
    [
        (
            {},
            r"Found the keys \(none\) in the input, expected exactly one of 'document', 'sentences'",
        ),
        ({"document": "Rain", "sentences": [["Rain"]]}, "Found the keys 'document', 'sentences'"),
        ({"document": ["Rain"]}, r"'document' is \[\"Rain\"\], expected a text"),
        ({"document": " \n"}, "'document' is .*, expected a text that is not empty"),
        ({"sentences": "Rain"}, 'Found {"sentences": "Rain"}, expected a list of sentences'),
        ({"sentences": []}, r'Found {"sentences": \[\]}, expected a list of sentences'),
        ({"sentences": [["Rain"], []]}, r"'sentences\[1\]' is \[\], expected a list of words"),
        ({"sentences": ["Rain"]}, r"'sentences\[0\]' is \"Rain\", expected a list of words"),
        ({"sentences": [["Rain", 3]]}, r"'sentences\[0\]'\[1\] is 3, expected a word"),
        ({"sentences": [["Rain"]], "genre": 3}, "'genre' is 3, expected a text"),
    ],
)
def test_wrong_input_is_refused_with_an_example(predictor, inputs, message):
    with pytest.raises(ConfigurationError, match=message) as error:
        predictor.predict_json(inputs)
    assert predictor.example in str(error.value)
