import base64
import hashlib
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

import pandas
import pytest
from matplotlib.figure import Figure

from elmo_plugin.errors import ConfigurationError
from elmo_plugin.files.figure_file import save_figure
from elmo_plugin.report import page as page_module
from elmo_plugin.report.page import PageOptions, formatted_rows, read_results, write_page
from elmo_plugin.report.tables import Part, ReportTable, write_report

SETTINGS = {"command": "a <b>", "seeds": [1, 2], "versions": {"torch": "2.12.1"}}
# As the version before this one wrote it.
OLD_TABLE = """{
  "name": "old", "title": "Old", "columns": ["ELMo", "dev mean"], "rows": [["none", 0.5], ["all", null]],
  "notes": ["One."], "settings": {"command": "allennlp elmo-report layers"}
}"""


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """Tables in a folder and a sub-folder, with pictures and without, and a training run."""
    folder = tmp_path / "results"
    rows = [["ner", 0.4125, 1.0], ["sst <i>", "failed: out of memory", None]]
    frame = pandas.DataFrame(rows, columns=["task", "layer 1", "gamma"], dtype=object)
    write_report(folder, {"weights": Part("Mix & weights", frame, ["A < b."])}, SETTINGS)
    (folder / "old.json").write_text(OLD_TABLE)
    (folder / "old.csv").write_text("ELMo,dev mean\n")
    frame = pandas.DataFrame([[13370, 13370]], columns=["seed", "x"])
    figure = Figure()
    figure.add_subplot().plot([1, 2, 3])
    parts = {
        "layers-ner": Part("Which layers", frame, [], figure),
        "layers-differences-ner": Part("Differences", frame, []),
    }
    write_report(folder / "ner", parts, {})
    for name in ("layers-ner-curves.png", "layers-nerves.png", "layers-nerves.svg"):
        save_figure(figure, folder / "ner" / name)
    (folder / "runs").mkdir()
    (folder / "runs" / "metrics.json").write_text("{}")
    (folder / ".hidden.json").write_text("{")
    (folder / ".hidden.csv").touch()
    return folder


def write(results: Path, name: str = "page.html", **changes: Any) -> str:
    output = results.parent / name
    report = write_page(PageOptions(folder=str(results), output=str(output), **changes))
    assert report.files == [output]
    return output.read_text(encoding="utf-8")


