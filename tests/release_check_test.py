"""What `scripts/release_check.py` checks."""

from pathlib import Path

import pytest

from elmo_plugin import __version__
from scripts import release_check

ARCHIVES = [f"elmo_plugin-{__version__}-py3-none-manylinux_2_28_x86_64.whl"]
ARCHIVES += [f"elmo_plugin-{__version__}-py3-none-any.whl", f"elmo_plugin-{__version__}.tar.gz"]


def test_it_runs_the_part_of_the_page_that_needs_no_allennlp() -> None:
    script, printed = release_check.core_of_start_page()
    assert "elmo embed sentences.txt" in script
    assert "ElmoEmbedder" in script
    assert "predict" not in script
    assert printed.startswith("opened, performed: ")


def test_a_missing_archive_is_named(tmp_path: Path) -> None:
    (tmp_path / ARCHIVES[1]).touch()
    with pytest.raises(
        SystemExit, match=r"has 0 files \*_x86_64.whl, expected one. Run `make wheels`"
    ):
        release_check.archives_for("x86_64", tmp_path)
    for name in ARCHIVES:
        (tmp_path / name).touch()
    found = release_check.archives_for("x86_64", tmp_path)
    assert [path.name for path in found] == ARCHIVES
