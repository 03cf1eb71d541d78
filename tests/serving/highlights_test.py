"""HTML of texts with spans: what displaCy renders, escaped, and without style attributes."""

import re
from html.parser import HTMLParser
from typing import Any, Dict, List, Optional, Tuple

import pytest

from elmo_plugin.serving.highlights import Span, character_offsets, hue_of, marked, stacked

ATTACK = "<script>alert(1)</script>"
EVIL_WORDS = [ATTACK, '"><img', "src=x", "onerror=alert(1)>", "{text}", "{0}", "&amp;", "'"]


class Parsed(HTMLParser):
    """The elements, attributes and text of a piece of HTML, as a browser reads it."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: List[Tuple[str, Dict[str, Optional[str]]]] = []
        self.text = ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: List[Tuple[str, Optional[str]]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def test_spans_are_marked_in_the_text_as_it_was_given() -> None:
    words = ["Mary", "Smith", "saw", "Paris", "."]
    html = marked(words, [Span(3, 4, "LOC"), Span(0, 2, "PER")], "Mary  Smith saw Paris.")
    assert html == (
        '<div class="entities"><mark class="hue-0">Mary  Smith <small>PER</small></mark> saw '
        '<mark class="hue-1">Paris <small>LOC</small></mark>.</div>'
    )


def test_tokens_without_a_text_are_joined_by_spaces() -> None:
    expected = '<div class="entities">a <mark class="hue-0">b <small>PER</small></mark></div>'
    assert marked(["a", "b"], [Span(1, 2, "PER")]) == expected
    # The words are not those of the text.
    assert marked(["a", "b"], [Span(1, 2, "PER")], "c d") == expected


def test_overlapping_spans_are_lines_below_the_words() -> None:
    words = ["The", "King", "of", "Spain", "'s", "wife", "left", "him", "."]
    spans = [Span(0, 6, "3"), Span(0, 4, "1"), Span(3, 4, "2"), Span(7, 8, "1")]
    parsed = Parsed(stacked(words, spans, "The King of Spain's wife left him."))
    lines = [attributes["class"] for tag, attributes in parsed.elements if tag == "i"]
    # Spain is in three spans.
    assert lines.count("line hue-2 slot-3") == 1
    assert lines.count("line hue-1 slot-2") == 4
    assert lines.count("line hue-3 slot-1") == 6
    labels = [attributes["class"] for tag, attributes in parsed.elements if tag == "b"]
    assert labels == ["hue-3 slot-1", "hue-1 slot-2", "hue-2 slot-3", "hue-1 slot-1"]
    text = re.sub(r"<b.*?</b>", "", stacked(words, spans, "The King of Spain's wife left him."))
    assert " ".join(Parsed(text).text.split()) == "The King of Spain's wife left him."


def test_no_text_is_lost_without_spans() -> None:
    assert Parsed(stacked(["a", "b"], [], "a b")).text.strip() == "a b"
    assert Parsed(marked(["a", "b"], [], "a\nb")).text == "ab"  # with a <br>


@pytest.mark.parametrize("render", [marked, stacked])
@pytest.mark.parametrize("text", [None, " ".join(EVIL_WORDS)])
def test_nothing_of_text_or_labels_becomes_an_element(render: Any, text: Optional[str]) -> None:
    spans = [Span(0, 2, ATTACK), Span(4, 5, '" onload="alert(1)'), Span(6, 8, "{bg}")]
    html = render(EVIL_WORDS, spans, text)
    parsed = Parsed(html)
    assert {tag for tag, _ in parsed.elements} <= {"div", "mark", "small", "span", "i", "b"}
    for _, attributes in parsed.elements:
        assert set(attributes) <= {"class"}
        assert re.fullmatch(r"[a-z0-9 -]*", attributes.get("class") or "")
    for word in (*EVIL_WORDS, *(span.label for span in spans)):
        assert word in parsed.text
    assert "style=" not in re.sub(r"<[^>]*>", "", html)


def test_offsets_of_words() -> None:
    assert character_offsets(["a", "a"], "a  a") == [(0, 1), (3, 4)]
    assert character_offsets(["a", "b"], "b a") is None


def test_hues() -> None:
    assert [hue_of(label) for label in ("1", "9", "16")] == [1, 1, 0]
    assert len({hue_of(label) for label in ("PER", "LOC", "ORG", "MISC")}) == 4
    assert hue_of("ARGM-XYZ") in range(8)
