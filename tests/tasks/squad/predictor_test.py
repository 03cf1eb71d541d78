import pytest
from allennlp.data.tokenizers import LettersDigitsTokenizer, WhitespaceTokenizer

from elmo_plugin.errors import ConfigurationError
from elmo_plugin.tasks.squad import SquadPredictor

PASSAGE = "It rained in Paris on Monday. In São Paulo, the sun shone for 6½ hours."


def test_an_answer_is_cut_from_the_passage(predictor):
    passage = PASSAGE.replace(" Paulo", "  Paulo")
    output = predictor.predict_json({"passage": passage, "question": "Where did the sun shine?"})
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


def test_the_readers_tokenizer_is_used(archive, monkeypatch):
    model, reader = archive.model, archive.validation_dataset_reader
    inputs = {"passage": PASSAGE, "question": "Where?"}
    assert "6½" in SquadPredictor(model, reader).predict_json(inputs)["passage_words"]
    monkeypatch.setattr(reader, "tokenizer", LettersDigitsTokenizer())
    assert "½" in SquadPredictor(model, reader).predict_json(inputs)["passage_words"]


def test_a_tokenizer_without_offsets_is_refused(archive):
    predictor = SquadPredictor(
        archive.model, archive.validation_dataset_reader, tokenizer=WhitespaceTokenizer()
    )
    with pytest.raises(ConfigurationError, match="expected a character offset for each token"):
        predictor.predict_json({"passage": PASSAGE, "question": "Where?"})
