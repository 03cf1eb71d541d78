"""The folder of an unfinished output: checks, parts, and when it is removed."""

import os
from pathlib import Path

import pytest

from elmo_plugin.embedding.partial_output import PartialOutput
from elmo_plugin.embedding.parts import Part
from elmo_plugin.errors import ConfigurationError

SETTINGS = {"layers": "top", "shape": (3, 4)}


@pytest.fixture
def partial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PartialOutput:
    monkeypatch.chdir(tmp_path)
    return PartialOutput("out")


def begin(partial: PartialOutput, may_replace: bool = False, num_parts: int = 1) -> None:
    with partial.locked():
        partial.begin(SETTINGS, may_replace)
        folder = partial.new_parts_folder()
        for number in range(num_parts):
            (folder / f"part-00000-{number:010d}.arrays").write_text(str(number))


def read_part(path: Path) -> Part:
    return Part(0, int(path.read_text()), 0, "in.txt", 1, 1, "")


def test_parts_are_listed_in_order_and_leftovers_are_not(partial: PartialOutput) -> None:
    begin(partial, num_parts=12)
    (partial.parts_folder / ".part-00000-0000000099.arrays.abcd").write_text("99")
    (partial.parts_folder / "_embedding.json").write_text("{}")
    parts = partial.parts(read_part)
    assert [part.first_line for part in parts] == list(range(12))
    partial.remove_leftovers()
    assert len(os.listdir(partial.parts_folder)) == partial.num_parts == 12


def test_a_run_that_left_no_part_can_be_replaced(partial: PartialOutput) -> None:
    partial.check(overwrite=False, resume=False)
    begin(partial, num_parts=0)
    partial.check(overwrite=False, resume=False)


def test_a_worker_of_a_previous_run_cannot_write(partial: PartialOutput) -> None:
    begin(partial)
    previous = partial.parts_folder
    with partial.locked():
        resumed = partial.new_parts_folder()
    assert not previous.exists() and partial.parts_folder == resumed
    assert partial.num_parts == 1
    begin(partial, num_parts=2)
    assert not resumed.exists() and partial.num_parts == 2


def test_parts_are_found_under_the_name_of_earlier_versions(partial: PartialOutput) -> None:
    begin(partial)
    partial.parts_folder.rename(partial.folder / "parts")
    assert partial.num_parts == 1
    with partial.locked():
        partial.new_parts_folder()
    assert partial.num_parts == 1


def test_a_folder_of_an_earlier_version_is_an_error(partial: PartialOutput) -> None:
    partial.folder.mkdir()
    (partial.folder / "progress.json").write_text("{}")
    (partial.folder / "vectors.hdf5").write_text("")
    for resume in (False, True):
        with pytest.raises(ConfigurationError, match=r"of an earlier version.*--overwrite"):
            partial.check(overwrite=False, resume=resume)
    partial.check(overwrite=True, resume=False)
    begin(partial, may_replace=True)
    names = ["lock", partial.parts_folder.name, "run.json"]
    assert sorted(os.listdir(partial.folder)) == names


def test_a_folder_of_another_program_is_never_removed(partial: PartialOutput) -> None:
    partial.folder.mkdir()
    (partial.folder / "photo.png").touch()
    for overwrite in (False, True):
        with pytest.raises(ConfigurationError, match=r"out\.partial was not made by this command"):
            partial.check(overwrite=overwrite, resume=False)


@pytest.mark.parametrize("content", ["{", "[]", "{}", '{"settings": []}'])
def test_damaged_settings_are_an_error(partial: PartialOutput, content: str) -> None:
    begin(partial)
    (partial.folder / "run.json").write_text(content)
    with pytest.raises(ConfigurationError, match=r"run\.json: cannot be read.*--overwrite"):
        partial.check(overwrite=False, resume=True)
    partial.check(overwrite=True, resume=False)


class TestPublish:
    def test_the_output_is_moved_and_the_folder_removed(self, partial: PartialOutput) -> None:
        begin(partial)
        (partial.folder / "product").write_text("new")
        partial.publish(partial.folder / "product")
        assert os.listdir() == ["out"] and Path("out").read_text() == "new"

    @pytest.mark.parametrize("is_folder", [False, True])
    def test_only_the_output_that_may_be_replaced_is_replaced(
        self, partial: PartialOutput, is_folder: bool
    ) -> None:
        def make(content: str) -> None:
            if is_folder:
                Path(content).mkdir()
                (Path(content) / content).touch()
                os.rename(content, "out")
            else:
                Path("out").write_text(content)

        make("previous")
        begin(partial, may_replace=True)
        assert partial.may_replace
        os.rename("out", "moved")
        assert partial.may_replace
        make("foreign")
        assert not partial.may_replace
        (partial.folder / "product").write_text("new")
        with pytest.raises(ConfigurationError, match="written by another program during"):
            partial.publish(partial.folder / "product")
        os.rename("out", "foreign")
        os.rename("moved", "out")
        partial.publish(partial.folder / "product")
        assert sorted(os.listdir()) == ["foreign", "out"] and Path("out").read_text() == "new"
