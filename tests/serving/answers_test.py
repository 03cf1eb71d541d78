"""Nearest occurrences of a word, as requests find them."""

from typing import Any, Iterator

import numpy
import pytest
from fastapi.testclient import TestClient

from elmo_plugin import ElmoEmbedder
from elmo_plugin.serving.answers import WordsInContext
from elmo_plugin.serving.app import make_app
from tests.serving.conftest import BATCH_ACCURACY, LIMITS


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
