import codecs
import functools
import gzip
import io
import os
import pickle
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any, Callable, List, Union

import pytest

from elmo_plugin.embedding import sentences
from elmo_plugin.embedding.sentences import InputOptions, SentenceSource, find_sources
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.files.spacy_rules import SpacyRules
from tests.conftest import write_parquet

pyarrow = pytest.importorskip("pyarrow", reason="pyarrow (elmo_plugin[parquet]) is not installed")
parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is built without Parquet")


@pytest.fixture
def write(tmp_path: Path) -> Callable[[Union[str, bytes]], Path]:
    def write(content: Union[str, bytes]) -> Path:
        path = tmp_path / "in.txt"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def sentences_of(source: Any, **arguments: Any) -> List[Any]:
    file = SentenceSource(source, InputOptions(**arguments))
    return [tuple(sentence) for sentence in file.sentences()]


class TestSentences:
    def test_tokens_are_separated_by_any_white_space(self, write: Any) -> None:
        path = write("\ufeff The\tcat \u00a0 sat\u3000. \r\n日本語 é\n")  # with a byte order mark
        assert sentences_of(path) == [
            (0, "The\tcat \u00a0 sat\u3000.", ["The", "cat", "sat", "."]),
            (1, "日本語 é", ["日本語", "é"]),
        ]

    def test_spacys_rules_split_text(self, write: Any) -> None:
        path = write(f"He didn't  go, (did he)?\na {'x' * 10_000} b\n")
        first, second = (tokens for _, _, tokens in sentences_of(path, tokenizer="spacy"))
        assert first == ["He", "did", "n't", "go", ",", "(", "did", "he", ")", "?"]
        assert "".join(second) == "a" + "x" * 10_000 + "b"

    def test_spacys_rules_are_made_once(self, write: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        sources = [write("A sentence.\n")] * 3
        made: List[str] = []

        def new_rules(language: str) -> SpacyRules:
            made.append(language)
            return SpacyRules(language)

        monkeypatch.setattr(sentences, "SpacyRules", new_rules)
        sentences._english_rules.cache_clear()
        assert [sentences_of(source, tokenizer="spacy")[0][2] for source in sources] == [
            ["A", "sentence", "."]
        ] * 3
        assert made == ["en"]

    def test_a_missing_spacy_is_an_error_before_a_source_is_read(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, "spacy", None)
        sentences._english_rules.cache_clear()
        for _ in range(2):
            with pytest.raises(ConfigurationError, match="--tokenizer spacy needs spaCy, which"):
                InputOptions(tokenizer="spacy")

    def test_blank_lines_that_are_skipped_are_counted(self, write: Any) -> None:
        path = write("\na\n \t\nb\n\n")
        assert sentences_of(path, skip_blank=True) == [(1, "a", ["a"]), (3, "b", ["b"])]

    def test_gzip_files_are_decompressed_as_often_as_they_are_read(self, tmp_path: Path) -> None:
        path = tmp_path / "in.txt.gz"
        path.write_bytes(gzip.compress(b"a b\nc\n"))
        source = SentenceSource(path)
        assert source.is_file
        assert list(source.texts()) == [(0, "a b", None), (1, "c", None)]
        assert [sentence.text for sentence in source.sentences()] == ["a b", "c"]

    def test_a_pipe_is_read_once(self, tmp_path: Path) -> None:
        path = tmp_path / "pipe"
        os.mkfifo(path)
        # A daemon: if nothing reads the pipe, it waits forever, and Python would wait for it.
        writer = threading.Thread(target=lambda: path.write_text("a\nb\n"), daemon=True)
        writer.start()
        source = SentenceSource(path)
        assert not source.is_file
        assert [sentence.text for sentence in source.sentences()] == ["a", "b"]
        writer.join()

    def test_standard_input_stays_open(self, monkeypatch: pytest.MonkeyPatch) -> None:
        stdin = io.TextIOWrapper(io.BytesIO("é b\n".encode()), encoding="ascii")
        monkeypatch.setattr(sys, "stdin", stdin)
        assert sentences_of("-") == [(0, "é b", ["é", "b"])]
        assert not stdin.closed

    @pytest.mark.parametrize("mode", ["r", "rb"])
    def test_open_files_are_read_from_their_position_and_stay_open(
        self, write: Any, mode: str
    ) -> None:
        with open(write("first\na\nb\n"), mode) as file:
            file.readline()
            assert sentences_of(file) == [(0, "a", ["a"]), (1, "b", ["b"])]
            assert not file.closed

    def test_open_files_of_text_may_be_of_any_class(self, write: Any) -> None:
        path = write("\ufeffa é\nb\n")  # with a byte order mark
        expected = [(0, "a é", ["a", "é"]), (1, "b", ["b"])]
        with open(path, encoding="utf-8") as file:
            assert sentences_of(file) == expected
        with codecs.open(str(path), "r", "utf-8") as reader:
            assert sentences_of(reader) == expected
        for mode in ("w+", "w+b"):
            with tempfile.NamedTemporaryFile(mode) as temporary:
                path_of_copy = Path(temporary.name)
                path_of_copy.write_bytes(path.read_bytes())
                assert sentences_of(temporary) == expected


class TestBadInput:
    @pytest.mark.parametrize(
        "content, options, match",
        [
            (b"a\n\xff\xfe b\n", {}, r"in\.txt, line 2: found the bytes b'\\xff', expected UTF-8"),
            (b"a\nb\nc\x00d\n", {}, r"line 3: found the control character U\+0000 at character 2"),
            ("a\u0085b\n".encode(), {}, r"line 1: found the control character U\+0085"),
            (b"a\rb\n", {}, r"line 1: found the control character U\+000D"),
            (b"a\n\nb\n", {}, r"in\.txt: line 2 is blank.*--skip-blank"),
            (b"", {}, r"in\.txt: found no sentence"),
            (b"\n \n", {"skip_blank": True}, "found no sentence"),
            (b"a", {"column": "text"}, r"--column is 'text', but .*in\.txt is text"),
        ],
    )
    def test_the_error_names_the_line(
        self, write: Any, content: bytes, options: Any, match: str
    ) -> None:
        with pytest.raises(ConfigurationError, match=match):
            sentences_of(write(content), **options)

    def test_an_open_file_that_cannot_be_decoded_is_named(self, write: Any) -> None:
        message = r"in\.txt: cannot be read \('utf-8' codec"
        with (
            open(write(b"a\n\xff\n"), encoding="utf-8") as file,
            pytest.raises(ConfigurationError, match=message),
        ):
            sentences_of(file)

    @pytest.mark.parametrize("name", ["missing.txt", "."])
    def test_a_file_that_cannot_be_opened_is_named(self, name: str) -> None:
        with pytest.raises(ConfigurationError, match=f"{name}: cannot be read"):
            SentenceSource(name)


TEXT = [" The\tcat \u00a0 sat\u3000. ", "日本語 é", "b"]


@pytest.fixture
def write_table(tmp_path: Path) -> Callable[..., Path]:
    """Write columns to a Parquet file: `write_table(row_group_size, sentence=values)`."""
    return functools.partial(write_parquet, tmp_path / "in.parquet")


class TestParquet:
    @pytest.mark.parametrize(
        "type",
        [
            pyarrow.string(),
            pyarrow.large_string(),
            pyarrow.dictionary(pyarrow.int32(), pyarrow.string()),
            pyarrow.string_view(),
        ],
    )
    def test_text_of_any_type_of_strings_is_read_as_from_a_file_of_lines(
        self, write: Any, write_table: Any, type: Any
    ) -> None:
        expected = sentences_of(write("\n".join(TEXT) + "\n"))
        path = write_table(sentence=pyarrow.array(TEXT).cast(type))
        assert sentences_of(path) == expected
        assert expected[0][2] == ["The", "cat", "sat", "."]

    @pytest.mark.parametrize("list_type", [pyarrow.list_, pyarrow.large_list])
    def test_lists_are_read_as_tokens(self, write_table: Any, list_type: Any) -> None:
        tokens = [["New York", "didn't", "日本語"], ["", "b"]]
        path = write_table(sentence=pyarrow.array(tokens, list_type(pyarrow.string())))
        assert sentences_of(path) == [(0, "New York didn't 日本語", tokens[0]), (1, "b", tokens[1])]

    def test_the_column_is_the_one_that_is_named(self, write_table: Any) -> None:
        path = write_table(**{"a.b": ["x y"], "a": ["z"], "sentence": ["no"]})
        assert sentences_of(path, column="a.b") == [(0, "x y", ["x", "y"])]
        assert sentences_of(path, column="a") == [(0, "z", ["z"])]

    def test_rows_are_numbered_across_row_groups(self, write_table: Any) -> None:
        source = SentenceSource(write_table(700, sentence=[*map(str, range(4000)), "a\x00"]))
        sentences = source.sentences()
        assert [next(sentences)[:2] for _ in range(4000)] == [(n, str(n)) for n in range(4000)]
        with pytest.raises(ConfigurationError, match="row 4001: found the control character"):
            next(sentences)

    def test_null_and_lists_without_text_are_blank(self, write_table: Any) -> None:
        path = write_table(sentence=[None, "a", " \t", "b", ""])
        assert sentences_of(path, skip_blank=True) == [(1, "a", ["a"]), (3, "b", ["b"])]
        path = write_table(sentence=[None, ["a"], [], [""]])
        assert sentences_of(path, skip_blank=True) == [(1, "a", ["a"])]


# Two rows, of which the second is not UTF-8.
NOT_UTF8 = pyarrow.StringArray.from_buffers(2, *pyarrow.array([b"a", b"\xff b"]).buffers()[1:])


class TestBadParquet:
    @pytest.mark.parametrize(
        "values, options, match",
        [
            (["a", "b" * 1_000_001], {}, "row 2: found a text of more than 1,000,000 bytes"),
            (["a", None], {}, "row 2 is blank, expected one sentence in each row.*--skip"),
            (pyarrow.array([], pyarrow.string()), {}, "found no sentence"),
            ([["a"], ["b", None]], {}, "row 2: token 2 in column 'sentence' is null"),
            ([["a"], ["b", "\n"]], {}, r"row 2: found the control char.* U\+000A at character 3"),
            ([["\r", "a"]], {}, r"row 1: found the control char.* U\+000D at character 1"),
            (NOT_UTF8, {}, r"in\.parquet: cannot be read .*UTF8"),
            (["a"], {"column": "text"}, r"no column 'text'.* columns are sentence;.*--column"),
            ([1], {}, "'sentence' is of type int64, expected string"),
            ([[["a"]]], {}, "'sentence' is of type list<element: list<element: string>>, exp"),
            ([["a"]], {"tokenizer": "spacy"}, "--tokenizer is 'spacy', but column 'sentence'"),
        ],
    )
    def test_the_error_names_the_row_or_the_column(
        self, write_table: Any, values: Any, options: Any, match: str
    ) -> None:
        with pytest.raises(ConfigurationError, match=match):
            sentences_of(write_table(sentence=values), **options)

    @pytest.mark.parametrize(
        "damage",
        [
            lambda content: content[:-20],
            lambda content: content.replace(b"sentence", b"sent\xffnce"),  # the name of the column
        ],
    )
    def test_a_file_that_cannot_be_read_is_named(self, write_table: Any, damage: Any) -> None:
        path = write_table(sentence=TEXT)
        path.write_bytes(damage(path.read_bytes()))
        for name in ("missing.parquet", path):
            match = rf"{Path(name).name}: cannot be read as a Parquet file"
            with pytest.raises(ConfigurationError, match=match):
                SentenceSource(name)

    def test_two_columns_of_the_name_are_an_error(self, tmp_path: Path) -> None:
        table = pyarrow.table([["a"], ["b"]], names=["sentence", "sentence"])
        parquet.write_table(table, tmp_path / "in.parquet")
        with pytest.raises(ConfigurationError, match="has 2 columns 'sentence', expected one"):
            SentenceSource(tmp_path / "in.parquet")

    def test_a_file_with_damaged_pages_is_an_error(self, write_table: Any) -> None:
        path = write_table(sentence=[f"word {number}" for number in range(3000)])
        content = bytearray(path.read_bytes())
        middle = len(content) // 2
        content[middle - 5000 : middle] = bytes(5000)
        path.write_bytes(content)
        with pytest.raises(ConfigurationError, match=r"in\.parquet: cannot be read|row \d+:"):
            sentences_of(path)


class TestFinding:
    @pytest.fixture
    def folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        """Where tests run: the folder `texts`, in which not all files are data, and others beside it."""
        for name in ("texts/b.txt", "texts/a.gz", "texts/in/c.txt", "texts/_SUCCESS", "d.txt"):
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
        (tmp_path / "texts/.b.txt.crc").touch()
        monkeypatch.chdir(tmp_path)
        return tmp_path

    @pytest.mark.parametrize(
        "inputs, names",
        [
            ("d.txt", ["d.txt"]),
            (Path("texts/b.txt"), ["texts/b.txt"]),
            ("texts", ["texts/a.gz", "texts/b.txt"]),
            ("texts/*.txt", ["texts/b.txt"]),
            ("texts/*", ["texts/a.gz", "texts/b.txt"]),
            ("texts/_SUCCESS", ["texts/_SUCCESS"]),
            ("texts/_*", ["texts/_SUCCESS"]),
            ("texts/**/*.txt", ["texts/b.txt", "texts/in/c.txt"]),
            (["d.txt", "texts/b.txt", "d.txt"], ["d.txt", "texts/b.txt"]),
            (["texts", "texts/*.txt"], ["texts/a.gz", "texts/b.txt"]),
            (["-", "d.txt"], ["standard input", "d.txt"]),
        ],
    )
    def test_files_folders_and_patterns_are_found(
        self, folder: Path, inputs: Any, names: List[str]
    ) -> None:
        assert [source.name for source in find_sources(inputs)] == names

    def test_a_folder_says_that_its_subfolders_are_not_read(
        self, folder: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        find_sources("texts")
        assert "subfolders of texts are not read, such as texts/in." in caplog.text
        assert "the pattern 'texts/**/*'" in caplog.text

    def test_a_column_is_that_of_parquet_files_among_others(
        self, folder: Path, write_table: Any
    ) -> None:
        files = [folder / "d.txt", write_table(text=["a b"])]
        sources = find_sources(files, InputOptions(column="text"))
        assert [source.place for source in sources] == ["line", "row"]

    def test_no_file_is_read_twice_however_it_is_named(self, folder: Path) -> None:
        inputs = ["texts/../d.txt", "./d.txt", folder / "d.txt", "*.txt", "."]
        assert [source.name for source in find_sources(inputs)] == ["texts/../d.txt"]

    def test_the_output_is_not_an_input(self, folder: Path) -> None:
        for name in ("texts/out/part.txt", "texts/out.partial/part.txt"):
            (folder / name).parent.mkdir()
            (folder / name).touch()
        names = [source.name for source in find_sources("**/*.txt", output="texts/out")]
        assert names == ["d.txt", "texts/b.txt", "texts/in/c.txt"]

    @pytest.mark.parametrize(
        "inputs, match",
        [
            ("e.txt", "there is no file e.txt"),
            ("*.parquet", r"there is no file \*.parquet, and as a pattern it matches no file"),
            ("empty", "the folder empty holds no files"),
            (["d.txt", "e.txt"], "there is no file e.txt"),
            ([], "found none, expected files or folders"),
            ([""], "the name is empty, expected a file, a folder or a pattern"),
        ],
    )
    def test_nothing_found_is_an_error(self, folder: Path, inputs: Any, match: str) -> None:
        (folder / "empty").mkdir()
        with pytest.raises(ConfigurationError, match=match):
            find_sources(inputs)

    def test_a_source_is_read_wherever_a_worker_runs(self, folder: Path, monkeypatch: Any) -> None:
        (folder / "d.txt").write_bytes(b"a\n\xff\n")
        (source,) = pickle.loads(pickle.dumps(find_sources("d.txt")))
        monkeypatch.chdir(folder / "texts")
        with pytest.raises(ConfigurationError, match=r"^d\.txt, line 2: found the bytes"):
            list(source.sentences())
