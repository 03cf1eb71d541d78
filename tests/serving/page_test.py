"""The page in a browser: what people see, with the keyboard alone, on a phone, and what no text can do."""

import asyncio
import re
import shutil
import threading
from typing import Any, Dict, Iterator, List

import pytest
import uvicorn

from elmo_plugin.serving.answers import ServedModel, WordsInContext
from elmo_plugin.serving.app import make_app
from tests.serving.conftest import LIMITS, TASKS

playwright = pytest.importorskip(
    "playwright.sync_api", reason="playwright, which drives the browser, is not installed"
)

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))),
    None,
)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium or Chrome on the path"),
]

ATTACK = (
    "<img src=x onerror=attack()> <script>attack()</script> "
    '"><svg onload=attack()> javascript:attack()'
)
ALL = ("elmo_ner_small", *TASKS, "~words")


@pytest.fixture(scope="module")
def address(models: Dict[str, ServedModel], words: WordsInContext) -> Iterator[str]:
    all_models = [ServedModel("elmo_ner_small", "elmo_ner_small", LIMITS), *models.values()]
    app = make_app(all_models, words, LIMITS)
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error"))
    thread = threading.Thread(target=asyncio.run, args=(server.serve(),))
    thread.start()
    while not server.started:
        assert thread.is_alive()
    port = server.servers[0].sockets[0].getsockname()[1]
    yield f"http://127.0.0.1:{port}/"
    server.should_exit = True
    thread.join(30)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as play:
        # Root has no sandbox, in containers.
        browser = play.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


class Page:
    """A page of the browser, the messages of its console, and the requests that went elsewhere."""

    def __init__(self, browser: Any, address: str) -> None:
        self.address = address
        self.page = browser.new_context().new_page()
        self.messages: List[str] = []
        self.elsewhere: List[str] = []
        self.page.on("console", lambda message: self.messages.append(message.text))
        self.page.on("pageerror", lambda error: self.messages.append(str(error)))
        self.page.on("request", lambda request: self.elsewhere.append(request.url))
        self.page.add_init_script("window.attack = () => { window.attacked = true; }")

    def open(self, name: str = "") -> Any:
        self.page.goto(f"{self.address}#{name}")
        self.page.reload()
        self.page.wait_for_selector("#choices label")
        return self.page

    def run(self) -> None:
        """Press Run and wait for the answer; choose a predicate, where the model does not find them."""
        self.page.click("button.main")
        self.wait()
        if self.text("#status") == "Choose the predicates of the sentence.":
            self.page.locator("#predicates input").first.check()
            self.page.click("button.main")
            self.wait()

    def wait(self) -> None:
        self.page.wait_for_selector("#form:not([aria-busy])")

    def text(self, selector: str) -> str:
        return str(self.page.inner_text(selector))

    def answer(self, answer: Dict[str, Any]) -> None:
        """Show an answer as if the server gave it."""
        self.page.route("**/predict*", lambda route: route.fulfill(json=answer))
        self.run()

    def check(self) -> None:
        """Check that nothing failed, was fetched from elsewhere or ran."""
        assert self.messages == []
        assert [url for url in self.elsewhere if not url.startswith((self.address, "data:"))] == []
        assert self.page.evaluate("window.attacked") is None


@pytest.fixture
def page(browser: Any, address: str) -> Iterator[Page]:
    page = Page(browser, address)
    yield page
    page.check()
    page.page.context.close()


@pytest.mark.parametrize("name", ALL)
def test_all_examples_are_answered_and_everything_has_a_name_for_screen_readers(
    name: str, page: Page
) -> None:
    page.open(name)
    for button in page.page.locator("#examples button").all():
        button.click()
        page.wait()
        assert page.page.is_hidden("#error"), page.text("#error")
    assert page.text("#status")
    # The examples of an error name the model that makes it, and are not shown for models of other people.
    has_known_error = "A known error" in page.text("#examples")
    assert has_known_error == (name in ("elmo_ner_small", "~words"))
    if name == "elmo_ner_small":
        button = page.page.locator("#examples button").last.inner_text()
        assert "A known error: elmo_ner_small takes Honda for a place." in button
        assert "Honda (LOC)" in page.text("#status")
        meanings = re.split(r"\s*\n\s*", page.text("#answer .legend"))
        assert meanings == ["LOC", "place", "ORG", "organization"]
    elif name == "srl":
        page.open(name).wait_for_selector("#fields textarea")
        page.run()
        assert page.text("#status") == "1 predicate"
    unnamed = page.page.evaluate(
        """() => Array.from(document.querySelectorAll("input, textarea, select, button"))
            .filter((e) => !e.labels?.length && !e.innerText && !e.getAttribute("aria-label"))
            .map((e) => e.outerHTML)"""
    )
    assert unnamed == []


