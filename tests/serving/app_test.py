"""The routes of the server, and the error of each kind of bad request."""

import json
import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Dict, Iterator, List

import numpy
import pytest
from fastapi.testclient import TestClient

from elmo_plugin import ElmoEmbedder, __version__
from elmo_plugin.serving.app import make_app
from elmo_plugin.serving.limits import Limits
from elmo_plugin.serving.senses import SenseFinder, SensesRequest
from elmo_plugin.serving.served_model import ServedModel
from tests.earlier_versions_test import assert_alike
from tests.serving.conftest import EARLIER, MAX_TOKENS, REPOSITORY, TASKS, examples

LIMITS = Limits(max_body=4000, max_tokens=MAX_TOKENS)
SENTENCE = {"sentence": "Peter flew from Paris to São Paulo."}
NER = "/api/models/ner/predict"
ATTACK = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def client(models: Dict[str, ServedModel], senses: SenseFinder) -> Iterator[TestClient]:
    app = make_app(list(models.values()), senses, LIMITS)
    with TestClient(app, raise_server_exceptions=False) as client:
        yield client


def error_of(response: Any, status: int) -> str:
    """The one line of an error."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    assert list(response.json()) == ["error"]
    message = response.json()["error"]
    assert message and "\n" not in message and "Traceback" not in message
    return str(message)


class TestPredictions:
    @pytest.mark.parametrize("task", TASKS)
    def test_they_are_those_of_elmo_predict(self, task: str, client: TestClient) -> None:
        for example in examples(task):
            response = client.post(f"/api/models/{task}/predict", json=example["input"])
            assert response.status_code == 200
            assert_alike(response.json(), example["output"])

    @pytest.mark.parametrize("task", TASKS)
    def test_the_listed_example_is_answered(self, task: str, client: TestClient) -> None:
        listed = client.get("/api/models").json()["models"]
        (model,) = [model for model in listed if model["name"] == task]
        response = client.post(f"/api/models/{task}/predict?html=1", json=model["example"])
        assert response.status_code == 200
        assert isinstance(response.json()["html"], list)

    def test_requests_that_arrive_together_run_in_fewer_batches_and_have_the_same_answers(
        self, models: Dict[str, ServedModel], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        sentences = [
            f"Peter flew from Paris to {'São ' * (number % 7)}Paulo." for number in range(24)
        ]
        batches: List[int] = []
        predict = models["ner"].answers

        def slow(batch: Any) -> Any:
            batches.append(len(batch))
            time.sleep(0.2)
            return predict(batch)

        app = make_app([models["ner"]], None, LIMITS)
        with TestClient(app) as client:
            alone = [client.post(NER, json={"sentence": text}).json() for text in sentences]
        monkeypatch.setattr(models["ner"], "answers", slow)
        with TestClient(make_app([models["ner"]], None, LIMITS)) as client:
            with ThreadPoolExecutor(len(sentences)) as pool:
                together = list(
                    pool.map(
                        lambda text: client.post(NER, json={"sentence": text}).json(), sentences
                    )
                )
            metrics = client.get("/metrics").text
        assert_alike(together, alone)
        assert sum(batches) == len(sentences)
        assert len(batches) < len(sentences) / 2
        assert f'elmo_batches_total{{model="ner"}} {len(batches)}\n' in metrics
        assert 'elmo_batched_requests_total{model="ner"} 24\n' in metrics

    def test_html_is_escaped(self, client: TestClient) -> None:
        given = {"tokens": [ATTACK, "flew", "from", ATTACK]}
        answer = client.post(f"{NER}?html=true", json=given).json()
        assert answer["words"] == given["tokens"]
        (html,) = answer["html"]
        assert "<script" not in html and html.count("&lt;script&gt;") == 2


class TestNeighbors:
    def test_the_bank_of_a_river_is_nearest_to_others(self, client: TestClient) -> None:
        given = {"word": "bank", "sentence": "They sat on the bank of the lake.", "top": 3}
        answer = client.post("/api/neighbors", json=given).json()
        assert answer["num_occurrences"] == 12
        assert len(answer["neighbors"]) == 3
        for neighbor in answer["neighbors"]:
            assert neighbor["words"][neighbor["position"]] == "bank"
            span = slice(neighbor["start_char"], neighbor["end_char"])
            assert neighbor["sentence"][span] == "bank"
        similarities = [neighbor["similarity"] for neighbor in answer["neighbors"]]
        assert similarities == sorted(similarities, reverse=True)
        assert answer["neighbors"][0]["sentence"].startswith("They sat on the bank of the river")

    def test_similarities_are_cosines_of_the_layer(self, client: TestClient) -> None:
        given = {
            "word": "Play",
            "sentence": "They saw a play.",
            "sentences": ["Nothing here.", "Play the guitar, then play it again!"],
            "layer": 1,
        }
        answer = client.post("/api/neighbors", json=given).json()
        embedder = ElmoEmbedder("elmo_mini")
        query = embedder.embed_sentence(["They", "saw", "a", "play", "."])[1, 3]
        words = ["Play", "the", "guitar", ",", "then", "play", "it", "again", "!"]
        layer = embedder.embed_sentence(words)[1]
        found = {neighbor["position"]: neighbor for neighbor in answer["neighbors"]}
        assert set(found) == {0, 5}
        for position, neighbor in found.items():
            vector = layer[position]
            cosine = vector @ query / numpy.linalg.norm(vector) / numpy.linalg.norm(query)
            assert neighbor["similarity"] == pytest.approx(float(cosine), abs=1e-5)
            assert (neighbor["index"], neighbor["words"]) == (1, words)

    def test_a_batch_has_the_answers_of_single_requests(self, senses: SenseFinder) -> None:
        requests = [
            SensesRequest(word="bank", sentence="The bank lends money.", layer=layer)
            for layer in (0, 1, 2, -1, "average")
        ] + [
            SensesRequest(word="no", sentence="bank"),
            SensesRequest(word="light", sentence="a light"),
        ]
        together = senses.answers(requests)
        for request, answer in zip(requests, together):
            (alone,) = senses.answers([request])
            if isinstance(alone, Exception):
                assert str(alone) == str(answer)
            else:
                assert_alike(answer, alone)
        assert isinstance(together[5], Exception)

    @pytest.mark.parametrize(
        "changes, status, message",
        [
            ({"word": "river"}, 422, "'sentence' does not hold the word 'river'"),
            ({"word": "the bank"}, 422, "'word' is \"the bank\", expected one token"),
            ({"word": " "}, 422, "'word' is \" \", expected a text that is not empty"),
            ({"sentences": ["bank", ""]}, 422, "'sentences'[1] is \"\", expected a word"),
            ({"word": 3}, 422, "'word' is 3, expected a text"),
            ({"word": None}, 422, "'word' is null, expected a text"),
            ({"word": "\ud83d"}, 422, "is valid Unicode"),
            ({"sentence": "bank " * 100}, 413, "'sentence' has 100 tokens, expected at most 60"),
            ({"sentences": []}, 422, "'sentences' is [], expected a list"),
            ({"sentences": "bank"}, 422, "'sentences' is \"bank\", expected a list"),
            ({"sentences": ["no"]}, 422, "'sentences' do not hold the word 'bank'"),
            ({"sentences": ["a", "bank " * 61]}, 413, "'sentences'[1] has 61 tokens"),
            ({"layer": 3}, 422, "'layer': found 3, expected a number from 0"),
            ({"layer": -2}, 422, "'layer': found -2, expected a number from 0"),
            (
                {"layer": "top"},
                422,
                "'layer' is \"top\", expected the number of a layer, or average",
            ),
            ({"layer": True}, 422, "'layer' is true, expected the number of a layer"),
            ({"layer": [1]}, 422, "'layer' is [1], expected the number of a layer"),
            ({"top": 0}, 422, "'top' is 0, expected a positive number"),
            ({"top": 1.5}, 422, "'top' is 1.5, expected a positive number"),
            (
                {"tpo": 1},
                422,
                'Found the key "tpo", expected word, sentence, sentences, layer, top',
            ),
        ],
    )
    def test_errors(
        self, changes: Dict[str, Any], status: int, message: str, client: TestClient
    ) -> None:
        given = {"word": "bank", "sentence": "The bank.", **changes}
        response = client.post("/api/neighbors", content=json.dumps(given))
        assert message in error_of(response, status)


class TestErrors:
    @pytest.mark.parametrize(
        "task, given, status, message",
        [
            ("ner", {}, 422, "expected exactly one of 'sentence', 'tokens', 'words'"),
            ("ner", {"sentence": ""}, 422, "'sentence' is \"\", expected a text that is not empty"),
            ("ner", {"sentence": 3}, 422, "'sentence' is 3, expected a text"),
            ("ner", {"sentence": "a\ud83d"}, 422, "is valid Unicode"),
            ("ner", {"tokens": []}, 422, "'tokens' is [], expected a list of words"),
            ("ner", {"tokens": ["a", 1]}, 422, "'tokens'[1] is 1, expected a word"),
            ("ner", {"sentence": "a", "tokens": ["a"]}, 422, "expected exactly one of"),
            ("ner", {"sentence": "a " * 61}, 413, "'sentence' has 61 tokens, expected at most 60"),
            ("ner", {"tokens": ["a"] * 61}, 413, "'tokens' has 61 tokens, expected at most 60"),
            ("ner", {"sentence": "(" * 3000}, 413, "'sentence' has "),
            ("coref", {"sentences": [["a"] * 31] * 2}, 413, "'sentences' has 62 tokens"),
            ("squad", {"passage": "a " * 61, "question": "b"}, 413, "'passage' has 61 tokens"),
            ("srl", {"sentence": "It rained."}, 422, "Give the indices of its predicates"),
            ("srl", {"tokens": ["a"], "predicates": [1]}, 422, "'predicates'[0] is 1, expected"),
            ("snli", {"premise": "a"}, 422, "'hypothesis'"),
        ],
    )
    def test_input_that_is_not_what_the_task_expects(
        self, task: str, given: Dict[str, Any], status: int, message: str, client: TestClient
    ) -> None:
        response = client.post(f"/api/models/{task}/predict", content=json.dumps(given))
        assert message in error_of(response, status)

    @pytest.mark.parametrize(
        "body, message",
        [
            (b"", "not JSON"),
            (b"{", "not JSON"),
            (b"[" * 3000, "not JSON"),
            (b"[1]", "The input is [1], expected a JSON object"),
            (b"null", "The input is null, expected a JSON object"),
            (b'{"sentence": "na\xefve"}', "The body is not UTF-8"),
            ('{"sentence": "a"}'.encode("utf-16"), "The body is not UTF-8"),
        ],
    )
    @pytest.mark.parametrize("path", [NER, "/api/neighbors"])
    def test_bodies_that_are_no_objects(
        self, body: bytes, message: str, path: str, client: TestClient
    ) -> None:
        assert message in error_of(client.post(path, content=body), 400)

    @pytest.mark.parametrize("path", [NER, "/api/neighbors"])
    def test_large_bodies_are_not_read(self, path: str, client: TestClient) -> None:
        message = "The body is larger than 4,000 bytes"
        assert message in error_of(client.post(path, content=b"a" * 4001), 413)
        # Without an announced length.
        read: List[int] = []

        def chunks() -> Iterator[bytes]:
            for number in range(1000):
                read.append(number)
                yield b"a" * 1000

        assert message in error_of(client.post(path, content=chunks()), 413)

    @pytest.mark.parametrize(
        "method, path, status, message",
        [
            ("GET", "/no", 404, "There is no /no. See /docs."),
            ("GET", "/api/models/", 404, "There is no /api/models/"),
            (
                "POST",
                "/api/models/no/predict",
                404,
                "There is no model 'no', expected one of coref,",
            ),
            ("GET", NER, 405, "GET is not allowed here, expected POST"),
            ("PUT", "/health", 405, "PUT is not allowed here, expected "),
            ("POST", f"{NER}?html=maybe", 422, "'html': Input should be a valid boolean"),
        ],
    )
    def test_wrong_addresses(
        self, method: str, path: str, status: int, message: str, client: TestClient
    ) -> None:
        assert error_of(client.request(method, path, json=SENTENCE), status).startswith(message)

    def test_a_bug_shows_no_traceback_and_spoils_no_other_request(
        self, models: Dict[str, ServedModel], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        predict = models["ner"].answers

        def fail_on_bugs(batch: Any) -> Any:
            if {"sentence": "bug"} in batch:
                raise RuntimeError("secret")
            return predict(batch)

        monkeypatch.setattr(models["ner"], "answers", fail_on_bugs)
        app = make_app([models["ner"]], None, LIMITS)
        with TestClient(app, raise_server_exceptions=False) as client:
            message = error_of(client.post(NER, json={"sentence": "bug"}), 500)
            assert "secret" not in message
            assert client.post(NER, json=SENTENCE).status_code == 200

    def test_a_full_queue_and_late_answers(
        self, models: Dict[str, ServedModel], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        may_run = threading.Event()
        predict = models["ner"].answers

        def wait(batch: Any) -> Any:
            assert may_run.wait(20)
            return predict(batch)

        monkeypatch.setattr(models["ner"], "answers", wait)
        limits = Limits(max_tokens=MAX_TOKENS, max_waiting=2, timeout=1.0, max_batch=1)
        with TestClient(make_app([models["ner"]], None, limits)) as client:
            with ThreadPoolExecutor(8) as pool:
                responses = list(pool.map(lambda _: client.post(NER, json=SENTENCE), range(8)))
            may_run.set()
            statuses = [response.status_code for response in responses]
            # One is being answered and two wait.
            assert sorted(statuses) == [429] * 5 + [504] * 3
            for response in responses:
                error_of(response, response.status_code)
                is_full = response.status_code == 429
                assert response.headers.get("retry-after") == ("1" if is_full else None)
            assert client.post(NER, json=SENTENCE).status_code == 200


class TestDescriptions:
    def test_models(self, client: TestClient) -> None:
        listing = client.get("/api/models").json()
        assert [model["name"] for model in listing["models"]] == list(TASKS)
        assert listing["version"] == __version__
        assert listing["neighbors"]["bilm"] == "elmo_mini"
        assert listing["limits"] == {"body": 4000, "tokens": MAX_TOKENS}
        for model in listing["models"]:
            assert model["task"] == f"elmo_{model['name']}"
            for mix in model["mixes"]:
                assert sum(mix["shares"]) == pytest.approx(1)
                assert mix["place"] in ("input", "output")
        assert any(model["mixes"] for model in listing["models"])

    def test_the_model_of_the_package_has_a_card(self) -> None:
        description = ServedModel("mini", "elmo_ner_mini", MAX_TOKENS).description()
        assert description["summary"].startswith("Tags persons")
        assert "# elmo_ner_mini" in description["card"]
        assert [len(mix["shares"]) for mix in description["mixes"]] == [3]

    def test_health_and_metrics(self, client: TestClient) -> None:
        assert client.get("/health").json() == {"status": "ok"}
        assert client.head("/health").status_code == 200
        client.get("/no/such/place")
        response = client.get("/metrics")
        assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
        assert 'elmo_requests_total{route="/health",status="200"} ' in response.text
        assert 'elmo_requests_total{route="other",status="404"} ' in response.text
        assert "no/such" not in response.text
        for line in response.text.splitlines():
            assert re.fullmatch(r'# (HELP|TYPE) \w+ .+|\w+({(\w+="[^"]*",?)+})? [\d.e+-]+', line), (
                line
            )
        buckets = re.findall(r'bucket{route="/health",le="([^"]+)"} (\d+)', response.text)
        counts = [int(count) for _, count in buckets]
        assert counts == sorted(counts) and buckets[-1][0] == "+Inf"

    def test_openapi_and_its_page_need_no_network(self, client: TestClient) -> None:
        paths = client.get("/openapi.json").json()["paths"]
        assert set(paths) == {
            *("/api/models", "/api/models/{name}/predict", "/api/neighbors", "/health", "/metrics")
        }
        assert "requestBody" in paths["/api/neighbors"]["post"]
        page = client.get("/docs").text
        for path in paths:
            assert path in page
        assert not re.search(r"""(src|href)=["']?(https?:)?//""", page)

    def test_pages_allow_nothing_but_their_own_content(self, client: TestClient) -> None:
        for path in ("/", "/docs"):
            response = client.get(path)
            policy = response.headers["content-security-policy"]
            assert policy.startswith("default-src 'none'; script-src ")
            assert "unsafe" not in policy
            assert response.headers["x-content-type-options"] == "nosniff"
            assert not re.search(r"\sstyle=", response.text)
            assert not re.search(r"""(src|href)=["']?(https?:)?//""", response.text)

    def test_without_a_bilm_there_are_no_neighbors(self, models: Dict[str, ServedModel]) -> None:
        with TestClient(make_app([models["ner"]], None, LIMITS)) as client:
            assert client.get("/api/models").json()["neighbors"] is None
            error_of(client.post("/api/neighbors", json={}), 404)


def test_archives_that_cannot_be_served(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(REPOSITORY)
    with pytest.raises(
        ValueError, match="the model is of type elmo_bilm, expected one of elmo_ner, "
    ):
        ServedModel("x", EARLIER / "bilm", MAX_TOKENS)
    with pytest.raises(ValueError, match=r"no\.gz: no such file or folder, expected an archive"):
        ServedModel("x", "no.gz", MAX_TOKENS)
