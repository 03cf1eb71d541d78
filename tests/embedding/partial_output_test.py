"""The folder of an unfinished output: checks, and when it is removed."""

import os
from pathlib import Path
from typing import Any, Callable

import pytest

from elmo_plugin.embedding.partial_output import PartialOutput
from elmo_plugin.embedding.parts import PartsFolder
from elmo_plugin.errors import ConfigurationError
from tests.embedding.parts_test import write


@pytest.fixture
def partial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PartialOutput:
    monkeypatch.chdir(tmp_path)
    return PartialOutput("out")


def begin(partial: PartialOutput, overwrite: bool = False, num_parts: int = 1) -> PartsFolder:
    with partial.locked():
        partial.begin({"layers": "top"}, overwrite)
        folder = partial.renamed_parts_folder()
    for number in range(num_parts):
        write(folder, number)
    return folder


def test_a_run_that_left_no_part_can_be_replaced(partial: PartialOutput) -> None:
    partial.check(overwrite=False, resume=False)
    begin(partial, num_parts=0)
    partial.check(overwrite=False, resume=False)


def test_a_worker_of_a_previous_run_cannot_write(partial: PartialOutput) -> None:
    previous = begin(partial)
    resumed = partial.renamed_parts_folder()
    assert not previous.path.exists() and partial.parts_folder == resumed
    assert resumed.num_parts == 1
    with pytest.raises(FileNotFoundError):
        write(previous, 0)
    begin(partial, num_parts=2)
    assert not resumed.path.exists() and partial.parts_folder.num_parts == 2


def test_a_folder_of_another_program_is_never_removed(partial: PartialOutput) -> None:
    partial.folder.mkdir()
    (partial.folder / "photo.png").touch()
    for overwrite in (False, True):
        with pytest.raises(ConfigurationError, match=r"out\.partial was not made by this command"):
            partial.check(overwrite=overwrite, resume=False)


@pytest.mark.parametrize("content", [b"{", b"[]", b"{}", b'{"settings": 1}', b"\xff"])
def test_damaged_settings_are_an_error(partial: PartialOutput, content: bytes) -> None:
    begin(partial)
    (partial.folder / "run.json").write_bytes(content)
    with pytest.raises(ConfigurationError, match=r"run\.json: cannot be read.*--overwrite"):
        partial.check(overwrite=False, resume=True)
    partial.check(overwrite=True, resume=False)


class TestPublish:
    def test_the_output_is_moved_and_the_folder_removed(self, partial: PartialOutput) -> None:
        begin(partial)
        (partial.folder / "product").write_text("new")
        partial.publish(partial.folder / "product")
        assert os.listdir() == ["out"] and Path("out").read_text() == "new"

    @pytest.mark.parametrize("make", [Path.mkdir, Path.touch])
    def test_an_output_is_replaced_only_if_the_run_began_so(
        self, partial: PartialOutput, make: Callable[[Path], Any]
    ) -> None:
        make(Path("out"))
        for overwrite in (False, True):
            begin(partial, overwrite)
            (partial.folder / "product").write_text("new")
            assert partial.may_replace == overwrite
            if overwrite:
                partial.publish(partial.folder / "product")
            else:
                with pytest.raises(ConfigurationError, match="written by another program during"):
                    partial.publish(partial.folder / "product")
        assert os.listdir() == ["out"] and Path("out").read_text() == "new"
