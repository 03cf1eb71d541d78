"""Nearest occurrences of a word, as requests find them."""

import json
from typing import Any, Dict, Iterator

import numpy
import pytest
from fastapi.testclient import TestClient

from elmo_plugin import ElmoEmbedder
from elmo_plugin.serving.answers import WordRequest, WordsInContext
from elmo_plugin.serving.app import make_app
from tests.serving.conftest import LIMITS

# Documented, of sentences in any batch: `ElmoEmbedder`. Cosines are nearer.
BATCH_ACCURACY = 1e-5


@pytest.fixture(scope="module")
def client(words: WordsInContext) -> Iterator[TestClient]:
    with TestClient(make_app([], words, LIMITS), "http://127.0.0.1") as client:
        yield client


def test_the_bank_of_a_river_is_nearest_to_others(client: TestClient) -> None:
    given = {"word": "bank", "sentence": "They sat on the bank of the lake."}
    answer = client.post("/api/neighbors", json=given).json()
    assert len(answer["neighbors"]) == 12
    for found in answer["neighbors"]:
        assert found["sentence"][found["start_char"] : found["end_char"]] == "bank"
    similarities = [neighbor["similarity"] for neighbor in answer["neighbors"]]
    assert similarities == sorted(similarities, reverse=True)
    assert answer["neighbors"][0]["sentence"].startswith("They sat on the bank of the river")
    listed = client.get("/api/models").json()["neighbors"]["sentences"]
    assert {neighbor["sentence"] for neighbor in answer["neighbors"]} <= set(listed)


@pytest.mark.parametrize("layer", [0, 1, -1, "average"])
def test_similarities_are_cosines_of_the_layer(layer: Any, client: TestClient) -> None:
    given = {
        "word": "Play",
        "sentence": "They saw a play.",
        "sentences": ["Nothing here.", "Play the guitar, then play it again!"],
        "layer": layer,
    }
    answer = client.post("/api/neighbors", json=given).json()
    words = ["Play", "the", "guitar", ",", "then", "play", "it", "again", "!"]
    query, others = (
        vectors.mean(axis=0) if layer == "average" else vectors[layer]
        for vectors in ElmoEmbedder("elmo_mini").embed_batch(
            [["They", "saw", "a", "play", "."], words]
        )
    )
    found = {neighbor["start_char"]: neighbor["similarity"] for neighbor in answer["neighbors"]}
    assert set(found) == {0, 22}
    for start_char, position in ((0, 0), (22, 5)):
        cosine = query[3] @ others[position]
        cosine /= numpy.linalg.norm(query[3]) * numpy.linalg.norm(others[position])
        assert abs(found[start_char] - cosine) <= BATCH_ACCURACY


def test_an_error_of_one_request_is_no_error_of_the_others(words: WordsInContext) -> None:
    good = WordRequest(word="bank", sentence="The bank lends money.")
    bad = WordRequest(word="no", sentence="bank")
    first, error, last = words.answers([good, bad, good])
    assert first == last and first == words.answers([good])[0]
    assert isinstance(error, ValueError)


@pytest.mark.parametrize(
    "changes, status, message",
    [
        ({"word": "river"}, 422, "'sentence': does not hold the word 'river'"),
        ({"word": "the bank"}, 422, "'word' is \"the bank\", expected one token"),
        ({"word": " "}, 422, "'word' is \" \": String should have at least 1 character"),
        ({"word": "(" * 3000}, 413, "'word' has a word of 3,000 characters"),
        ({"word": "\ud83d"}, 422, "'word' is \"\\ud83d\": Input should be a valid string, unable"),
        ({"sentence": "bank " * 100}, 413, "'sentence' has 100 tokens, expected at most 60"),
        ({"sentence": "bank" + "(" * 3000}, 413, "'sentence' has a word of 3,004 characters"),
        ({"sentence": None}, 422, "'sentence': Field required. Expected a JSON object such as"),
        ({"sentences": []}, 422, "'sentences' is []: List should have at least 1 item"),
        ({"sentences": ["bank", ""]}, 422, "'sentences'[1] is \"\": String should have"),
        ({"sentences": ["no"]}, 422, "'sentences': does not hold the word 'bank'"),
        ({"sentences": ["a", "bank " * 61]}, 413, "'sentences'[1] has 61 tokens"),
        ({"layer": 3}, 422, "'layer': found 3, expected a number from 0"),
        ({"layer": "top"}, 422, "'layer' is \"top\": Input should be 'average'"),
        ({"tpo": 1}, 422, "'tpo' is 1: Extra inputs are not permitted. Expected a JSON object"),
    ],
)
def test_errors(changes: Dict[str, Any], status: int, message: str, client: TestClient) -> None:
    given = {"word": "bank", "sentence": "The bank.", **changes}
    given = {key: value for key, value in given.items() if value is not None}
    response = client.post("/api/neighbors", content=json.dumps(given))
    assert response.status_code == status
    assert message in response.json()["error"]
