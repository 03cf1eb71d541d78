"""`elmo export` with a program as output. Exports of archives are tested in tests/pretraining."""

from pathlib import Path
from typing import Any

import pytest

from elmo_plugin.bilm.model_files import PRETRAINED_FOLDER
from elmo_plugin.commands import export
from elmo_plugin.commands.main import main
from tests.commands.conftest import error_of_command


def test_the_name_of_a_program_says_the_format(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    exported = []
    monkeypatch.setattr(export, "export_program", lambda *arguments: exported.append(arguments))
    output = tmp_path / "mini.pt2"
    main(["export", "--model", "elmo_mini", str(output)])
    assert capsys.readouterr().out == f"{output}\n"
    ((bilm, file),) = exported
    assert (file, bilm.get_output_dim(), bilm.is_frozen) == (str(output), 256, True)

    output.touch()
    error = error_of_command(["export", "--model", "elmo_mini", str(output)], capsys)
    assert "mini.pt2 exists, expected a new path" in error
    options, weights = (
        str(PRETRAINED_FOLDER / "elmo_mini" / name) for name in ("options.json", "weights.hdf5")
    )
    files = ["--options-file", options, "--weight-file", weights]
    main(["export", *files, str(output), "--overwrite"])
    assert len(exported) == 2
