from typing import Any, Dict, List

import pytest
from allennlp.data import Instance

from elmo_plugin.tasks.coref.predictor import CoreferencePredictor, SentenceSplitter

# Two sentences of the training data, as they might be written.
DOCUMENT = "The  King of Spain's wife left him.\n\nShe loved Spain."
SENTENCES = [
    ["The", "King", "of", "Spain", "'s", "wife", "left", "him", "."],
    ["She", "loved", "Spain", "."],
]
CLUSTERS = [[[0, 4], [7, 8]], [[0, 6], [9, 10]], [[3, 4], [11, 12]]]
MARKED = "[2 [1 The King of [3 Spain]] 's wife] left [1 him] . [2 She] loved [3 Spain] ."


@pytest.fixture
def predictor(
    predictor: CoreferencePredictor, monkeypatch: pytest.MonkeyPatch
) -> CoreferencePredictor:
    """A predictor whose model gives `SENTENCES` their gold clusters, whatever it has learned."""
    forward = predictor._model.forward_on_instances

    def forward_with_gold_clusters(instances: List[Instance]) -> List[Dict[str, Any]]:
        outputs = forward(instances)
        for output in outputs:
            if output["words"] == [word for sentence in SENTENCES for word in sentence]:
                output["clusters"] = CLUSTERS
        return outputs

    monkeypatch.setattr(predictor._model, "forward_on_instances", forward_with_gold_clusters)
    return predictor


def test_a_document_is_split_and_its_mentions_have_characters(predictor):
    output = predictor.predict_json({"document": DOCUMENT})
    assert output["words"] == [word for sentence in SENTENCES for word in sentence]
    assert (output["clusters"], output["marked"]) == (CLUSTERS, MARKED)
    assert output["document"] == DOCUMENT
    kings_wife, king = output["mentions"][:2]
    assert kings_wife == {
        "cluster": 2,
        "start": 0,
        "end": 6,
        "text": "The  King of Spain's wife",
        "start_char": 0,
        "end_char": 25,
    }
    assert (king["cluster"], king["text"]) == (1, "The  King of Spain")
    texts = [mention["text"] for mention in output["mentions"][2:]]
    assert texts == ["Spain", "him", "She", "Spain"]
    for mention in output["mentions"]:
        assert DOCUMENT[mention["start_char"] : mention["end_char"]] == mention["text"]


def test_sentences_are_taken_as_they_are(predictor):
    output = predictor.predict_json({"sentences": SENTENCES})
    assert (output["clusters"], output["marked"]) == (CLUSTERS, MARKED)
    assert output["mentions"][-1] == {"cluster": 3, "start": 11, "end": 12, "text": "Spain"}
    assert set(output) == {"words", "clusters", "mentions", "marked"}


def test_a_document_without_coreference_has_no_clusters(predictor):
    output = predictor.predict_json({"sentences": [["rain"]]})
    assert output == {"words": ["rain"], "clusters": [], "mentions": [], "marked": "rain"}


def test_the_genre_reaches_the_model(predictor):
    [known] = predictor.instances_from_json({"sentences": SENTENCES, "genre": "bc"})
    [unknown] = predictor.instances_from_json({"sentences": SENTENCES})
    assert (known["genre"].label, unknown["genre"].label) == ("bc", "@@UNKNOWN@@")


def test_sentences_end_at_marks_and_at_blank_lines():
    text = "CHAPTER I\n\n  Mr. Smith paid $3.50 (why?). Rain!\nIt\n \nfell  \n\n\n"
    found = [sentence.split() for _, sentence in SentenceSplitter().split(text)]
    smith = ["Mr.", "Smith", "paid", "$3.50", "(why?)."]
    assert found == [["CHAPTER", "I"], smith, ["Rain!"], ["It"], ["fell"]]
    for first_character, sentence in SentenceSplitter().split(text):
        assert text[first_character:].startswith(sentence)
