"""Parts: which sentences they hold, and which sentences are still to be embedded."""

from pathlib import Path
from typing import Any, List, Tuple

import pytest

from elmo_plugin.embedding.parts import (
    Block,
    Content,
    Part,
    check_complete,
    content_of,
    parts_by_source,
    read_blocks,
)
from elmo_plugin.embedding.sentences import InputOptions, Sentence, SentenceSource
from elmo_plugin.errors import ConfigurationError

# Of 1, 2, 1, 2, 3, 3 and 1 tokens; lines 2, 6 and 7 are blank.
LINES = ["a", "b b", "", "c", "d d", "e e e", "", "", "f f f", "g"]


def no_check(line_index: int, text: str) -> None:
    pass


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


def blocks(source: SentenceSource, done: List[Tuple[int, int]], *limits: int) -> List[List[int]]:
    """The lines of each block."""
    parts = [part_of(source, *lines) for lines in done]
    found = []

    def read() -> Any:
        content = yield from read_blocks(0, source, parts, no_check, *limits)
        assert content == content_of(source, parts, no_check)

    for block in read():
        found.append([sentence.line_index for sentence in block.sentences])
    return found


def test_a_part_is_named_by_its_sentences() -> None:
    sentences = [Sentence(7, "a b", ["a", "b"]), Sentence(9, "the c", ["the", "c"])]
    part = Block(3, "a.txt", sentences).part
    assert part[:6] == (3, 7, 9, "a.txt", 2, 4)
    assert part.file_name("arrays") == "part-00003-0000000007.arrays"
    other = Block(3, "a.txt", [sentences[0], Sentence(9, "the d", ["the", "d"])]).part
    assert part.digest != other.digest


def test_blocks_are_cut_by_sentences_and_by_tokens(source: SentenceSource) -> None:
    assert blocks(source, [], 100, 100) == [[0, 1, 3, 4, 5, 8, 9]]
    assert blocks(source, [], 3, 100) == [[0, 1, 3], [4, 5, 8], [9]]
    assert blocks(source, [], 100, 4) == [[0, 1, 3], [4], [5], [8, 9]]
    assert blocks(source, [], 100, 1) == [[0], [1], [3], [4], [5], [8], [9]]


@pytest.mark.parametrize(
    "done, expected",
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
    source: SentenceSource, done: List[Tuple[int, int]], expected: List[List[int]]
) -> None:
    assert blocks(source, done, 100, 100) == expected


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
        content_of(source, [part], no_check)
    with pytest.raises(ConfigurationError, match=match):
        list(read_blocks(0, source, [part], no_check, 100, 100))


CONTENTS = [Content("a.txt", 5, 9, ""), Content("b.txt", 2, 2, "")]
PARTS = [
    Part(0, 0, 3, "a.txt", 3, 5, ""),
    Part(0, 4, 6, "a.txt", 2, 4, ""),
    Part(1, 0, 1, "b.txt", 2, 2, ""),
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
        (PARTS[1:], r"a\.txt: 5 sentences were found and 2 are written\."),
        (PARTS[:2], r"b\.txt: 2 sentences were found and 0 are written\."),
        (
            [PARTS[0], Part(0, 3, 6, "a.txt", 2, 4, ""), PARTS[2]],
            r"a\.txt: 5 sentences were found and 5 are written, some of them twice\.",
        ),
        (
            [*PARTS, Part(1, 7, 7, "b.txt", 1, 1, "")],
            r"b\.txt: 2 sentences were found and 3 are written\.",
        ),
    ],
)
def test_each_sentence_must_be_in_exactly_one_part(parts: List[Part], match: Any) -> None:
    check_complete(PARTS, CONTENTS)
    with pytest.raises(ConfigurationError, match=f"{match}.*--overwrite"):
        check_complete(parts, CONTENTS)
