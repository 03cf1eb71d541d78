"""Parts: which sentences they hold, and which sentences are still to be embedded."""

from pathlib import Path
from typing import List, Tuple

import pytest

from elmo_plugin.embedding.formats import HDF5Format
from elmo_plugin.embedding.parts import (
    Block,
    Content,
    Part,
    check_complete,
    content_of,
    contents_in,
    parts_by_source,
    read_blocks,
)
from elmo_plugin.embedding.sentences import InputOptions, Sentence, SentenceSource
from elmo_plugin.errors import ConfigurationError

# Of 1, 2, 1, 2, 3, 3 and 1 tokens; lines 3, 7 and 8 are blank.
LINES = ["a", "b b", "", "c", "d d", "e e e", "", "", "f f f", "g"]
FORMAT = HDF5Format((3,), "float32")


@pytest.fixture
def source(tmp_path: Path) -> SentenceSource:
    (tmp_path / "in.txt").write_text("\n".join(LINES))
    return SentenceSource(tmp_path / "in.txt", InputOptions(skip_blank=True), "in.txt")


def part_of(source: SentenceSource, first_line: int, last_line: int) -> Part:
    sentences = [
        sentence
        for sentence in source.sentences()
        if first_line <= sentence.line_index <= last_line
    ]
    return Block(0, source.name, sentences).part


def lines_of_blocks(
    source: SentenceSource, finished: List[Tuple[int, int]], *limits: int
) -> List[List[int]]:
    """The lines of each block. With the finished parts, the blocks hold all sentences."""
    parts = [part_of(source, *lines) for lines in finished]
    blocks = list(read_blocks(0, source, parts, FORMAT, *limits))
    written = contents_in([*parts, *(block.part for block in blocks)], ["in.txt"])
    assert written == [content_of(source, parts, FORMAT)]
    return [[sentence.line_index for sentence in block.sentences] for block in blocks]


def test_a_part_is_named_by_its_sentences() -> None:
    sentences = [Sentence(7, "a b", ["a", "b"]), Sentence(9, "the c", ["the", "c"])]
    part = Block(3, "a.txt", sentences).part
    assert part[:6] == (3, 7, 9, "a.txt", 2, 4)
    assert part.name == "part-00003-0000000007"
    other = Block(3, "a.txt", [sentences[0], Sentence(9, "the d", ["the", "d"])]).part
    assert part.digest != other.digest


def test_blocks_are_cut_by_sentences_and_by_tokens(source: SentenceSource) -> None:
    assert lines_of_blocks(source, [], 100, 100) == [[0, 1, 3, 4, 5, 8, 9]]
    assert lines_of_blocks(source, [], 3, 100) == [[0, 1, 3], [4, 5, 8], [9]]
    assert lines_of_blocks(source, [], 100, 4) == [[0, 1, 3], [4], [5], [8, 9]]
    assert lines_of_blocks(source, [], 100, 1) == [[0], [1], [3], [4], [5], [8], [9]]


@pytest.mark.parametrize(
    "finished, expected",
    [
        ([(0, 9)], []),
        ([(0, 1), (3, 9)], []),
        ([(0, 1)], [[3, 4, 5, 8, 9]]),
        ([(3, 4)], [[0, 1], [5, 8, 9]]),
        ([(1, 1), (5, 8)], [[0], [3, 4], [9]]),
        ([(9, 9)], [[0, 1, 3, 4, 5, 8]]),
    ],
)
def test_no_block_has_sentences_from_before_and_after_a_part(
    source: SentenceSource, finished: List[Tuple[int, int]], expected: List[List[int]]
) -> None:
    assert lines_of_blocks(source, finished, 100, 100) == expected


@pytest.mark.parametrize(
    "lines",
    [
        ["a", "b b", "", "c", "OTHER", *LINES[5:]],
        ["a", "b b", "", "c", "", *LINES[5:]],
        ["a", "b b", "", "", "d d", *LINES[5:]],
        ["a", "b b", "", "c"],
        ["a", "b b", *LINES[3:]],
    ],
)
def test_a_part_made_from_other_sentences_is_an_error(
    source: SentenceSource, tmp_path: Path, lines: List[str]
) -> None:
    part = part_of(source, 3, 4)
    (tmp_path / "in.txt").write_text("\n".join(lines))
    match = r"another input: lines 4 to 5 of .*in\.txt are not the 2 sentences that it has written"
    with pytest.raises(ConfigurationError, match=match):
        content_of(source, [part], FORMAT)
    with pytest.raises(ConfigurationError, match=match):
        list(read_blocks(0, source, [part], FORMAT, 100, 100))


CONTENTS = [Content("a.txt", 5, 9, 30), Content("b.txt", 2, 2, 7)]
PARTS = [
    Part(0, 0, 3, "a.txt", 3, 5, 10),
    Part(0, 4, 6, "a.txt", 2, 4, 20),
    Part(1, 0, 1, "b.txt", 2, 2, 7),
]


def test_parts_must_be_of_the_files_of_this_run() -> None:
    assert parts_by_source(PARTS[::-1], ["a.txt", "b.txt"]) == [PARTS[:2], PARTS[2:]]
    for names, match in [
        (["a.txt"], r"file 2 was b\.txt, and is now missing"),
        (["b.txt", "b.txt"], r"file 1 was a\.txt, and is now b\.txt"),
    ]:
        with pytest.raises(ConfigurationError, match=f"another input: {match}.*--overwrite"):
            parts_by_source(PARTS, names)


@pytest.mark.parametrize(
    "parts, match",
    [
        (PARTS[1:], r"a\.txt: 5 sentences were found, and the 2 that"),
        (PARTS[:2], r"b\.txt: 2 sentences were found, and the 0 that"),
        # One twice and one missing.
        ([PARTS[0], Part(0, 3, 6, "a.txt", 2, 4, 19), PARTS[2]], r"a\.txt: 5 .* and the 5 that"),
        ([*PARTS, Part(1, 7, 7, "b.txt", 1, 1, 2)], r"b\.txt: 2 .* and the 3 that"),
    ],
)
def test_each_sentence_must_be_in_exactly_one_part(parts: List[Part], match: str) -> None:
    names = ["a.txt", "b.txt"]
    assert contents_in(PARTS, names) == CONTENTS
    check_complete(contents_in(PARTS, names), CONTENTS)
    with pytest.raises(ConfigurationError, match=f"{match} are written are not .*--overwrite"):
        check_complete(contents_in(parts, names), CONTENTS)
