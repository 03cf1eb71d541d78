"""The routes of the server: answers, and the error of each kind of bad request."""

import asyncio
import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Dict, Iterator, List, Optional

import pytest
from fastapi.testclient import TestClient

from elmo_plugin import ElmoEmbedder
from elmo_plugin.embedding import cosine_similarities
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.serving import answers
from elmo_plugin.serving.answers import ServedModel, WordRequest, WordsInContext
from elmo_plugin.serving.app import make_app
from elmo_plugin.serving.options import Limits
from elmo_plugin.serving.requests import RequestError
from tests.closeness import assert_accurate
from tests.serving.conftest import LIMITS, TASKS
from tests.tasks.task_testing import FIXTURES, texts_and_numbers

ADDRESS = "http://127.0.0.1:8000"
SENTENCE = {"sentence": "Peter flew from Paris to São Paulo."}
NER = "/api/models/ner/predict"
WORDS = "/api/neighbors"


def client_of(app: Any) -> TestClient:
    return TestClient(app, ADDRESS, raise_server_exceptions=False)


@pytest.fixture(scope="module")
def client(models: Dict[str, ServedModel], words: WordsInContext) -> Iterator[TestClient]:
    app = make_app(list(models.values()), words, LIMITS, ["elmo.example.org"])
    with client_of(app) as client:
        yield client


