"""Pages as they are written, and, where there is a Chromium, as readers see them."""

import argparse
import base64
import hashlib
import re
import struct
from html.parser import HTMLParser
from pathlib import Path
from typing import Dict, Iterator, List, Optional, Tuple

import pytest
from allennlp.common.checks import ConfigurationError
from matplotlib.figure import Figure

from elmo_plugin.report.figures import write_figure
from elmo_plugin.report.page import Page, PageSummary, write_page
from elmo_plugin.report.report_table import ReportTable, write_table
from tests.report.headless_chromium import HeadlessChromium, find_chromium

PHONE_WIDTH = 360
SCREEN_WIDTH = 1200
SETTINGS = {
    "command": "allennlp elmo-report layers training_configs/ner_small.jsonnet "
    + "--seeds 1 2 " * 9,
    "seeds": [1, 2],
    "versions": {"torch": "2.12.1"},
    "test_data_path": None,
    "overrides": [{}],
}


def write_results(folder: Path) -> None:
    """Tables narrow, wide and failed, in a folder and a sub-folder, with pictures and without."""
    weights = [["ner", "input", 0.412, 1.083], ["sst", "both", "failed: out of memory", None]]
    columns = ["task", "place", "layer 1", "gamma"]
    notes = ["Softmax of `scalar_parameters`.", "sst failed: " + "a/long/path/" * 20]
    write_table(ReportTable("weights", "Mix weights", columns, weights, notes, SETTINGS), folder)
    wide = [f"dev accuracy of seed {seed}" for seed in range(12)]
    rows = [[f"variant {row}", *(0.5 + row / 100 for _ in wide)] for row in range(5)]
    table = ReportTable("layers", "Which layers", ["variant", *wide], rows, [], SETTINGS)
    write_table(table, folder / "ner")
    for name in ("layers", "layers-curves", "map"):
        figure = Figure(figsize=(10, 4) if name == "layers" else None)
        figure.add_subplot().plot([1, 2, 3])
        write_figure(figure, folder / "ner", name)
    (folder / "ner" / "layers-curves.svg").unlink()


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("page")
    write_results(folder / "results")
    write_page(folder / "results", folder / "report.html")
    return folder / "report.html"