class Elements(HTMLParser):
    """The start tags of a page, in order; all that must be closed is."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: List[Tuple[str, Dict[str, Optional[str]]]] = []
        self.open: List[str] = []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attributes: List[Tuple[str, Optional[str]]]) -> None:
        self.found.append((tag, dict(attributes)))
        if tag not in ("meta", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def all(self, tag: str, attribute: str) -> List[Optional[str]]:
        return [attributes.get(attribute) for name, attributes in self.found if name == tag]


def test_every_table_has_a_section_with_its_pictures(results: Path) -> None:
    sections, others = read_results(results)
    assert [section.name for section in sections] == [
        *("old", "weights", "ner/layers-ner", "ner/layers-differences-ner")
    ]
    assert [section.folder for section in sections] == ["", "", "ner", "ner"]
    captions = [[picture.caption for picture in section.pictures] for section in sections]
    assert captions == [[], [], ["Which layers", "Which layers: curves"], []]
    assert [picture.caption for picture in others] == ["ner/layers-nerves"]
    assert sections[0].table.rows == [["none", 0.5], ["all", None]]
    assert sections[1].num_failed == 1
    expected = {"command": "a <b>", "seeds": "[1, 2]", "versions.torch": "2.12.1"}
    assert sections[1].settings == expected


def test_further_tables_of_a_report_come_after_its_scores(tmp_path: Path) -> None:
    part = Part("T", pandas.DataFrame([[1]], columns=["x"]), [])
    names = ["shares-epochs-ner", "shares-differences-ner", "shares-ner", "layers-ner"]
    write_report(tmp_path, dict.fromkeys(names, part), {})
    sections, _ = read_results(tmp_path)
    assert [section.name for section in sections] == names[3:1:-1] + names[1::-1]


def test_the_page_needs_nothing_else(results: Path) -> None:
    html = write(results)
    elements = Elements(html)
    images = elements.all("img", "src")
    types = [(source or "").partition(";")[0] for source in images]
    assert types == ["data:image/svg+xml", "data:image/png", "data:image/svg+xml"]
    png = base64.b64decode((images[1] or "").partition(",")[2])
    assert png == (results / "ner" / "layers-ner-curves.png").read_bytes()
    links = [link or "" for link in elements.all("a", "href")]
    anchors = [link[1:] for link in links if link.startswith("#")]
    assert anchors == ["table-1", "table-2", "table-3", "table-4", "other-pictures"]
    assert set(anchors) <= set(elements.all("section", "id"))
    assert all(link.startswith("data:text/csv;base64,") for link in links if link[0] != "#")
    assert not re.search(r"https?://|<script|url\(", html)


def test_only_the_style_sheet_of_the_page_is_allowed(results: Path) -> None:
    html = write(results)
    style = html.partition("<style>")[2].partition("</style>")[0]
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert f"style-src 'sha256-{digest}'" in html
    assert "default-src 'none'" in html and " style=" not in html


def test_text_is_escaped_and_failures_are_marked(results: Path) -> None:
    html = write(results, title="A & B")
    assert "<title>A &amp; B</title>" in html
    assert "sst &lt;i&gt;" in html and "<p>A &lt; b.</p>" in html and "a &lt;b&gt;" in html
    assert '<td class="number failed">failed: out of memory</td>' in html
    assert "Cells of failed runs: 1." in html
    assert "<title>Results: results</title>" in write(results, "other.html")


def test_numbers_of_a_column_have_as_many_decimals() -> None:
    columns = ["label", "mixed", "score", "seeds", "count"]
    rows: List[List[Any]] = [
        ["a", 1.5, -0.5, 13370, 13370],
        ["b", "text", 12.25, 1, None],
        ["c", None, "failed", None, 5],
    ]
    cells = formatted_rows(ReportTable("x", "X", columns, rows, [], {}))
    assert [[cell.text for cell in row] for row in cells] == [
        ["a", "1.5", "−0.50", "13370", "13,370"],
        ["b", "text", "12.25", "1", "–"],
        ["c", "–", "failed", "–", "5"],
    ]
    assert [cell.style for cell in cells[0]] == ["", "", "number", "number", "number"]
    assert cells[2][2].style == "number failed" and cells[2][1].style == "empty"
    assert formatted_rows(ReportTable("x", "X", columns, [], [], {})) == []


def test_of_a_large_svg_the_pixels_are_embedded(
    results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_module, "MAX_SVG_BYTES", 100)
    uris = [picture.uri[:15] for picture in read_results(results)[0][2].pictures]
    assert uris == ["data:image/png;"] * 2


class TestBadInput:
    def test_the_output(self, results: Path) -> None:
        with pytest.raises(
            ConfigurationError, match=r"--output: found .*page\.pdf, expected a name"
        ):
            write(results, "page.pdf")
        write(results)
        with pytest.raises(ConfigurationError, match="exists, expected a new path"):
            write(results)
        assert "New" in write(results, title="New", overwrite=True)

    def test_a_folder_without_tables(self, tmp_path: Path) -> None:
        with pytest.raises(
            ConfigurationError, match=r"found no folder .*none, expected the output"
        ):
            write(tmp_path / "none")
        (tmp_path / "empty").mkdir()
        with pytest.raises(
            ConfigurationError, match=r"found no table in .*empty or its sub-folders"
        ):
            write(tmp_path / "empty")

    def test_a_damaged_table_leaves_the_page_as_it_was(self, results: Path) -> None:
        before = write(results)
        (results / "weights.json").write_text("{")
        with pytest.raises(ConfigurationError, match=r"weights\.json: found no table"):
            write(results, overwrite=True)
        assert (results.parent / "page.html").read_text() == before
