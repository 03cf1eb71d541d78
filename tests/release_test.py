"""Several files of a release agree: on its version, its licenses, and the commands that check it."""

import re
from pathlib import Path
from typing import Any, Dict, List

import pytest
import yaml

from elmo_plugin import __version__
from tests.conftest import FIXTURES, REPOSITORY

PRETRAINED = REPOSITORY / "elmo_plugin" / "pretrained"

# The license of files as texts write it, and its SPDX identifier.
LICENSES = {"Apache-2.0": "Apache-2.0", "CC BY-SA 4.0": "CC-BY-SA-4.0", "CC BY 4.0": "CC-BY-4.0"}


def read(name: str) -> str:
    return (REPOSITORY / name).read_text(encoding="utf-8")


def makefile_targets() -> List[str]:
    return re.findall(r"^([a-z-]+):", read("Makefile"), flags=re.MULTILINE)


def license_rows() -> Dict[str, str]:
    """The table of LICENSES.md: files to license."""
    rows = [line.strip("|").split("|") for line in read("LICENSES.md").splitlines() if "|" in line]
    return {
        files.strip(): re.sub(r"\[(.+)\]\(.+\)", r"\1", license.strip())
        for files, license, _ in rows[2:]
    }


def test_the_citation_and_the_changelog_have_this_version() -> None:
    assert yaml.safe_load(read("CITATION.cff"))["version"] == __version__
    versions = re.findall(r"^## (.+)$", read("CHANGELOG.md"), flags=re.MULTILINE)
    assert versions[0] == __version__


def test_the_changelog_names_each_model_that_comes_with_the_package() -> None:
    changelog = read("CHANGELOG.md")
    assert [path.name for path in PRETRAINED.iterdir() if f"`{path.name}`" not in changelog] == []


def test_the_metadata_has_the_licenses_of_all_files() -> None:
    expression = re.search(r'^license = "(.+)"$', read("pyproject.toml"), flags=re.MULTILINE)
    assert expression is not None
    assert set(expression[1].split(" AND ")) == {LICENSES[name] for name in license_rows().values()}
    assert yaml.safe_load(read("CITATION.cff"))["license"] in expression[1]


@pytest.mark.parametrize("folder", sorted(PRETRAINED.iterdir()), ids=lambda folder: folder.name)
def test_a_card_names_the_license_that_licenses_md_has(folder: Path) -> None:
    front_matter = (folder / "README.md").read_text(encoding="utf-8").split("---\n")[1]
    (row,) = [
        name for files, name in license_rows().items() if "`elmo_plugin/pretrained/`" in files
    ]
    assert yaml.safe_load(front_matter)["license"] == LICENSES[row].lower()


def test_a_readme_of_each_fixture_names_the_license_that_licenses_md_has() -> None:
    rows = license_rows()
    cards = {path.parent: path.read_text("utf-8") for path in FIXTURES.rglob("README.md")}
    for file in FIXTURES.rglob("*"):
        if file.is_dir() or "__pycache__" in file.parts:
            continue
        (card, *_) = [folder for folder in file.parents if folder in cards] or [file]
        assert card in cards, f"{file}: no README.md beside or above it names its license"
        row = f"`{card.relative_to(REPOSITORY).as_posix()}/`"
        assert rows.get(row, rows["other `fixtures/`"]) in cards[card], card


def test_the_workflow_runs_commands_of_the_makefile() -> None:
    workflow: Dict[str, Any] = yaml.safe_load(read(".github/workflows/checks.yml"))
    steps = [step for job in workflow["jobs"].values() for step in job["steps"]]
    for command in [step["run"] for step in steps if "run" in step]:
        program, *words = command.split()
        assert program == ".ci/run" or (program == "make" and words[0] in makefile_targets()), (
            command
        )
    for line in read(".ci/run").splitlines():
        if line.startswith("make "):
            assert line.split()[1] in makefile_targets(), line
    for step in steps:
        if step.get("uses", "").startswith("actions/setup-python@"):
            assert step["with"]["cache"] == "pip"


def test_contributing_lists_the_targets_of_the_makefile() -> None:
    missing = [name for name in makefile_targets() if f"make {name}" not in read("CONTRIBUTING.md")]
    assert missing == ["help", "demo", "clean"]


def test_each_exception_of_the_audit_has_a_reason() -> None:
    for line in read("audit-exceptions.txt").splitlines():
        assert re.fullmatch(r"#.*|[A-Z]+-[\w-]+ +# .{20,}", line), line
