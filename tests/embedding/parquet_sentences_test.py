from pathlib import Path
from typing import Any, Callable, List, Optional

import pytest
from allennlp.common.checks import ConfigurationError

from elmo_plugin.embedding.parquet_sentences import ParquetSentences
from elmo_plugin.embedding.sentence_file import SentenceFile

pyarrow = pytest.importorskip("pyarrow", reason="pyarrow (elmo_plugin[parquet]) is not installed")
parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is built without Parquet")

TEXT = [" The\tcat \u00a0 sat\u3000. ", "日本語 é", "b"]


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Write a column `sentence`, beside another one: `write(values, type, row_group_size)`."""

    def write(values: List[Any], type: Any = None, row_group_size: Optional[int] = None) -> Path:
        path = tmp_path / "in.parquet"
        columns = {"id": range(len(values)), "sentence": pyarrow.array(values, type=type)}
        parquet.write_table(pyarrow.table(columns), path, row_group_size=row_group_size)
        return path

    return write


def sentences_of(path: Any, *arguments: Any, **settings: Any) -> List[Any]:
    with ParquetSentences(path, *arguments, **settings) as source:
        return [tuple(sentence) for sentence in source.sentences()]


def check(path: Any, **settings: Any) -> List[Any]:
    seen: List[Any] = []
    with ParquetSentences(path, **settings) as source:
        source.check(lambda index, text: seen.append((index, text)))
    return seen


class TestSentences:
    def test_text_is_read_as_from_a_file_of_lines(self, write: Any, tmp_path: Path) -> None:
        lines = tmp_path / "in.txt"
        lines.write_text("\n".join(TEXT) + "\n", encoding="utf-8")
        with SentenceFile(lines) as source:
            expected = [tuple(sentence) for sentence in source.sentences()]
        assert sentences_of(write(TEXT)) == expected
        assert expected[0][2] == ["The", "cat", "sat", "."]

    @pytest.mark.parametrize(
        "type",
        [
            pyarrow.large_string(),
            pyarrow.dictionary(pyarrow.int32(), pyarrow.string()),
            pyarrow.string_view(),
        ],
    )
    def test_text_may_be_of_any_type_of_strings(self, write: Any, type: Any) -> None:
        # Not every type can be made of Python objects.
        table = pyarrow.table({"sentence": pyarrow.array(TEXT).cast(type)})
        path = write(["unused"])
        parquet.write_table(table, path)
        assert [text for _, text, _ in sentences_of(path)] == [text.strip() for text in TEXT]

    def test_spacys_rules_take_text_apart(self, write: Any) -> None:
        path = write(["He didn't go."])
        assert sentences_of(path, tokenizer="spacy")[0][2] == ["He", "did", "n't", "go", "."]

    @pytest.mark.parametrize("list_type", [pyarrow.list_, pyarrow.large_list])
    def test_lists_are_tokens_whatever_is_in_them(self, write: Any, list_type: Any) -> None:
        tokens = [["New York", "didn't", "日本語"], ["", "b"]]
        path = write(tokens, list_type(pyarrow.string()))
        assert sentences_of(path, tokenizer="spacy") == [
            (0, "New York didn't 日本語", tokens[0]),
            (1, "b", tokens[1]),
        ]
        assert check(path) == [(0, "New York didn't 日本語"), (1, "b")]

    def test_the_column_is_the_one_that_is_named(self, write: Any, tmp_path: Path) -> None:
        table = pyarrow.table({"a.b": ["x y"], "a": ["z"], "sentence": ["no"]})
        parquet.write_table(table, tmp_path / "two.parquet")
        assert sentences_of(tmp_path / "two.parquet", "a.b") == [(0, "x y", ["x", "y"])]
        assert sentences_of(tmp_path / "two.parquet", "a") == [(0, "z", ["z"])]

    def test_rows_are_numbered_across_row_groups(self, write: Any) -> None:
        path = write([f"word {number}" for number in range(5000)], row_group_size=700)
        assert [index for index, _, _ in sentences_of(path)] == list(range(5000))
        assert sentences_of(path)[4321] == (4321, "word 4321", ["word", "4321"])

    def test_blank_rows_that_are_skipped_are_counted(self, write: Any) -> None:
        path = write([None, "a", " \t", "b", ""])
        assert sentences_of(path, skip_blank=True) == [(1, "a", ["a"]), (3, "b", ["b"])]
        assert check(path, skip_blank=True) == [(1, "a"), (3, "b")]
        path = write([None, ["a"], [], [""]], pyarrow.list_(pyarrow.string()))
        assert sentences_of(path, skip_blank=True) == [(1, "a", ["a"])]

    def test_it_can_be_read_again(self, write: Any) -> None:
        path = write(TEXT)
        with ParquetSentences(path) as source:
            assert source.can_be_read_again
            source.check(lambda index, text: None)
            assert list(source.sentences()) == list(source.sentences())
            assert source.name == str(path)
            assert source.is_same_file(path) and not source.is_same_file(path.parent)
            assert source.settings["column"] == "sentence"


class TestBadInput:
    @pytest.mark.parametrize("read", [sentences_of, check])
    @pytest.mark.parametrize(
        "values, match",
        [
            (["a", "b\x00c"], r"in\.parquet, row 2: found the control character U\+0000 at char"),
            (["a", "b\nc"], r"row 2: found the control character U\+000A"),
            (["a", None], r"in\.parquet: row 2 is blank, expected one sentence in each row"),
            (["a", " "], "row 2 is blank.*--skip-blank"),
            ([], "found no sentence"),
            (["a", "x" * 1_000_001], "row 2: found text of 1,000,001 characters"),
            ([["a"], ["b", None]], "row 2: token 2 in column 'sentence' is null"),
            ([["a"], []], "row 2 is blank"),
            ([["a"], ["b", "c\x07"]], r"row 2: found the control character U\+0007"),
        ],
    )
    def test_it_is_refused_with_its_row(
        self, write: Any, read: Any, values: List[Any], match: str
    ) -> None:
        type = None if values else pyarrow.string()
        with pytest.raises(ConfigurationError, match=match):
            read(write(values, type))

    def test_all_blank_rows_are_named_at_once(self, write: Any) -> None:
        with pytest.raises(ConfigurationError, match=r"3 rows \(1, 3, 4\) are blank"):
            check(write(["", "a", None, " "]))

    def test_text_that_is_not_utf8_is_refused(self, write: Any) -> None:
        path = write(["unused"])
        binary = pyarrow.array([b"a", b"\xff b"])
        text = pyarrow.StringArray.from_buffers(2, *binary.buffers()[1:])
        parquet.write_table(pyarrow.table({"sentence": text}), path)
        with pytest.raises(ConfigurationError, match=r"row 2: found the bytes b'\\xff' in column"):
            check(path)

    def test_a_missing_column_is_named_with_those_that_are_there(self, write: Any) -> None:
        match = r"in\.parquet: there is no column 'text'.*The columns are id, sentence;.*--column"
        with pytest.raises(ConfigurationError, match=match):
            ParquetSentences(write(TEXT), "text")

    @pytest.mark.parametrize(
        "column, type",
        [("id", "int64"), ("nested", r"list<element: list<element: string>>")],
    )
    def test_a_column_of_another_type_is_refused(self, write: Any, column: str, type: str) -> None:
        path = write(["unused"])
        table = pyarrow.table({"id": [1], "nested": [[["a"]]]})
        parquet.write_table(table, path)
        with pytest.raises(ConfigurationError, match=f"'{column}' is of type {type}, expected"):
            ParquetSentences(path, column)

    @pytest.mark.parametrize("name", ["missing.parquet", "."])
    def test_a_file_that_cannot_be_opened_is_named(self, name: str) -> None:
        with pytest.raises(ConfigurationError, match=f"{name}: cannot be read as a Parquet file"):
            ParquetSentences(name)

    def test_a_file_that_is_cut_short_is_refused(self, write: Any) -> None:
        path = write(TEXT)
        path.write_bytes(path.read_bytes()[:-20])
        with pytest.raises(ConfigurationError, match=r"in\.parquet: cannot be read"):
            ParquetSentences(path)

    def test_a_file_with_damaged_pages_is_refused(self, write: Any) -> None:
        path = write([f"word {number}" for number in range(3000)])
        content = bytearray(path.read_bytes())
        middle = len(content) // 2
        content[middle - 5000 : middle] = bytes(5000)
        path.write_bytes(content)
        with pytest.raises(ConfigurationError, match=r"in\.parquet: cannot be read|row \d+:"):
            check(path)

    def test_an_unknown_tokenizer_is_refused(self, write: Any) -> None:
        with pytest.raises(ConfigurationError, match="expected one of whitespace, spacy"):
            ParquetSentences(write(TEXT), tokenizer="moses")
