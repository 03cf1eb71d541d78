"""What README.md and CONTRIBUTING.md show works as it stands there."""

import os
import re
import sys
from pathlib import Path
from typing import Any, Dict

import pytest

from tests.conftest import REPOSITORY, run_program
from tests.markdown_blocks import code_blocks

README = (REPOSITORY / "README.md").read_text(encoding="utf-8")


def test_the_python_snippets_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: Dict[str, Any] = {}
    for snippet in code_blocks(README, "python"):
        exec(snippet.text, names)
    shape = tuple(names["result"]["elmo_representations"][0].shape)
    assert re.search(
        rf'\["elmo_representations"\]\[0\]\.shape +# {re.escape(str(shape))}: ', README
    )
    tagged = names["predictor"].predict("Maria Lopez visited Oxford.")["tagged"]
    assert f'["tagged"]  # {tagged}\n' in README


def test_the_console_shows_what_the_commands_print(tmp_path: Path) -> None:
    (console,) = code_blocks(README, "console")
    commands = re.findall(r"^\$ (.+)$", console.text, re.MULTILINE)
    path = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])
    result = run_program("bash", "-euc", "\n".join(commands), cwd=tmp_path, PATH=path)
    assert result.returncode == 0, result.stderr
    shown = "".join(re.findall(r"^(?!\$ ).*\n", console.text, re.MULTILINE))
    assert result.stdout == shown


def test_the_site_has_the_groups_of_the_readme_in_its_order() -> None:
    """Only there: the pages in folders, below results and performance."""
    rows = re.findall(r"^\| (\w[^|]*) \| (\[.+) \|$", README, re.MULTILINE)
    assert len(rows) >= 5
    navigation = (REPOSITORY / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]
    groups = re.findall(r"^  - (.+):\n((?: {6}- .+\n)+)", navigation, re.MULTILINE)
    for (title, row), (group, lines) in zip(rows, groups[: len(rows)], strict=True):
        linked = [page.lower().removeprefix("docs/") for page in re.findall(r"\]\(([^)]+)\)", row)]
        pages = [page for page in re.findall(r"- (.+)", lines) if "/" not in page]
        assert (group, pages) == (title, linked)


def test_make_targets_exist() -> None:
    makefile = (REPOSITORY / "Makefile").read_text()
    for target in set(re.findall(r"`?make ([a-z-]+)", README)):
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE), target


def test_the_walks_of_contributing_name_what_is_there() -> None:
    """Each file, and behind it what is defined in it."""
    text = (REPOSITORY / "CONTRIBUTING.md").read_text(encoding="utf-8")
    places = re.findall(r"\]\((elmo_plugin/[\w/]+\.py)\)((?:,? `\w+`)+)", text.replace("\n  ", " "))
    assert len(places) >= 25
    for file, names in places:
        source = (REPOSITORY / file).read_text(encoding="utf-8")
        for name in re.findall(r"\w+", names):
            defined = re.search(rf"^ *(def|class) {name}\b|^{name} = ", source, re.MULTILINE)
            assert defined, f"{file}: {name}"
