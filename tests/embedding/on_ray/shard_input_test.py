import gzip
from pathlib import Path
from typing import Any, List, Tuple

import pytest
from allennlp.common.checks import ConfigurationError

from elmo_plugin.embedding.checked_sentences import Sentence
from elmo_plugin.embedding.on_ray.shard_input import (
    Shard,
    ShardContent,
    ShardReader,
    blocks_of,
    check_same_shards,
    find_shards,
)

READER = ShardReader(column="text", tokenizer="whitespace", skip_blank=True)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where tests run: the folder `texts`, in which not all files are data, and others beside it."""
    for name in ("texts/b.txt", "texts/a.gz", "texts/in/c.txt", "texts/_SUCCESS", "d.txt"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    (tmp_path / "texts/.b.txt.crc").touch()
    monkeypatch.chdir(tmp_path)
    return tmp_path


class TestFinding:
    @pytest.mark.parametrize(
        "inputs, names",
        [
            ("d.txt", ["d.txt"]),
            (Path("texts/b.txt"), ["texts/b.txt"]),
            ("texts", ["texts/a.gz", "texts/b.txt"]),
            ("texts/", ["texts/a.gz", "texts/b.txt"]),
            ("texts/*.txt", ["texts/b.txt"]),
            ("texts/**/*.txt", ["texts/b.txt", "texts/in/c.txt"]),
            (["d.txt", "texts/b.txt", "d.txt"], ["d.txt", "texts/b.txt"]),
            (["texts", "texts/*.txt"], ["texts/a.gz", "texts/b.txt"]),
        ],
    )
    def test_files_folders_and_patterns_are_found(
        self, folder: Path, inputs: Any, names: List[str]
    ) -> None:
        shards = find_shards(inputs)
        assert [shard.name for shard in shards] == names
        assert [shard.number for shard in shards] == list(range(len(names)))
        assert [shard.path for shard in shards] == [str(folder / name) for name in names]

    @pytest.mark.parametrize(
        "inputs, match",
        [
            ("e.txt", "there is no file e.txt"),
            ("*.parquet", r"there is no file \*.parquet, and none that fits it"),
            ("empty", "the folder empty holds no files"),
            (["d.txt", "e.txt"], "there is no file e.txt"),
            ([], "there is none, expected files or folders"),
            ("-", "'-' is standard input, which workers cannot read"),
        ],
    )
    def test_nothing_found_is_an_error(self, folder: Path, inputs: Any, match: str) -> None:
        (folder / "empty").mkdir()
        with pytest.raises(ConfigurationError, match=match):
            find_shards(inputs)


class TestReading:
    def test_text_and_parquet_are_told_apart_by_their_names(self, tmp_path: Path) -> None:
        pyarrow = pytest.importorskip("pyarrow")
        parquet = pytest.importorskip("pyarrow.parquet")
        (tmp_path / "a.gz").write_bytes(gzip.compress(b"a b\n\nc\n"))
        table = pyarrow.table({"text": [["a", "b"], [], ["c"]]})
        parquet.write_table(table, tmp_path / "b.PARQUET")
        contents = []
        for number, shard in enumerate(find_shards([tmp_path / "a.gz", tmp_path / "b.PARQUET"])):
            contents.append(READER.check(shard))
            assert contents[-1][:3] == (str(tmp_path / ["a.gz", "b.PARQUET"][number]), 2, 3)
            (block,) = READER.blocks(shard, [], 10, 10)
            assert block == [Sentence(0, "a b", ["a", "b"]), Sentence(2, "c", ["c"])]
        assert contents[0].digest == contents[1].digest

    def test_what_is_wrong_is_said_under_the_name_that_was_given(self, folder: Path) -> None:
        (folder / "d.txt").write_bytes(b"a\n\xff\n")
        (shard,) = find_shards("d.txt")
        with pytest.raises(ConfigurationError, match=r"^d\.txt, line 2: found the bytes"):
            READER.check(shard)


class TestBlocks:
    SENTENCES = [Sentence(line, "", ["a"] * (line % 3 + 1)) for line in (0, 1, 3, 4, 5, 8, 9)]

    def blocks(self, done: List[Tuple[int, int]], *limits: int) -> List[List[int]]:
        blocks = blocks_of(iter(self.SENTENCES), done, *limits)
        return [[sentence.line_index for sentence in block] for block in blocks]

    def test_they_are_cut_by_sentences_and_by_tokens(self) -> None:
        assert self.blocks([], 100, 100) == [[0, 1, 3, 4, 5, 8, 9]]
        assert self.blocks([], 3, 100) == [[0, 1, 3], [4, 5, 8], [9]]
        # Of 1, 2, 1, 2, 3, 3 and 1 tokens.
        assert self.blocks([], 100, 4) == [[0, 1, 3], [4], [5], [8, 9]]
        assert self.blocks([], 100, 1) == [[0], [1], [3], [4], [5], [8], [9]]

    @pytest.mark.parametrize(
        "done, blocks",
        [
            ([(0, 9)], []),
            ([(0, 1), (3, 9)], []),
            ([(0, 1)], [[3, 4, 5, 8, 9]]),
            ([(3, 4)], [[0, 1], [5, 8, 9]]),
            ([(1, 1), (5, 8)], [[0], [3, 4], [9]]),
            ([(9, 9)], [[0, 1, 3, 4, 5, 8]]),
        ],
    )
    def test_no_block_has_sentences_on_both_sides_of_one_that_is_done(
        self, done: List[Tuple[int, int]], blocks: List[List[int]]
    ) -> None:
        assert self.blocks(done, 100, 100) == blocks


class TestSameShards:
    FORMER = [ShardContent("a", 1, 2, "0123"), ShardContent("b", 1, 2, "4567")]

    @pytest.mark.parametrize(
        "contents, match",
        [
            (
                FORMER[:1],
                r"file 2 was b with 1 sentences and 2 tokens \(digest 4567\), and is now not",
            ),
            ([*FORMER, FORMER[0]], "file 3 was not there, and is now a with"),
            (FORMER[::-1], "file 1 was a with .*, and is now b with"),
            (
                [FORMER[0], FORMER[1]._replace(digest="8")],
                r"digest 4567\), and is now .*digest 8\)",
            ),
        ],
    )
    def test_a_difference_is_named(self, contents: List[ShardContent], match: str) -> None:
        former = [content._asdict() for content in self.FORMER]
        check_same_shards(former, list(self.FORMER), "x.partial")
        with pytest.raises(ConfigurationError, match=f"x.partial was made of another.*{match}"):
            check_same_shards(former, contents, "x.partial")


def test_a_shard_is_opened_wherever_a_worker_runs(folder: Path, monkeypatch: Any) -> None:
    (folder / "d.txt").write_text("a\n")
    (shard,) = find_shards("d.txt")
    assert shard == Shard(0, "d.txt", str(folder / "d.txt"))
    monkeypatch.chdir(folder / "texts")
    assert READER.check(shard).num_sentences == 1
