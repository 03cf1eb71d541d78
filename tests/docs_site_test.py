"""`make docs` builds the site without warnings, and its pages fetch nothing from other hosts."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Dict

import pytest

from elmo_plugin.commands.main import COMMANDS
from tests.conftest import REPOSITORY

# A browser fetches what elements and styles name. Links (`a`) are followed by readers only.
FETCHED = re.compile(
    r"""<(?!a\s)[^<>]*\s(?:src|href|srcset|data)=["']([^"']+)|(?:url\(|@import )["']?([^"')]+)"""
)


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
    styles = {str(path): path.read_text(encoding="utf-8") for path in site.rglob("*.css")}
    assert styles
    for name, content in {**pages, **styles}.items():
        addresses = ["".join(groups) for groups in FETCHED.findall(content)]
        assert not [one for one in addresses if re.match(r"(https?:)?//", one)], name


def test_every_page_is_in_the_navigation(pages: Dict[str, str]) -> None:
    expected = {
        path.relative_to(REPOSITORY / "docs").with_suffix("")
        for path in (REPOSITORY / "docs").rglob("*.md")
    }
    navigation = re.findall(r'<a href="([^"]+)" class="md-nav__link', pages["index.html"])
    found = {Path(address.strip("/")) for address in navigation if not address.startswith("#")}
    assert expected - {Path("index")} <= found


def test_pages_of_the_root_are_there_with_their_pictures(site: Path, pages: Dict[str, str]) -> None:
    heading = (REPOSITORY / "RESULTS.md").read_text(encoding="utf-8").partition("\n")[0]
    assert f">{heading.removeprefix('# ')}" in pages["results/index.html"]
    picture = re.search(r'<img [^>]*src="([^"]*vectors-ner.png)"', pages["results/index.html"])
    assert picture
    assert (site / "results" / picture[1]).exists()
    assert (
        '<svg xmlns="http://www.w3.org/2000/svg" class="elmo-drawing"'
        in (pages["concepts/index.html"])
    )


def test_docstrings_become_definitions(pages: Dict[str, str]) -> None:
    page = pages["reference/core/index.html"]
    expected = (
        "<dt><code>num_output_representations</code> : <code>int</code>, "
        "optional (default = <code>1</code>)</dt>"
    )
    assert expected in page
    # Names without a type, in more than one line.
    assert "do_layer_norm, dropout, requires_grad" in pages["reference/modules/index.html"]
    for name, html in pages.items():
        if name.startswith("reference"):
            assert "# Parameters" not in html, name
            assert not re.search(r"[^>]\s*<strong>(Parameters|Returns|Raises)", html), name
            assert not re.search(r"<p>\w+ : <code>", html), name


def test_help_of_all_commands_is_there(pages: Dict[str, str]) -> None:
    page = pages["reference/commands/index.html"]
    for name in COMMANDS:
        assert f"usage: elmo {name}" in page
