import gzip
import io
import os
import sys
import threading
from pathlib import Path
from typing import Any, Callable, List, Union

import pytest
from allennlp.common.checks import ConfigurationError

from elmo_plugin.embedding.sentence_file import SentenceFile


@pytest.fixture
def write(tmp_path: Path) -> Callable[[Union[str, bytes]], Path]:
    def write(content: Union[str, bytes]) -> Path:
        path = tmp_path / "in.txt"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def sentences_of(source: Any, **arguments: Any) -> List[Any]:
    with SentenceFile(source, **arguments) as file:
        return [tuple(sentence) for sentence in file.sentences()]


def check(source: Any, **arguments: Any) -> List[Any]:
    seen: List[Any] = []
    with SentenceFile(source, **arguments) as file:
        file.check(lambda index, text: seen.append((index, text)))
    return seen


class TestSentences:
    def test_tokens_are_set_apart_by_white_space_of_any_kind(self, write: Any) -> None:
        path = write(" The\tcat \u00a0 sat\u3000. \r\n日本語 é\n")
        assert sentences_of(path) == [
            (0, "The\tcat \u00a0 sat\u3000.", ["The", "cat", "sat", "."]),
            (1, "日本語 é", ["日本語", "é"]),
        ]

    def test_spacys_rules_take_text_apart(self, write: Any) -> None:
        path = write("He didn't  go, (did he)?\n")
        expected = ["He", "did", "n't", "go", ",", "(", "did", "he", ")", "?"]
        assert sentences_of(path, tokenizer="spacy")[0][2] == expected

    def test_tokens_may_be_long(self, write: Any) -> None:
        path = write("a " + "x" * 10_000 + " b\n")
        assert [len(token) for token in sentences_of(path)[0][2]] == [1, 10_000, 1]
        assert "".join(sentences_of(path, tokenizer="spacy")[0][2]) == "a" + "x" * 10_000 + "b"

    def test_blank_lines_that_are_skipped_are_counted(self, write: Any) -> None:
        path = write("\na\n \t\nb\n\n")
        assert sentences_of(path, skip_blank=True) == [(1, "a", ["a"]), (3, "b", ["b"])]
        assert check(path, skip_blank=True) == [(1, "a"), (3, "b")]

    def test_gzip_files_are_unpacked(self, tmp_path: Path) -> None:
        path = tmp_path / "in.txt.gz"
        path.write_bytes(gzip.compress(b"a b\nc\n"))
        with SentenceFile(path) as file:
            assert file.can_be_read_again
            file.check(lambda index, text: None)
            assert [sentence.text for sentence in file.sentences()] == ["a b", "c"]

    def test_a_byte_order_mark_is_no_part_of_a_token(self, write: Any) -> None:
        assert sentences_of(write(b"\xef\xbb\xbfa\n"))[0][2] == ["a"]

    def test_a_pipe_is_read_once(self, tmp_path: Path) -> None:
        path = tmp_path / "pipe"
        os.mkfifo(path)
        writer = threading.Thread(target=lambda: path.write_text("a\nb\n"))
        writer.start()
        with SentenceFile(path) as file:
            assert not file.can_be_read_again
            assert [sentence.text for sentence in file.sentences()] == ["a", "b"]
        writer.join()

    def test_standard_input_stays_open(self, monkeypatch: pytest.MonkeyPatch) -> None:
        stdin = io.TextIOWrapper(io.BytesIO("é b\n".encode()), encoding="ascii")
        monkeypatch.setattr(sys, "stdin", stdin)
        assert sentences_of("-") == [(0, "é b", ["é", "b"])]
        assert not stdin.closed

    @pytest.mark.parametrize("mode", ["r", "rb"])
    def test_open_files_are_read_from_where_they_stand_and_closed(
        self, write: Any, mode: str
    ) -> None:
        path = write("first\na\nb\n")
        file = open(path, mode)  # noqa: SIM115 - closed by the source
        file.readline()
        with SentenceFile(file) as source:
            source.check(lambda index, text: None)
            assert [sentence.text for sentence in source.sentences()] == ["a", "b"]
        assert file.closed

    def test_a_text_file_that_cannot_be_rewound_is_read_once(self, write: Any) -> None:
        file = open(write("first\na\n"))  # noqa: SIM115 - closed by the source
        next(file)
        with SentenceFile(file) as source:
            assert not source.can_be_read_again
            assert [sentence.text for sentence in source.sentences()] == ["a"]


class TestBadInput:
    @pytest.mark.parametrize("read", [sentences_of, check])
    @pytest.mark.parametrize(
        "content, match",
        [
            (b"a\n\xff\xfe b\n", r"in\.txt, line 2: found the bytes b'\\xff', expected UTF-8"),
            (
                b"a\nb\nc\x00d\n",
                r"line 3: found the control character U\+0000 at character 2.*perl",
            ),
            (b"a\x1b[0m\n", r"line 1: found the control character U\+001B"),
            ("a\u0085b\n".encode(), r"line 1: found the control character U\+0085"),
            (b"a\rb\n", r"line 1: found the control character U\+000D"),
            (b"a\n\nb\n", r"in\.txt: line 2 is blank.*--skip-blank"),
            (b"", r"in\.txt: found no sentence"),
        ],
    )
    def test_it_is_refused_with_its_line(
        self, write: Any, read: Any, content: bytes, match: str
    ) -> None:
        with pytest.raises(ConfigurationError, match=match):
            read(write(content))

    def test_all_blank_lines_are_named_at_once(self, write: Any) -> None:
        with pytest.raises(ConfigurationError, match=r"3 lines \(1, 3, 4\) are blank"):
            check(write("\na\n  \n\t\nb\n"))

    def test_many_blank_lines_are_counted(self, write: Any) -> None:
        with pytest.raises(
            ConfigurationError, match=r"1,000 lines \(2, 3, .*, 11, \.\.\.\) are blank"
        ):
            check(write("a\n" + "\n" * 1000))

    @pytest.mark.parametrize("read", [sentences_of, check])
    def test_a_file_of_blank_lines_is_empty(self, write: Any, read: Any) -> None:
        with pytest.raises(ConfigurationError, match="found no sentence"):
            read(write("\n \n"), skip_blank=True)

    @pytest.mark.parametrize("name", ["missing.txt", "."])
    def test_a_file_that_cannot_be_opened_is_named(self, name: str) -> None:
        with pytest.raises(ConfigurationError, match=f"{name}: cannot be read"):
            SentenceFile(name)

    def test_a_gzip_file_that_is_cut_short_is_refused(self, tmp_path: Path) -> None:
        path = tmp_path / "in.gz"
        path.write_bytes(gzip.compress(os.urandom(10_000).hex().encode())[:-2000])
        with pytest.raises(ConfigurationError, match=r"in\.gz: cannot be read"):
            check(path)

    def test_an_open_text_file_in_another_encoding_is_refused(self) -> None:
        with pytest.raises(ConfigurationError, match=r"expected utf-8.*'rb', to be told the line"):
            sentences_of(io.TextIOWrapper(io.BytesIO(b"a\xff\n"), encoding="utf-8"))

    def test_an_unknown_tokenizer_is_refused(self, write: Any) -> None:
        with pytest.raises(ConfigurationError, match="expected one of whitespace, spacy"):
            SentenceFile(write("a"), tokenizer="moses")