class Elements(HTMLParser):
    """The start tags of a page, in order, and whether all that must be closed was."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: List[Tuple[str, Dict[str, Optional[str]]]] = []
        self.open: List[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attributes: List[Tuple[str, Optional[str]]]) -> None:
        self.found.append((tag, dict(attributes)))
        if tag not in ("meta", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def all(self, tag: str) -> List[Dict[str, Optional[str]]]:
        return [attributes for name, attributes in self.found if name == tag]


@pytest.fixture(scope="module")
def elements(page: Path) -> Elements:
    return Elements(page.read_text(encoding="utf-8"))


def test_all_elements_are_closed(elements: Elements) -> None:
    assert elements.open == []


def test_the_contents_lead_to_every_section(elements: Elements, page: Path) -> None:
    names = [attributes["id"] for _, attributes in elements.found if "id" in attributes]
    assert len(set(names)) == len(names)
    targets = [attributes["href"] for attributes in elements.all("a")]
    anchors = [target[1:] for target in targets if target and target.startswith("#")]
    assert anchors == ["results", "table-1", "table-2", "other-pictures"]
    assert set(anchors) <= set(names)
    html = page.read_text(encoding="utf-8")
    contents = html.partition("<nav")[2].partition("</nav>")[0]
    assert re.findall(r">(\w[^<>\n]+)<", contents) == [
        *("Contents", "Mix weights", "1 failed", "ner", "Which layers", "Other pictures")
    ]


def test_tables_have_captions_and_heads_and_pictures_have_words(elements: Elements) -> None:
    assert len(elements.all("table")) == len(elements.all("caption")) == 2
    assert {attributes["scope"] for attributes in elements.all("th")} == {"col", "row"}
    assert [attributes["alt"] for attributes in elements.all("img")] == [
        "Picture. Which layers. The numbers are in the table above.",
        "Picture. Which layers: curves. The numbers are in the table above.",
        "Picture. ner/map.",
    ]
    assert len(elements.all("figcaption")) == 3


def test_notes_and_settings_are_there(page: Path) -> None:
    html = page.read_text(encoding="utf-8")
    assert "<p>Softmax of <code>scalar_parameters</code>.</p>" in html
    settings = dict(re.findall(r"<dt>(.+)</dt>\n<dd><code>(.+)</code></dd>", html))
    assert settings == {
        "command": SETTINGS["command"],
        "seeds": "1, 2",
        "versions.torch": "2.12.1",
        "test_data_path": "null",
        "overrides": "[{}]",
    }


def test_failed_cells_are_told_wherever_one_looks(page: Path) -> None:
    html = page.read_text(encoding="utf-8")
    assert "2 tables, 3 pictures, 1 cell failed." in html
    assert html.count("1 cell failed") == 2
    assert '<td class="number failed">failed: out of memory</td>' in html


def test_the_table_can_be_taken_out_as_csv(elements: Elements, page: Path) -> None:
    (link,) = [link for link in elements.all("a") if link.get("download") == "weights.csv"]
    head, _, data = (link["href"] or "").partition(",")
    assert head == "data:text/csv;base64"
    assert base64.b64decode(data) == (page.parent / "results" / "weights.csv").read_bytes()


def test_nothing_is_fetched_and_nothing_is_run(elements: Elements, page: Path) -> None:
    for tag, attributes in elements.found:
        assert tag not in ("script", "link", "iframe", "object", "embed", "base")
        assert not any(name.startswith("on") or name == "srcset" for name in attributes)
        for name in ("src", "href"):
            if name in attributes:
                assert re.match("data:|#", attributes[name] or "")
    style = page.read_text(encoding="utf-8").partition("<style>")[2].partition("</style>")[0]
    assert "url(" not in style
    assert "@import" not in style
    (policy,) = [meta["content"] for meta in elements.all("meta") if "http-equiv" in meta]
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert policy == (
        f"default-src 'none'; img-src data:; style-src 'sha256-{digest}'; base-uri 'none'; "
        "form-action 'none'"
    )


def test_the_same_results_make_the_same_page(page: Path) -> None:
    copy = page.with_name("copy.html")
    write_page(page.parent / "results", copy)
    assert copy.read_bytes() == page.read_bytes()


def test_what_a_table_says_cannot_become_a_part_of_the_page(tmp_path: Path) -> None:
    text = "<script>alert(1)</script>\"'$style"
    table = ReportTable("t", text, [text], [[text]], [text], {text: text})
    write_table(table, tmp_path / "results" / "<b>")
    write_figure(Figure(), tmp_path / "results" / "<b>", "t")
    write_page(tmp_path / "results", tmp_path / "report.html", title=text)
    html = (tmp_path / "report.html").read_text(encoding="utf-8")
    found = Elements(html)
    assert found.open == []
    assert found.all("script") == found.all("b") == []
    assert found.all("img")[0]["alt"] == f"Picture. {text}. The numbers are in the table above."
    assert html.count("&lt;script&gt;alert(1)&lt;/script&gt;") == 13


def test_a_page_of_one_table_has_a_title_of_its_own(tmp_path: Path) -> None:
    write_table(ReportTable("t", "T", ["F1"], [], [], {}), tmp_path / "scores")
    summary = write_page(tmp_path / "scores", tmp_path / "a.html")
    assert summary == PageSummary(num_tables=1, num_pictures=0, num_failed=0)
    assert str(summary) == "1 table, 0 pictures"
    html = (tmp_path / "a.html").read_text(encoding="utf-8")
    assert "<title>Results: scores</title>" in html
    assert "<details>" not in html
    assert 'class="notes"' not in html
    write_page(tmp_path / "scores", tmp_path / "b.html", title="Ours & theirs")
    html = (tmp_path / "b.html").read_text(encoding="utf-8")
    assert "<h1>Ours &amp; theirs</h1>" in html


def run(*arguments: str) -> None:
    page = Page()
    parser = argparse.ArgumentParser()
    page.add_arguments(parser)
    page.run(parser.parse_args(arguments))


def test_the_subcommand_says_what_it_wrote_and_replaces_a_page_only_if_told(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    write_results(tmp_path / "results")
    arguments = (str(tmp_path / "results"), "-o", str(tmp_path / "a.HTML"), "--title", "Ours")
    run(*arguments)
    assert re.search(
        r"a\.HTML: 2 tables, 3 pictures, 1 cell failed, 0\.\d MB\n$", capsys.readouterr().out
    )
    assert "<h1>Ours</h1>" in (tmp_path / "a.HTML").read_text(encoding="utf-8")
    with pytest.raises(ConfigurationError, match=r"--output: .*a\.HTML exists.*--overwrite"):
        run(*arguments)
    run(*arguments, "--overwrite")


@pytest.mark.parametrize(
    "output, message",
    [
        ("results/weights.csv", r"weights\.csv has the suffix '\.csv', expected \.html"),
        ("report", r"report has the suffix '', expected \.html"),
        ("no/report.html", r"--output: there is no folder .*no to write report\.html in"),
    ],
)
def test_an_output_that_is_none_is_refused(output: str, message: str, tmp_path: Path) -> None:
    write_results(tmp_path / "results")
    before = (tmp_path / "results" / "weights.csv").read_bytes()
    with pytest.raises(ConfigurationError, match=message):
        write_page(tmp_path / "results", tmp_path / output, overwrite=True)
    assert (tmp_path / "results" / "weights.csv").read_bytes() == before


def test_damage_leaves_the_former_page(tmp_path: Path) -> None:
    write_results(tmp_path / "results")
    (tmp_path / "report.html").write_text("before")
    picture = tmp_path / "results" / "ner" / "layers.svg"
    picture.write_text("damaged")
    with pytest.raises(ConfigurationError, match=r"layers\.svg: is not XML"):
        write_page(tmp_path / "results", tmp_path / "report.html", overwrite=True)
    assert (tmp_path / "report.html").read_text() == "before"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report.html", "results"]


@pytest.fixture(scope="module")
def chromium() -> Iterator[HeadlessChromium]:
    program = find_chromium()
    if program is None:
        pytest.skip("no Chromium: install one, or set CHROMIUM to its path")
    with HeadlessChromium(program) as browser:
        yield browser


def contrasts(chromium: HeadlessChromium) -> List[Tuple[float, str]]:
    """WCAG's contrast of each text that is seen with its background, the smallest first."""
    script = """(() => {
        const numbers = (color) => color.match(/[\\d.]+/g).map(Number);
        const luminance = (color) => {
            const [r, g, b] = numbers(color).slice(0, 3).map((value) => {
                const share = value / 255;
                return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
            });
            return 0.2126 * r + 0.7152 * g + 0.0722 * b;
        };
        const ground = (element) => {
            for (; element; element = element.parentElement) {
                const color = getComputedStyle(element).backgroundColor;
                if (numbers(color).length === 3) return color;
            }
        };
        const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
        const found = [];
        while (walker.nextNode()) {
            const text = walker.currentNode.data.trim();
            const element = walker.currentNode.parentElement;
            if (!text || !element.checkVisibility()) continue;
            const values = [getComputedStyle(element).color, ground(element)].map(luminance);
            found.push([(Math.max(...values) + 0.05) / (Math.min(...values) + 0.05), text]);
        }
        return found.sort((one, other) => one[0] - other[0]);
    })()"""
    return [(ratio, text) for ratio, text in chromium.evaluate(script)]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [PHONE_WIDTH, SCREEN_WIDTH])
