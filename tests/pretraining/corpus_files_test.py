import gzip
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmo_plugin.errors import ConfigurationError
from elmo_plugin.files.text_lines import MAX_LINE_BYTES
from elmo_plugin.pretraining.corpus_files import (
    CorpusFile,
    expand_corpus,
    read_sentences,
)


def write(path: Path, content) -> Path:
    content = content if isinstance(content, bytes) else content.encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def is_one_token(text: str) -> bool:
    # A byte order mark is dropped at the start of a file.
    return text.split() == [text] and "\ufeff" not in text


@pytest.fixture(params=["corpus.txt", "corpus.txt.gz"])
def corpus_file(request, tmp_path):
    """Each way to store a file."""
    return tmp_path / request.param


class TestExpandCorpus:
    def test_files_are_sorted_and_each_comes_once(self, tmp_path, monkeypatch):
        for name in ("b.txt", "a.txt", "c.txt.gz", "inner/d.txt"):
            write(tmp_path / name, "It rains .\n")
        (tmp_path / "link.txt").symlink_to("b.txt")
        monkeypatch.chdir(tmp_path)
        patterns = ["b.txt", "*.txt", "c.txt.gz", "inner/../a.txt", "**/d.txt", str(tmp_path / "*")]
        found = [path.resolve().relative_to(tmp_path) for path in expand_corpus(patterns)]
        assert sorted(map(str, found)) == ["a.txt", "b.txt", "c.txt.gz", "inner/d.txt"]
        assert expand_corpus(["*.txt", "a.txt"]) == [Path("a.txt"), Path("b.txt")]

    def test_a_name_that_looks_like_a_glob_is_a_file_first(self, tmp_path):
        path = write(tmp_path / "part[1].txt", "It rains .\n")
        assert expand_corpus([str(path)]) == [path]

    @pytest.mark.parametrize("pattern", ["none.txt", "none-*.txt", "folders-*"])
    def test_a_pattern_that_matches_no_file_is_named(self, tmp_path, pattern):
        write(tmp_path / "a.txt", "It rains .\n")
        (tmp_path / "folders-1").mkdir()
        message = rf"corpus: .*{pattern.replace('*', '.')} matches no file, expected the path"
        with pytest.raises(ConfigurationError, match=message):
            expand_corpus([str(tmp_path / "a.txt"), str(tmp_path / pattern)])

    def test_a_folder_is_refused_with_the_glob_to_write(self, tmp_path):
        with pytest.raises(ConfigurationError, match=r"is a folder.* with .*/\*\.txt\."):
            expand_corpus([str(tmp_path)])

    @pytest.mark.parametrize("patterns", [[], "lm/train.txt"])
    def test_something_else_than_a_list_of_patterns_is_refused(self, patterns):
        with pytest.raises(
            ConfigurationError, match=r"corpus: found .*, expected a list of at least"
        ):
            expand_corpus(patterns)

    def test_all_empty_files_are_named(self, tmp_path):
        write(tmp_path / "1.txt", "It rains .\n")
        write(tmp_path / "2.txt", "")
        write(tmp_path / "3.txt.gz", "")
        with pytest.raises(
            ConfigurationError, match=r"2 of 3 files are empty \(.*2\.txt, .*3\.txt\.gz\)"
        ):
            expand_corpus([str(tmp_path / "*")])

    def test_a_long_list_of_empty_files_is_cut(self, tmp_path):
        for number in range(7):
            write(tmp_path / f"{number}.txt", "")
        with pytest.raises(ConfigurationError, match=r"4\.txt, \.\.\.\), expected"):
            expand_corpus([str(tmp_path / "*")])

    def test_a_shard_that_is_a_broken_link_is_not_passed_over(self, tmp_path):
        write(tmp_path / "1.txt", "It rains .\n")
        (tmp_path / "2.txt").symlink_to("gone.txt")
        with pytest.raises(ConfigurationError, match=r"2\.txt: cannot be read \(.*No such file"):
            expand_corpus([str(tmp_path / "*.txt")])

    def test_a_file_that_only_claims_to_be_gzip_is_refused(self, tmp_path):
        (tmp_path / "1.txt.gz").write_bytes(b"It rains .\n")
        with pytest.raises(ConfigurationError, match=r"1\.txt\.gz: cannot be read \(Not a gzipped"):
            expand_corpus([str(tmp_path / "*")])


