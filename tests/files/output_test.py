"""Outputs are checked before the work that makes them, and appear complete or not at all."""

import os
from pathlib import Path

import pytest

from elmo_plugin.errors import ConfigurationError
from elmo_plugin.files.output import check_output_file, check_output_folder, replaced_file


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("folder").mkdir()
    Path("file").write_text("previous")


@pytest.mark.parametrize(
    "check, path, message",
    [
        (check_output_file, "folder", "output: folder is a folder, expected a file"),
        (check_output_file, "file", "output: file exists, .* or --overwrite to replace it"),
        (check_output_file, "no/file", "output: there is no folder no to write file in"),
        (check_output_file, "a\0b", r"output: 'a\\x00b' has a null character"),
        (check_output_folder, "file", "output: file is a file, expected a new folder"),
        (check_output_folder, "folder", "output: folder exists, expected a new path"),
    ],
)
def test_other_paths_are_named(check, path: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        check(path, False)


def test_a_replaced_file_has_the_new_content_and_ordinary_permissions() -> None:
    with replaced_file("file") as new_file:
        new_file.write_text("new")
        assert Path("file").read_text() == "previous"
    assert Path("file").read_text() == "new"
    Path("plain").touch()
    assert Path("file").stat().st_mode == Path("plain").stat().st_mode


def test_an_error_leaves_the_previous_file_and_nothing_else() -> None:
    before = sorted(os.listdir())
    with pytest.raises(KeyboardInterrupt), replaced_file("file") as new_file:
        new_file.write_text("half")
        raise KeyboardInterrupt
    assert Path("file").read_text() == "previous"
    assert sorted(os.listdir()) == before