def test_the_page_fits_its_window_and_wide_tables_scroll_in_their_boxes(
    chromium: HeadlessChromium, page: Path, width: int, scheme: str
) -> None:
    chromium.show(page, width, scheme=scheme)
    chromium.evaluate("document.querySelectorAll('details').forEach(part => part.open = true)")
    # Not beside innerWidth: a phone zooms out from a page that is too wide.
    assert chromium.evaluate("document.documentElement.scrollWidth") == width
    assert chromium.evaluate("innerWidth") == width
    widths = chromium.evaluate(
        "[...document.querySelectorAll('.scroll')].map(box => [box.scrollWidth, box.clientWidth])"
    )
    narrow, wide = widths[:2]
    assert wide[0] > wide[1]
    assert (narrow[0] > narrow[1]) == (width == PHONE_WIDTH)


def test_row_headings_stay_in_view_when_a_table_is_scrolled(
    chromium: HeadlessChromium, page: Path
) -> None:
    chromium.show(page, PHONE_WIDTH)
    place = """(() => {
        const box = document.querySelector('#table-2 .scroll');
        box.scrollLeft = 200;
        return box.querySelector('tbody th').getBoundingClientRect().left
            - box.getBoundingClientRect().left;
    })()"""
    assert 0 <= chromium.evaluate(place) <= 2


