"""Where commands run, and models that they must not load."""

from pathlib import Path
from typing import Any

import pytest

from elmo_plugin.commands import embed, neighbors


@pytest.fixture
def folder(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where commands run, with the module's `LINES` in `in.txt`."""
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "in.txt").write_text("\n".join(request.module.LINES) + "\n", encoding="utf-8")
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def nothing_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets tests fail that load a model."""

    def load(*args: Any, **arguments: Any) -> None:
        raise AssertionError("a model was loaded")

    monkeypatch.setattr(embed, "ElmoEmbedder", load)
    monkeypatch.setattr(neighbors, "ElmoEmbedder", load)
