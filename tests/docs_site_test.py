"""`make docs` builds the site without warnings, and its pages fetch nothing from other hosts."""

import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Dict, List, Optional, Tuple

import pytest

REPOSITORY = Path(__file__).parents[1]

# Of elements that a browser fetches when it opens a page. Links (`a`) are followed by readers only.
FETCHED = {
    "audio": "src",
    "embed": "src",
    "iframe": "src",
    "image": "href",
    "img": "src",
    "link": "href",
    "object": "data",
    "script": "src",
    "source": "src",
    "use": "href",
    "video": "src",
}


class FetchedAddresses(HTMLParser):
    """Collects what a browser fetches for a page, and the text of its scripts and styles."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.addresses: List[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: List[Tuple[str, Optional[str]]]) -> None:
        values = dict(attrs)
        self.addresses += [values.get(FETCHED.get(tag, "")) or "", *_in_styles(values.get("style"))]
        self.addresses += (values.get("srcset") or "").split()


def _in_styles(style: Optional[str]) -> List[str]:
    return re.findall(r"""(?:url\(|@import )['"]?([^'")]+)""", style or "")


def is_of_another_host(address: str) -> bool:
    return re.match(r"(\w+:)?//", address) is not None


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("mkdocs")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "--quiet", "build", "--strict", "-d", str(folder)]
    result = subprocess.run(
        command,
        cwd=REPOSITORY,
        env={"PATH": "", "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> Dict[str, str]:
    return {
        str(path.relative_to(site)): path.read_text(encoding="utf-8")
        for path in site.rglob("*.html")
    }


def test_no_page_fetches_from_another_host(site: Path, pages: Dict[str, str]) -> None:
    fetched = {
        name: [address for address in FetchedAddresses(html).addresses if address]
        for name, html in pages.items()
    }
    assert all(fetched.values())
    styles = {
        str(path): _in_styles(path.read_text(encoding="utf-8")) for path in site.rglob("*.css")
    }
    for name, addresses in {**fetched, **styles}.items():
        assert not list(filter(is_of_another_host, addresses)), name


@pytest.mark.parametrize(
    "html",
    [
        '<script src="https://cdn.example/x.js"></script>',
        '<link rel="stylesheet" href="//fonts.example/css">',
        '<img src="http://example/x.png">',
        '<div style="background: url(https://example/x.png)">',
    ],
)
def test_other_hosts_are_found(html: str) -> None:
    assert any(map(is_of_another_host, FetchedAddresses(html).addresses))


def test_every_page_is_in_the_navigation(site: Path, pages: Dict[str, str]) -> None:
    expected = {
        path.relative_to(REPOSITORY / "docs").with_suffix("")
        for path in (REPOSITORY / "docs").rglob("*.md")
    }
    navigation = re.findall(r'<a href="([^"]+)" class="md-nav__link', pages["index.html"])
    found = {Path(address.strip("/")) for address in navigation if not address.startswith("#")}
    assert expected - {Path("index")} <= found


def test_pages_of_the_root_are_there_with_their_pictures(site: Path, pages: Dict[str, str]) -> None:
    for name, file in (("performance", "PERFORMANCE.md"), ("results", "RESULTS.md")):
        heading = (REPOSITORY / file).read_text(encoding="utf-8").partition("\n")[0]
        assert f">{heading.removeprefix('# ')}" in pages[f"{name}/index.html"]
    picture = re.search(r'<img [^>]*src="([^"]*wsd.png)"', pages["results/index.html"])
    assert picture
    assert (site / "results" / picture[1]).exists()


def test_the_drawing_is_part_of_its_page(pages: Dict[str, str]) -> None:
    assert (
        '<svg xmlns="http://www.w3.org/2000/svg" class="elmo-drawing"'
        in pages["concepts/index.html"]
    )


def test_docstrings_become_definitions(pages: Dict[str, str]) -> None:
    page = pages["reference/core/index.html"]
    assert "<dt><code>num_output_representations</code> : <code>int</code></dt>" in page
    # Names without a type, in more than one line.
    assert "do_layer_norm, dropout, requires_grad" in pages["reference/modules/index.html"]
    for name, html in pages.items():
        if name.startswith("reference"):
            assert "# Parameters" not in html, name
            assert not re.search(r"[^>]\s*<strong>(Parameters|Returns|Raises)", html), name
            assert not re.search(r"<p>\w+ : <code>", html), name


def test_help_of_all_commands_is_there(pages: Dict[str, str]) -> None:
    from elmo_plugin.commands.main import COMMANDS

    page = pages["reference/commands/index.html"]
    for name in COMMANDS:
        assert f"usage: elmo {name}" in page