def test_a_phone_shrinks_pictures_no_more_than_can_be_read(
    chromium: HeadlessChromium, page: Path
) -> None:
    chromium.show(page, PHONE_WIDTH)
    shares = chromium.evaluate(
        "[...document.images].map(image => image.clientWidth / image.getAttribute('width'))"
    )
    assert len(shares) == 3
    assert min(shares) >= 0.6
    chromium.show(page, SCREEN_WIDTH)
    fits = (
        "[...document.images].every(image => image.clientWidth <= image.parentElement.clientWidth)"
    )
    assert chromium.evaluate(fits)


def test_pictures_are_shown_and_no_address_but_the_page_is_asked_for(
    chromium: HeadlessChromium, page: Path
) -> None:
    chromium.requests.clear()
    chromium.show(page, SCREEN_WIDTH)
    sizes = chromium.evaluate("[...document.images].map(image => image.naturalWidth)")
    assert len(sizes) == 3
    assert min(sizes) > 0
    addresses = [address for address in chromium.requests if not address.startswith("data:")]
    assert addresses == [page.resolve().as_uri()]


def test_the_policy_lets_the_style_be_and_stops_what_is_slipped_in(
    chromium: HeadlessChromium, page: Path
) -> None:
    changed = page.with_name("changed.html")
    slipped_in = "<script>document.title = 'run'</script><style>h1 { color: rgb(1, 2, 3) }</style>"
    html = page.read_text(encoding="utf-8")
    changed.write_text(html.replace("</main>", f"{slipped_in}</main>"), encoding="utf-8")
    chromium.show(changed, SCREEN_WIDTH)
    assert chromium.evaluate("document.title") == "Results: results"
    assert (
        chromium.evaluate("getComputedStyle(document.querySelector('h1')).color") != "rgb(1, 2, 3)"
    )
    assert chromium.evaluate("getComputedStyle(document.body).display") == "grid"


def test_light_and_dark_are_two_pictures_in_which_all_text_can_be_read(
    chromium: HeadlessChromium, page: Path
) -> None:
    grounds, screenshots = {}, {}
    for scheme in ("light", "dark"):
        chromium.show(page, SCREEN_WIDTH, scheme=scheme)
        grounds[scheme] = chromium.evaluate(
            "getComputedStyle(document.documentElement).backgroundColor"
        )
        screenshots[scheme] = chromium.screenshot()
        ratio, text = contrasts(chromium)[0]
        # WCAG 2, level AA.
        assert ratio >= 4.5, f"{scheme}: {text}"
        # A picture's card stays light, as its lines are dark.
        card = "getComputedStyle(document.querySelector('figure .scroll')).backgroundColor"
        assert chromium.evaluate(card) == "rgb(255, 255, 255)"
    brightness = {
        scheme: sum(map(int, re.findall(r"\d+", color))) for scheme, color in grounds.items()
    }
    assert brightness["light"] > 700
    assert brightness["dark"] < 100
    assert screenshots["light"] != screenshots["dark"]
    assert struct.unpack(">II", screenshots["dark"][16:24]) == (SCREEN_WIDTH, 800)


def test_print_is_black_on_white_with_tables_whole_and_settings_open(
    chromium: HeadlessChromium, page: Path
) -> None:
    chromium.show(page, 700, scheme="dark")
    chromium.prefer("dark", media="print")
    assert chromium.evaluate("getComputedStyle(document.documentElement).color") == "rgb(0, 0, 0)"
    ground = "getComputedStyle(document.documentElement).backgroundColor"
    assert chromium.evaluate(ground) == "rgb(255, 255, 255)"
    assert (
        chromium.evaluate("getComputedStyle(document.querySelector('.scroll')).overflowX")
        == "visible"
    )
    assert chromium.evaluate("document.querySelector('dl').checkVisibility()")
    chromium.prefer("dark")
    assert not chromium.evaluate(
        "document.querySelector('dl').checkVisibility({contentVisibilityAuto: true})"
    )
