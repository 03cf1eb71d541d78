"""Outputs are checked before the work that makes them, and appear complete or not at all."""

import contextlib
import errno
import gzip
import itertools
import os
import sys
from pathlib import Path
from typing import Any, List

import pytest

from elmo_plugin.errors import ConfigurationError
from elmo_plugin.files.output import (
    check_output_file,
    check_output_folder,
    opened_output,
    remove_partial_files,
    replaced_file,
    replaced_files,
)
from elmo_plugin.files.text import open_text


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
        (check_output_file, os.fsdecode(b"\xff"), r"output: '\\udcff' is not UTF-8"),
        (check_output_file, "-", "output: found -, standard output, expected the path"),
        (check_output_folder, "-", "output: found -, standard output, expected the path"),
        (check_output_file, os.devnull, "is a device or a pipe, which cannot be replaced"),
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
    os.symlink("file", "link")
    with replaced_file("link") as new_file:
        new_file.write_text("newer")
    assert Path("link").is_symlink() and Path("file").read_text() == "newer"


def test_a_compressed_text_can_be_read_again() -> None:
    for name in ("text", "text.gz"):
        with opened_output(name) as file:
            file.write("é\n")
        with open_text(name) as written:
            assert written.read() == "é\n".encode()
    assert gzip.decompress(Path("text.gz").read_bytes()) == Path("text").read_bytes()
    with opened_output("again.gz") as file:
        file.write("é\n")
    # Neither the time nor a name is in it.
    assert Path("again.gz").read_bytes() == Path("text.gz").read_bytes()


def test_a_closed_standard_output_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    with pytest.raises(ConfigurationError, match="Standard output is closed"), opened_output("-"):
        pass


def test_an_error_leaves_the_previous_file_and_nothing_else() -> None:
    before = sorted(os.listdir())
    with pytest.raises(KeyboardInterrupt), replaced_file("file") as new_file:
        new_file.write_text("half")
        raise KeyboardInterrupt
    assert Path("file").read_text() == "previous"
    assert sorted(os.listdir()) == before


def test_a_failed_write_names_the_file() -> None:
    with pytest.raises(OSError, match="No space left") as raised, replaced_file("file"):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert raised.value.filename == "file"
    with pytest.raises(OSError, match="Input") as raised, replaced_file("file"):
        raise OSError(errno.EIO, "Input/output error")  # perhaps of what is read
    assert raised.value.filename is None


def test_what_a_killed_process_leaves_can_be_removed() -> None:
    Path(".hidden").touch()
    before = sorted(os.listdir())
    with contextlib.suppress(FileNotFoundError), replaced_file("file") as new_file:
        new_file.write_text("half")
        remove_partial_files(".")
    assert sorted(os.listdir()) == before
    assert Path("file").read_text() == "previous"


def test_files_are_synced_before_they_get_their_names(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: List[str] = []

    def recorded(name: str) -> Any:
        function = getattr(os, name)

        def call(*arguments: Any) -> Any:
            calls.append(name)
            return function(*arguments)

        return call

    for name in ("fsync", "replace"):
        monkeypatch.setattr(os, name, recorded(name))
    with replaced_file("file") as new_file:
        new_file.write_text("new")
    assert calls == ["fsync", "replace"]
    calls.clear()
    with replaced_files("file", "other") as new_files:
        for path in new_files:
            path.write_text("newer")
    assert calls == ["fsync", "fsync", "replace", "replace"]


@pytest.mark.parametrize("number", [1, 2, 3])
@pytest.mark.parametrize("is_done", [False, True], ids=["before", "after"])
def test_files_that_belong_together_are_never_mixed(
    is_done: bool, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After an interrupt before or after the last one is put aside, or one of the two is replaced."""
    Path("last").write_text("previous")
    calls, replace = itertools.count(1), os.replace

    def interrupted(*arguments: Any) -> None:
        is_interrupted = next(calls) == number
        if is_done or not is_interrupted:
            replace(*arguments)
        if is_interrupted:
            raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt), replaced_files("file", "last") as new_files:
        for path in new_files:
            path.write_text("new")
    contents = {path: Path(path).read_text() for path in os.listdir() if path != "folder"}
    previous = {"file": "previous", "last": "previous"}
    # After none, one, two and three of these steps.
    expected = [previous, previous, {"file": "new"}, {"file": "new", "last": "new"}]
    assert contents == expected[number if is_done else number - 1]