def test_nested_mentions_are_nested_marks_and_no_text_is_lost(page: Page) -> None:
    """The small model finds no mentions: the answer is one that a better model gives."""
    document = "The  King of Spain's wife left him. She loved Spain, and the King too."
    words = document.replace("'s", " 's").replace(".", " .").replace(",", " ,").split()
    spans = [(0, 6, 1), (0, 4, 2), (3, 4, 3), (7, 8, 2), (9, 10, 1), (11, 12, 3), (14, 16, 2)]
    mentions = [
        {"start": start, "end": end, "cluster": cluster, "text": " ".join(words[start:end])}
        for start, end, cluster in spans
    ]
    page.open("coref")
    page.answer(
        {"document": document, "words": words, "clusters": [[], [], []], "mentions": mentions}
    )
    assert page.text("#status") == "3 entities with several mentions"
    items = page.page.locator("#answer li").all_inner_texts()
    assert items[0] == "1 The King of Spain 's wife, She"
    # Spaces before labels do not break.
    assert page.page.text_content(".marked") == (
        "The  King of Spain~3~2's wife~1 left him~2. She~1 loved Spain~3, and the King~2 too."
    ).replace("~", "\u00a0")
    assert page.page.locator("mark mark mark").all_text_contents() == ["Spain\u00a03"]


def test_tokens_that_are_not_in_the_text_are_shown_in_its_place(page: Page) -> None:
    spans = [{"start": 3, "end": 4, "label": "LOC", "text": ""}]
    tokens = ["Mary", "Smith", "met", "Rome", "."]
    page.open("ner")
    page.answer({"sentence": "Mary  Smith saw Paris.", "words": tokens, "spans": spans})
    assert page.page.text_content(".marked") == "Mary Smith met Rome\u00a0LOC ."


def test_no_text_runs_a_script(page: Page) -> None:
    for name in ("elmo_ner_small", *TASKS):
        page.open(name)
        for field in page.page.locator("#fields textarea, #fields input").all():
            field.fill(f"Mary met {ATTACK} in Paris.")
        page.run()
        assert page.page.is_hidden("#error"), page.text("#error")
        assert page.page.locator("#result img, #result script, #result svg").count() == 0
    page.open("~words")
    page.page.fill("#field-word", "Mary")
    page.page.fill("#field-sentence", f"Mary {ATTACK}")
    page.page.fill("#field-sentences", f"Mary and {ATTACK}\n{ATTACK} Mary")
    page.run()
    assert page.page.locator("#answer mark").count() == 2
    assert page.page.locator("#result img, #result script, #result svg").count() == 0


def test_offsets_count_characters_beyond_the_first_plane(page: Page) -> None:
    page.open("~words")
    page.page.fill("#field-word", "play")
    page.page.fill("#field-sentence", "They play.")
    page.page.fill("#field-sentences", "😀😀 They play chess 😀.")
    page.run()
    assert page.page.locator("#answer mark").all_inner_texts() == ["play"]


def test_errors_are_shown_and_announced(page: Page) -> None:
    page.open("sst")
    for text, message in (
        ("", "expected a text that is not empty"),
        ("a " * (LIMITS.max_tokens + 1), f"expected at most {LIMITS.max_tokens}"),
    ):
        page.page.fill("#field-sentence", text)
        page.run()
        assert message in page.text("[role=alert]")
    page.page.fill("#field-sentence", "Good.")
    page.run()
    assert page.page.is_hidden("[role=alert]")
    page.page.route("**/predict*", lambda route: route.abort())
    page.run()
    assert page.text("[role=alert]") == "The server does not answer. Is it still running?"
    # The browser's own lines about statuses 4xx, and about the request without an answer.
    assert all("Failed to load resource" in message for message in page.messages)
    page.messages.clear()


