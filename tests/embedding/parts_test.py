"""Parts: how the input is cut, and the folder `OUTPUT.partial` that keeps them."""

import os
from pathlib import Path
from typing import Any, Callable, List

import numpy
import pytest

from elmo_plugin.embedding.formats import NpyFormat
from elmo_plugin.embedding.parts import (
    Block,
    Part,
    PartialOutput,
    PartsFolder,
    Run,
    content_of,
    contents_of_parts,
    read_blocks,
)
from elmo_plugin.embedding.sentences import InputOptions, Sentence, SentenceSource
from elmo_plugin.errors import ConfigurationError

# Of 1, 2, 1, 2, 3, 3 and 1 tokens; lines 3, 7 and 8 are blank.
LINES = ["a", "b b", "", "c", "d d", "e e e", "", "", "f f f", "g"]
FORMAT = NpyFormat((3,))


def source_of(path: Path, lines: List[str]) -> SentenceSource:
    path.write_text("\n".join(lines))
    return SentenceSource(path, InputOptions(skip_blank=True))


@pytest.mark.parametrize(
    "limits, expected",
    [
        ((100, None), [[0, 1, 3, 4, 5, 8, 9]]),
        ((3, 100), [[0, 1, 3], [4, 5, 8], [9]]),
        ((100, 4), [[0, 1, 3], [4], [5], [8, 9]]),
        ((100, 1), [[0], [1], [3], [4], [5], [8], [9]]),
    ],
)
def test_blocks_are_cut_by_sentences_and_by_tokens_and_hold_each_sentence_once(
    tmp_path: Path, limits: tuple, expected: List[List[int]]
) -> None:
    sources = [source_of(tmp_path / "a.txt", LINES), source_of(tmp_path / "b.txt", ["h h"])]
    blocks = list(read_blocks(sources, *limits))
    lines = [[sentence.line_index for sentence in block.sentences] for block in blocks]
    assert lines == [*expected, [0]]
    contents = list(map(content_of, sources))
    assert contents_of_parts(block.part for block in blocks) == contents
    # A sentence on another line is another content: outputs hold its line.
    moved = content_of(source_of(tmp_path / "a.txt", ["a", "", "b b", *LINES[3:]]))
    assert moved[:3] == contents[0][:3] and moved.digest != contents[0].digest


def write(folder: PartsFolder, number: int) -> Part:
    block = Block(Part(0, number, "a.txt", 1, 1, number), [Sentence(number, "a", ["a"])])
    folder.write(block, [numpy.ones((1, 3), "float32")], FORMAT)
    return block.part


def test_parts_are_listed_in_order_and_others_are_removed(tmp_path: Path) -> None:
    folder = PartsFolder(tmp_path)
    folder.make()
    parts = [write(folder, number) for number in reversed(range(12))][::-1]
    (tmp_path / "descriptions/.part-00000000-0000000099.arrays.json.abcd").touch()
    assert folder.intact_parts() == parts and folder.num_parts == 12
    for name in (".part-00000000-0000000099.arrays.abcd", "part-00000000-0000000099.arrays"):
        (tmp_path / "data" / name).write_text("not finished")
    paths = folder.keep_only(parts[:10], FORMAT)
    assert sorted((tmp_path / "data").iterdir()) == paths and len(paths) == 10
    paths[3].unlink()
    with pytest.raises(FileNotFoundError, match=r"0003\.arrays was removed by another program"):
        folder.keep_only(parts[:10], FORMAT)


@pytest.fixture
def partial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PartialOutput:
    monkeypatch.chdir(tmp_path)
    return PartialOutput("out")


def begin(partial: PartialOutput, overwrite: bool = False, num_parts: int = 1) -> PartsFolder:
    with partial.locked():
        partial.begin(Run({"layers": "top"}, overwrite))
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


def test_a_slash_at_the_end_is_not_part_of_the_name() -> None:
    partial = PartialOutput("out/")
    assert partial.name == "out.partial"
    assert partial.folder == Path("out.partial").absolute()


def test_a_folder_of_another_program_is_never_removed(partial: PartialOutput) -> None:
    partial.folder.mkdir()
    (partial.folder / "photo.png").touch()
    for overwrite in (False, True):
        with pytest.raises(ConfigurationError, match=r"out\.partial was not made by this command"):
            partial.check(overwrite=overwrite, resume=False)


@pytest.mark.parametrize("make", [Path.mkdir, Path.touch])
def test_an_output_is_replaced_only_if_the_run_began_so(
    partial: PartialOutput, make: Callable[[Path], Any]
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
