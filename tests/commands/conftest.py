"""Where commands run."""

from pathlib import Path

import pytest


@pytest.fixture
def folder(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where commands run, with the module's `LINES` in `in.txt`."""
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "in.txt").write_text("\n".join(request.module.LINES) + "\n", encoding="utf-8")
    monkeypatch.chdir(folder)
    return folder
