from pathlib import Path

import pytest
from allennlp.common.checks import ConfigurationError
from allennlp.data.tokenizers import LettersDigitsTokenizer, WhitespaceTokenizer
from allennlp.models import load_archive
from allennlp.predictors import Predictor

from elmo_plugin.tasks.squad import SquadPredictor
from tests.tasks.task_testing import overfitted_archive

TINY = Path(__file__).parents[3] / "fixtures" / "squad" / "tiny"
PASSAGE = "It rained in Paris on Monday. In São Paulo, the sun shone for 6½ hours."


@pytest.fixture(scope="module")
def archive_file(tmp_path_factory):
    """A model that knows the tiny questions by heart."""
    folder = tmp_path_factory.mktemp("squad")
    return overfitted_archive(TINY / "experiment.jsonnet", folder)


@pytest.fixture(scope="module")
def archive(archive_file):
    return load_archive(archive_file)


@pytest.fixture(scope="module")
def predictor(archive):
    return Predictor.from_archive(archive)


def test_an_answer_is_cut_from_the_passage(predictor):
    passage = PASSAGE.replace(" Paulo", "  Paulo")
    output = predictor.predict_answer("Where did the sun shine?", passage)
    words = output.pop("passage_words")
    probability = output.pop("probability")
    assert output == {
        "question": "Where did the sun shine?",
        "best_span_text": "São  Paulo",
        "start_char": 33,
        "end_char": 43,
        "start": 8,
        "end": 10,
    }
    assert words[8:10] == ["São", "Paulo"]
    assert 0.5 < probability <= 1


def test_the_readers_tokenizer_is_used(archive):
    model, reader = archive.model, archive.validation_dataset_reader
    predictor = SquadPredictor(model, reader)
    assert "6½" in predictor.predict_answer("Where?", PASSAGE)["passage_words"]
    reader_tokenizer = reader.tokenizer
    reader.tokenizer = LettersDigitsTokenizer()
    try:
        predictor = SquadPredictor(model, reader)
    finally:
        reader.tokenizer = reader_tokenizer
    assert "½" in predictor.predict_answer("Where?", PASSAGE)["passage_words"]


def test_another_tokenizer_can_be_given(archive):
    extra = {"tokenizer": {"type": "letters_digits"}}
    predictor = Predictor.from_archive(archive, extra_args=extra)
    assert "½" in predictor.predict_answer("Where?", PASSAGE)["passage_words"]


def test_a_tokenizer_without_offsets_is_refused(archive):
    predictor = SquadPredictor(
        archive.model, archive.validation_dataset_reader, tokenizer=WhitespaceTokenizer()
    )
    with pytest.raises(ConfigurationError, match="expected a character offset for each token"):
        predictor.predict_answer("Where?", PASSAGE)


@pytest.mark.parametrize(
    "inputs, message",
    [
        ({}, r"Found the keys \(none\) in the input, expected exactly one of 'passage'"),
        (
            {"passage": PASSAGE},
            "Found the keys 'passage' in the input, expected exactly one of 'question'",
        ),
        (
            {"passage": PASSAGE, "question": " "},
            "'question' is \" \", expected a text that is not empty",
        ),
        ({"passage": ["It"], "question": "Where?"}, r"'passage' is \[\"It\"\], expected a text"),
    ],
)
def test_wrong_input_is_refused_with_an_example(predictor, inputs, message):
    with pytest.raises(ConfigurationError, match=message) as error:
        predictor.predict_json(inputs)
    assert predictor.example in str(error.value)