def test_the_keyboard_alone_is_enough(page: Page) -> None:
    page.open()
    focused = "document.activeElement.id || document.activeElement.value || document.activeElement.innerText"
    for name in ("API", "elmo_ner_small"):
        page.page.keyboard.press("Tab")
        assert page.page.evaluate(focused) == name
    for _ in range(6):
        page.page.keyboard.press("ArrowDown")
    assert page.page.evaluate(focused) == "sst"
    for example in page.page.locator("#examples button").all_inner_texts():
        page.page.keyboard.press("Tab")
        assert page.page.evaluate(focused) == example
    page.page.keyboard.press("Tab")
    assert page.page.evaluate(focused) == "field-sentence"
    page.page.keyboard.press("Control+A")
    page.page.keyboard.type("A good film.")
    page.page.keyboard.press("Control+Enter")
    page.wait()
    assert "%" in page.text("#status")
    page.page.keyboard.press("Tab")
    assert page.page.evaluate(focused) == "Run"


def test_a_label_stays_beside_its_last_word_on_a_phone(page: Page) -> None:
    page.page.set_viewport_size({"width": 390, "height": 844})
    page.open("ner")
    words = [f"Name{'e' * (number % 5)} Surname{'e' * (number % 7)}" for number in range(40)]
    spans = [{"start": i, "end": i + 1, "label": "LOC", "text": words[i]} for i in range(40)]
    page.answer({"sentence": " ".join(words), "words": words, "spans": spans})
    # The last letter of the name and its label are in one line.
    distances = page.page.evaluate(
        """() => Array.from(document.querySelectorAll("#answer mark"), (mark) => {
            const range = document.createRange();
            const text = mark.firstChild;
            range.setStart(text, text.length - 1);
            range.setEnd(text, text.length);
            const label = mark.querySelector("small").getBoundingClientRect();
            return Math.abs(range.getBoundingClientRect().bottom - label.bottom);
        })"""
    )
    assert len(distances) == 40 and max(distances) < 10  # lines are 40 pixels high


def test_the_result_is_beside_the_form_and_says_at_once_that_it_runs(page: Page) -> None:
    page.page.set_viewport_size({"width": 1280, "height": 800})
    page.open("ner")
    answers: List[Any] = []
    page.page.route("**/predict*", lambda route: answers.append(route))  # not answered yet
    page.page.click("button.main")
    assert page.text("#status") == "Running…"
    result, form = (page.page.locator(name).bounding_box() for name in ("#result", "#form"))
    assert result["x"] >= form["x"] + form["width"] and result["y"] == form["y"]
    page.page.wait_for_function("document.querySelector('#form').getAttribute('aria-busy')")
    [route] = answers
    route.fulfill(json={"sentence": "Ada", "words": ["Ada"], "spans": []})
    page.wait()
    assert page.text("#status") == "No entities"


def test_the_card_of_a_model_is_shown_without_its_config(page: Page) -> None:
    page.open("elmo_ner_small")
    page.page.click("summary")
    page.page.wait_for_selector("#card table")
    assert page.page.locator("#card h3").all_inner_texts() == ["elmo_ner_small"]
    headings = page.page.locator("#card h4").all_inner_texts()
    assert headings[-1] == "Scores" and "Config" not in headings
    assert page.page.locator("#card thead th").all_inner_texts() == [
        "",
        "precision",
        "recall",
        "f1",
    ]
    assert page.page.locator("#card tbody tr").count() == 3
    assert page.page.locator("#card li.inner").count() > 0
    assert page.text("#card pre").startswith("echo '{")
    page.open("ner")
    assert page.page.is_hidden("#model")


def test_a_card_is_text_whatever_it_holds(page: Page) -> None:
    page.open("elmo_ner_small")
    card = f"# {ATTACK}\n\n| {ATTACK} |\n|---|\n| {ATTACK} |\n- {ATTACK}\n## \n|\n    {ATTACK}"
    card += f"\n[link](javascript:attack) **{ATTACK}** `{ATTACK}`\n##### {ATTACK}\n#no heading"
    page.page.route("**/card", lambda route: route.fulfill(json={"card": card}))
    page.page.click("summary")
    page.page.wait_for_selector("#card strong")
    assert page.page.locator("#card :is(img, script, svg, a)").count() == 0
    assert page.text("#card pre") == ATTACK
    assert page.page.locator("#card p").first.inner_text().startswith("link <img src=x")


@pytest.mark.parametrize("name", ["elmo_ner_small", "coref", "srl", "snli", "~words"])
def test_it_fits_on_a_phone(name: str, page: Page) -> None:
    page.page.set_viewport_size({"width": 360, "height": 740})
    page.open(name)
    page.run()
    if name == "elmo_ner_small":
        page.page.click("summary")
        page.page.wait_for_selector("#card table")
    assert page.page.evaluate("document.documentElement.scrollWidth") <= 360
