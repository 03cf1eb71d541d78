"""Where commands run, and how they fail."""

from pathlib import Path
from typing import Any, Sequence

import pytest

from elmo_plugin.commands.main import main


def error_of_command(words: Sequence[str], capsys: Any, status: int = 2) -> str:
    """Return what `elmo` writes to standard error before it ends with this status."""
    with pytest.raises(SystemExit) as caught:
        main([*words])
    assert caught.value.code == status
    return str(capsys.readouterr().err)


@pytest.fixture
def folder(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where commands run, with the module's `LINES` in `in.txt`."""
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "in.txt").write_text("\n".join(request.module.LINES) + "\n", encoding="utf-8")
    monkeypatch.chdir(folder)
    return folder