def error_of(response: Any, status: int) -> str:
    """The one line of an error."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    assert list(response.json()) == ["error"]
    message = response.json()["error"]
    assert message.isprintable() and message and "Traceback" not in message
    return str(message)


@pytest.mark.parametrize("task", TASKS)
def test_answers_are_those_of_the_predictor(
    task: str, client: TestClient, models: Dict[str, ServedModel]
) -> None:
    lines = (FIXTURES / task / "tiny" / "inputs.jsonl").read_text("utf-8").splitlines()
    listed = {model["name"]: model for model in client.get("/api/models").json()["models"]}
    assert list(listed) == list(TASKS) and listed[task]["task"] == f"elmo_{task}"
    for inputs in [*map(json.loads, lines), listed[task]["example"]]:
        response = client.post(f"/api/models/{task}/predict", json=inputs)
        assert response.status_code == 200
        texts, numbers = texts_and_numbers(response.json())
        answer = models[task]._predictor.predict_json(inputs)
        expected_texts, expected = texts_and_numbers(answer)
        assert texts == expected_texts
        assert_accurate(numbers, expected)


def test_the_bank_of_a_river_is_nearest_to_others(client: TestClient) -> None:
    given = {"word": "bank", "sentence": "They sat on the bank of the lake."}
    neighbors = client.post(WORDS, json=given).json()["neighbors"]
    assert len(neighbors) == 12
    for found in neighbors:
        assert found["sentence"][found["start_char"] : found["end_char"]] == "bank"
    similarities = [neighbor["similarity"] for neighbor in neighbors]
    assert similarities == sorted(similarities, reverse=True)
    assert neighbors[0]["sentence"].startswith("They sat on the bank of the river")
    listed = client.get("/api/models").json()["neighbors"]["sentences"]
    assert {neighbor["sentence"] for neighbor in neighbors} <= set(listed)


@pytest.mark.parametrize("layer", [0, 1, -1, "average"])
def test_similarities_are_cosines_of_the_layer(layer: Any, client: TestClient) -> None:
    given = {
        "word": "Play",
        "sentence": "They saw a play.",
        "sentences": ["Nothing here.", "Play the guitar, then play it again!"],
        "layer": layer,
    }
    answer = client.post(WORDS, json=given).json()
    words = ["Play", "the", "guitar", ",", "then", "play", "it", "again", "!"]
    batch = [["They", "saw", "a", "play", "."], words]
    query, others = (
        vectors.mean(axis=0) if layer == "average" else vectors[layer]
        for vectors in ElmoEmbedder("elmo_mini").embed_batch(batch)
    )
    found = {neighbor["start_char"]: neighbor["similarity"] for neighbor in answer["neighbors"]}
    assert set(found) == {0, 22}
    for start_char, position in ((0, 0), (22, 5)):
        ((cosine,),) = cosine_similarities(query[[3]], others[[position]])
        assert_accurate(found[start_char], cosine)


def test_all_occurrences_are_compared_or_the_request_is_refused(words: WordsInContext) -> None:
    """The search for occurrences would draw a sample of these."""
    request = WordRequest(word="go", sentence="They go.", sentences=["go " * 50] * 101)
    message = "'sentences' has 5,050 occurrences of the word, expected at most 5,000"
    with pytest.raises(RequestError, match=message) as raised:
        words.answer(request)
    assert raised.value.status == 413


COREF, SQUAD = "/api/models/coref/predict", "/api/models/squad/predict"


def asking(**changes: Any) -> Dict[str, Any]:
    return {"word": "bank", "sentence": "The bank.", **changes}


@pytest.mark.parametrize(
    "path, body, status, message",
    [
        (NER, {}, 422, "expected exactly one of 'sentence', 'tokens', as in"),
        (NER, {"sentence": "a \ud83d " * 40}, 422, "is valid Unicode"),
        (NER, {"sentence": "a " * 61}, 413, "'sentence' has 61 tokens, expected at most 60"),
        (NER, {"tokens": ["a"] * 61}, 413, "'tokens' has 61 tokens, expected at most 60"),
        (COREF, {"sentences": [["a"] * 31] * 2}, 413, "'sentences' has 62 tokens"),
        # With an example of what the route expects.
        (NER, b"", 422, 'The body: Field required. Expected a JSON object such as {"sentence": '),
        (SQUAD, b"null", 422, "The body is null: Input should be a valid dictionary. Expected a J"),
        (WORDS, b"[1]", 422, "The body is [1]: Input should be a valid dictionary or object"),
        (WORDS, b"{", 422, "The body is not JSON (Expecting property name"),
        (WORDS, b"", 422, 'Expected a JSON object such as {"word": '),
        (NER, b"[" * 3000, 400, "There was an error parsing the body"),
        (WORDS, b'{"sentence": "na\xefve"}', 400, "There was an error parsing the body"),
        (WORDS, b"a" * 4001, 413, "The body is larger than 4,000 bytes"),
        (WORDS, asking(word="river"), 422, "'sentence': does not hold the word 'river'"),
        (WORDS, asking(word="the bank"), 422, "'word' is \"the bank\", expected one token"),
        (WORDS, asking(word=" "), 422, "'word' is \" \": String should have at least 1 character"),
        (WORDS, asking(word="(" * 3000), 413, "'word' has a word of 3,000 characters"),
        (WORDS, asking(word="\ud83d"), 422, "'word' is \"\\ud83d\": Input should be a valid"),
        (WORDS, asking(sentence="bank " * 100), 413, "'sentence' has 100 tokens, expected at"),
        (WORDS, {"word": "bank"}, 422, "'sentence': Field required. Expected a JSON object"),
        (WORDS, asking(sentences=[]), 422, "'sentences' is []: List should have at least 1 item"),
        (WORDS, asking(sentences=["bank", ""]), 422, "'sentences'[1] is \"\": String should have"),
        (WORDS, asking(sentences=["no"]), 422, "'sentences': does not hold the word 'bank'"),
        (WORDS, asking(sentences=["a", "bank " * 61]), 413, "'sentences'[1] has 61 tokens"),
        (WORDS, asking(layer=3), 422, "'layer': found 3, expected a number from 0"),
        (WORDS, asking(layer="top"), 422, "'layer' is \"top\": Input should be 'average'"),
        (WORDS, asking(tpo=1), 422, "'tpo' is 1: Extra inputs are not permitted. Expected"),
        (WORDS, {"\x1b[31m": 1}, 422, "'\\x1b[31m' is 1: Extra inputs are not permitted"),
        ("/no", {}, 404, "Not Found. See /openapi.json."),
        ("/docs", {}, 404, "Not Found"),
        ("/api/models/ner/predict/", {}, 404, "Not Found"),
        ("/api/models/no/predict", b"{", 404, "There is no model 'no', expected one of coref, ner"),
        (SQUAD, {"passage": "It rained."}, 422, "the keys 'passage' in the input, expected 'quest"),
        ("/health", {}, 405, "Method Not Allowed. See /openapi.json."),
    ],
)
def test_a_bad_request_is_answered_with_one_line(
    path: str, body: Any, status: int, message: str, client: TestClient
) -> None:
    content = body if isinstance(body, bytes) else json.dumps(body)
    assert message in error_of(client.post(path, content=content), status)


def test_a_wrong_method_is_answered_with_the_right_one(client: TestClient) -> None:
    assert client.post("/health").headers["allow"] == "GET"


def test_a_body_is_json_whatever_type_it_names(client: TestClient) -> None:
    for content_type in ("application/x-www-form-urlencoded", "text/plain"):  # the first is curl's
        headers = {"Content-Type": content_type}
        response = client.post(NER, content=json.dumps(SENTENCE), headers=headers)
        assert response.json() == client.post(NER, json=SENTENCE).json()


@pytest.mark.parametrize(
    "text, message",
    [
        ("(" * 3000, "'sentence' has a word of 3,000 characters, expected at most 300"),
        ("a\t" * 601, "'sentence' has 1,202 characters, expected at most 1,200"),
    ],
)
def test_long_texts_are_refused_before_the_tokenizer_reads_them(
    text: str,
    message: str,
    client: TestClient,
    models: Dict[str, ServedModel],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tokenizer = models["ner"]._predictor.tokenizer
    monkeypatch.setattr(tokenizer, "tokenize", lambda text: pytest.fail("it reads the text"))
    assert message in error_of(client.post(NER, json={"sentence": text}), 413)


@pytest.mark.parametrize(
    "messages, status",
    [
        ([{"type": "http.request", "body": b"a" * 1000, "more_body": True}] * 5, 413),
        ([{"type": "http.request", "body": b"{", "more_body": True}], 408),
        ([{"type": "http.disconnect"}], 400),
    ],
)
def test_bodies_that_do_not_end(
    messages: List[Dict[str, Any]], status: int, words: WordsInContext
) -> None:
    # No other answer may wait for the clock.
    timeout = 0.1 if status == 408 else Limits().timeout
    app = make_app([], words, Limits(max_body=4000, timeout=timeout))

    async def unread(scope: Any, receive: Any, send: Any) -> None:
        left = iter(messages)

        async def receive_some() -> Any:
            return next(left, None) or await asyncio.sleep(60)

        await app(scope, receive_some, send)

    error_of(client_of(unread).post(WORDS), status)


@pytest.mark.parametrize(
    "raised, status, message",
    [
        (RuntimeError("secret"), 500, "The server made an error, which its log describes."),
        (ConfigurationError("one\ntwo"), 422, "one; two"),
    ],
)
def test_a_bug_shows_no_traceback_and_spoils_no_other_request(
    raised: Exception,
    status: int,
    message: str,
    models: Dict[str, ServedModel],
    words: WordsInContext,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    predict = models["ner"].answers

    def fail_on_bugs(batch: Any) -> Any:
        if {"sentence": "bug"} in batch:
            raise raised
        return predict(batch)

    monkeypatch.setattr(models["ner"], "answers", fail_on_bugs)
    with client_of(make_app([models["ner"]], words, LIMITS)) as client:
        assert error_of(client.post(NER, json={"sentence": "bug"}), status) == message
        assert client.post(NER, json=SENTENCE).status_code == 200


@pytest.mark.parametrize(
    "host, origin, status",
    [
        ("127.0.0.1:8000", None, 200),
        ("localhost:9000", None, 200),  # through a tunnel
        ("LOCALHOST", None, 200),
        ("[::1]:8000", None, 200),
        ("[fe80::1%25eth0]:8000", None, 200),
        ("192.0.2.1:8000", None, 200),  # only a name can be made to resolve elsewhere
        ("elmo.example.org", None, 200),
        ("attacker.example:8000", None, 403),
        ("localhost.attacker.example", None, 403),
        ("192.0.2.1.attacker.example", None, 403),
        ("127.0.0.1@attacker.example", None, 403),
        ("0x7f.1.attacker", None, 403),
        ("", None, 403),
        ("[", None, 403),
        ("127.0.0.1:8000", "http://127.0.0.1:8000", 200),
        ("localhost:8000", "https://elmo.example.org", 200),  # a proxy changed the host
        ("localhost:8000", "http://localhost:3000", 403),
        ("127.0.0.1:8000", "http://127.0.0.1:3000", 403),
        ("localhost:8000", "http://192.0.2.1", 403),
        ("localhost:8000", "https://attacker.example", 403),
        ("localhost:8000", "http://elmo.example.org.attacker.example", 403),
        ("localhost:8000", "http://attacker.example/localhost:8000", 403),
        ("localhost:8000", "http://localhost:8000@attacker.example", 403),
        ("localhost:8000", "null", 403),
    ],
)
def test_only_addresses_and_allowed_names_are_served(
    host: str, origin: Optional[str], status: int, client: TestClient
) -> None:
    headers = {"Host": host, **({} if origin is None else {"Origin": origin})}
    for response in (
        client.get("/", headers=headers),
        client.post(NER, json=SENTENCE, headers=headers),
    ):
        assert response.status_code == status
        assert not any("access-control" in name for name in response.headers)  # for other pages
        if status == 403:
            assert "--allowed-host" in error_of(response, status)


def test_openapi_describes_requests_answers_and_errors(client: TestClient) -> None:
    openapi = client.get("/openapi.json").json()
    paths, schemas = openapi["paths"], openapi["components"]["schemas"]
    assert schemas["WordRequest"]["required"] == ["word", "sentence"]
    for path in paths.values():
        for operation in path.values():
            assert set(operation["responses"]) == {"200", "default"}
            assert "ErrorMessage" in json.dumps(operation["responses"]["default"])
    assert "HTTPValidationError" not in schemas


def test_models_of_the_package_are_known_by_any_name_and_have_cards_without_head_and_config(
    client: TestClient, words: WordsInContext
) -> None:
    for listed in client.get("/api/models").json()["models"]:
        assert (listed["name_in_package"], listed["has_card"]) == (None, False)
    assert error_of(client.get("/api/models/ner/card"), 404) == "The model 'ner' has no card."
    assert "There is no model 'no'" in error_of(client.get("/api/models/no/card"), 404)
    model = ServedModel("names", "elmo_ner_small", LIMITS)
    with client_of(make_app([model], words, LIMITS)) as of_named:
        (listed,) = of_named.get("/api/models").json()["models"]
        assert (listed["name_in_package"], listed["has_card"]) == ("elmo_ner_small", True)
        card = of_named.get("/api/models/names/card").json()["card"]
    assert card.startswith("# elmo_ner_small\n\nTags persons")
    assert "\n## Scores\n" in card and "## Config" not in card and "```" not in card


def test_models_hold_the_weights_of_their_bilms_once(models: Dict[str, ServedModel]) -> None:
    for model in models.values():
        parameters = model._predictor._model.named_parameters()
        assert not any("_elmo_lstm" in name for name, _ in parameters)


def test_a_card_that_is_no_utf8_is_shown(tmp_path: Path) -> None:
    (tmp_path / "config.json").touch()
    (tmp_path / "README.md").write_bytes("caf\xe9".encode("latin-1"))
    assert answers._card_of(tmp_path) == "caf\N{REPLACEMENT CHARACTER}"


def test_a_sentence_that_is_read_for_each_of_its_predicates_must_be_short(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(answers, "MAX_SRL_TOKENS", 6)
    model = ServedModel("roles", "elmo_srl_small", LIMITS)
    (short, long) = model.answers([{"tokens": ["It"] * number} for number in (6, 7)])
    assert isinstance(short, dict)
    assert "'tokens' has 7 tokens, expected at most 6" in str(long)


def test_the_page_and_the_health_can_be_asked_for_by_their_heads(client: TestClient) -> None:
    for path in ("/", "/health"):
        answer = client.head(path)
        assert (answer.status_code, answer.content) == (200, b"")


def test_the_page_allows_nothing_but_its_own_content(client: TestClient) -> None:
    response = client.get("/")
    policy = response.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "script-src 'sha256-" in policy
    assert "unsafe" not in policy
    assert not re.search(r"\sstyle=|innerHTML", response.text)
    assert not re.search(r"""(src|href)=["']?(https?:)?//""", response.text)


def test_the_page_knows_every_task(client: TestClient) -> None:
    page = client.get("/").text
    for table in ("TASKS", "SHOW"):
        _, entries = page.split(f"\nconst {table} = {{\n")
        keys = re.findall(r"^  (\w+):", entries.split("\n};\n")[0], re.MULTILINE)
        assert sorted(keys) == sorted([*answers.TASKS, "neighbors"])


def test_archives_that_cannot_be_served(monkeypatch: pytest.MonkeyPatch) -> None:
    archive = SimpleNamespace(model=SimpleNamespace(default_predictor="elmo_bilm"))
    monkeypatch.setattr(answers, "opened_archive", lambda *_, **__: archive)
    with pytest.raises(
        ConfigurationError, match=r"is of class SimpleNam.*expected one of elmo_ner"
    ):
        ServedModel("x", "bilm.gz", LIMITS)
