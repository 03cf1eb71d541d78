"""The folder of an unfinished output: checks, parts, and when it is removed."""

import os
from pathlib import Path
from typing import Any, Callable

import numpy
import pytest

from elmo_plugin.embedding.formats import NpyFormat
from elmo_plugin.embedding.partial_output import PartialOutput
from elmo_plugin.embedding.parts import Block
from elmo_plugin.embedding.sentences import Sentence
from elmo_plugin.errors import ConfigurationError

SETTINGS = {"layers": "top", "shape": (3, 4)}
FORMAT = NpyFormat((3,), "float32")


@pytest.fixture
def partial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PartialOutput:
    monkeypatch.chdir(tmp_path)
    return PartialOutput("out")


def begin(partial: PartialOutput, may_replace: bool = False, num_parts: int = 1) -> None:
    with partial.locked():
        partial.begin(SETTINGS, may_replace)
        folder = partial.new_parts_folder()
        for number in reversed(range(num_parts)):
            block = Block(0, "in.txt", [Sentence(number, "a", ["a"])])
            assert folder.write(block, [numpy.ones((1, 3), "float32")], FORMAT) == block.part


def test_parts_are_listed_in_order_and_leftovers_are_removed(partial: PartialOutput) -> None:
    begin(partial, num_parts=12)
    folder = partial.parts_folder
    for name in (".part-00000-0000000099.arrays.abcd", "part-00000-0000000099.arrays", "x.json"):
        (folder.path / "data" / name).write_text("not finished")
    (folder.path / "descriptions" / ".part-00000-0000000099.arrays.json.abcd").touch()
    parts = folder.parts()
    assert [part.first_line for part in parts] == list(range(12))
    folder.remove_leftovers()
    assert sorted((folder.path / "data").iterdir()) == list(parts.values())
    assert folder.num_parts == 12


def test_a_run_that_left_no_part_can_be_replaced(partial: PartialOutput) -> None:
    partial.check(overwrite=False, resume=False)
    begin(partial, num_parts=0)
    partial.check(overwrite=False, resume=False)


def test_a_worker_of_a_previous_run_cannot_write(partial: PartialOutput) -> None:
    begin(partial)
    previous = partial.parts_folder
    with partial.locked():
        resumed = partial.new_parts_folder()
    assert not previous.path.exists() and partial.parts_folder == resumed
    assert partial.parts_folder.num_parts == 1
    with pytest.raises(OSError):
        previous.write(Block(0, "in.txt", [Sentence(0, "a", ["a"])]), [], FORMAT)
    begin(partial, num_parts=2)
    assert not resumed.path.exists() and partial.parts_folder.num_parts == 2


def test_a_folder_of_another_program_is_never_removed(partial: PartialOutput) -> None:
    partial.folder.mkdir()
    (partial.folder / "photo.png").touch()
    for overwrite in (False, True):
        with pytest.raises(ConfigurationError, match=r"out\.partial was not made by this command"):
            partial.check(overwrite=overwrite, resume=False)


@pytest.mark.parametrize("content", [b"{", b"[]", b"{}", b'{"settings": []}', b"\xff"])
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
    def test_only_the_output_that_may_be_replaced_is_replaced(
        self, partial: PartialOutput, make: Callable[[Path], Any]
    ) -> None:
        make(Path("out"))
        begin(partial, may_replace=True)
        assert partial.may_replace
        os.rename("out", "moved")
        assert partial.may_replace
        make(Path("out"))
        assert not partial.may_replace
        (partial.folder / "product").write_text("new")
        with pytest.raises(ConfigurationError, match="written by another program during"):
            partial.publish(partial.folder / "product")
        os.rename("out", "foreign")
        os.rename("moved", "out")
        partial.publish(partial.folder / "product")
        assert sorted(os.listdir()) == ["foreign", "out"] and Path("out").read_text() == "new"