class TestReadSentences:
    def test_white_space_separates_tokens_and_blank_lines_are_skipped(self, corpus_file):
        write(corpus_file, "It  rains \t.\n\n \t\n  Łódź\tsleeps . \r\nlast line")
        assert list(read_sentences(corpus_file)) == [
            ["It", "rains", "."],
            ["Łódź", "sleeps", "."],
            ["last", "line"],
        ]
        assert list(read_sentences(str(corpus_file))) == list(read_sentences(corpus_file))

    def test_any_white_space_separates_tokens_as_in_embedding(self, corpus_file):
        for character in "\u00a0\u2009\u3000\u0085\u2028\u2029\x0b\x0c\x1c\r":
            write(corpus_file, f"8{character}1/2 km\n{character}\n.\n")
            assert list(read_sentences(corpus_file)) == [["8", "1/2", "km"], ["."]]
        # A zero-width space is none, and a byte order mark is no part of the text.
        write(corpus_file, "\ufeff8\u200b1/2 km\n")
        assert list(read_sentences(corpus_file)) == [["8\u200b1/2", "km"]]

    @given(
        sentences=st.lists(
            st.lists(
                st.text(st.characters(codec="utf-8"), min_size=1).filter(is_one_token),
                min_size=1,
            ),
            min_size=1,
        )
    )
    def test_what_was_joined_is_read_back(self, tmp_path_factory, sentences):
        path = tmp_path_factory.mktemp("corpus") / "a.txt.gz"
        write(path, "\n".join(" ".join(sentence) for sentence in sentences))
        assert list(read_sentences(path)) == sentences

    def test_bytes_that_are_not_utf8_are_named_with_file_and_line(self, corpus_file):
        write(corpus_file, b"It rains\n\nS\xe3o Paulo\n")
        message = rf"{corpus_file.name}, line 3: found the bytes b'\\xe3', expected UTF-8"
        with pytest.raises(ConfigurationError, match=message):
            list(read_sentences(corpus_file))

    def test_the_error_for_compressed_text_names_the_right_suffix(self, tmp_path):
        path = tmp_path / "corpus.txt"
        path.write_bytes(gzip.compress(b"It rains\n"))
        with pytest.raises(ConfigurationError, match=r"its name must end in \.gz"):
            list(read_sentences(path))

    def test_the_longest_line_is_read_and_a_longer_one_named(self, corpus_file):
        line = b"a " * (MAX_LINE_BYTES // 2 - 1) + b"a"
        write(corpus_file, line + b"\nb\n")
        assert [len(sentence) for sentence in read_sentences(corpus_file)] == [
            MAX_LINE_BYTES // 2,
            1,
        ]
        write(corpus_file, b"b\n" + line + b" a\n")
        message = (
            r"line 2: found a line of more than 1,000,000 bytes, expected one tokenized sentence"
        )
        with pytest.raises(ConfigurationError, match=message):
            list(read_sentences(corpus_file))

    def test_a_corpus_of_one_endless_line_is_refused_in_little_memory(self, tmp_path):
        path = tmp_path / "endless.txt.gz"
        with gzip.open(path, "wb", compresslevel=1) as file:
            for _ in range(50):
                file.write(b"no end " * (MAX_LINE_BYTES // 7))
        tracemalloc.start()
        with pytest.raises(
            ConfigurationError, match=r"endless\.txt\.gz, line 1: found a line of more"
        ):
            next(read_sentences(path))
        assert tracemalloc.get_traced_memory()[1] < 5 * MAX_LINE_BYTES
        tracemalloc.stop()

    @pytest.mark.parametrize("content", ["", "\n", " \n\t\n"])
    def test_a_file_without_a_sentence_is_refused(self, corpus_file, content):
        write(corpus_file, content)
        with pytest.raises(ConfigurationError, match=f"{corpus_file.name}: found no sentence"):
            list(read_sentences(corpus_file))

    def test_a_missing_file_is_refused(self, corpus_file):
        with pytest.raises(ConfigurationError, match=r"cannot be read \(.*No such file"):
            next(read_sentences(corpus_file))

    def test_a_gzip_file_that_was_cut_short_is_refused(self, tmp_path):
        path = write(tmp_path / "a.gz", "".join(f"sentence {i}\n" for i in range(9999)))
        path.write_bytes(path.read_bytes()[:-100])
        with pytest.raises(
            ConfigurationError, match=r"a\.gz: cannot be read .* complete gzip file"
        ):
            list(read_sentences(path))


class TestCorpusFile:
    def test_bytes_read_grows_to_the_size_of_the_file(self, corpus_file):
        # More than a gzip file reads at once: 128 KiB, since Python 3.12.
        write(corpus_file, "".join(f"sentence {i} .\n" for i in range(100_000)))
        with CorpusFile(corpus_file) as file:
            sentences = file.sentences()
            next(sentences)
            assert 0 < file.bytes_read < corpus_file.stat().st_size
            assert sum(1 for _ in sentences) == 99_999
            assert file.bytes_read == corpus_file.stat().st_size
