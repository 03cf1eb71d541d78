import gzip
import random
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmo_plugin.errors import ConfigurationError
from elmo_plugin.files.text import MAX_LINE_BYTES
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


def test_files_are_sorted_and_each_comes_once(tmp_path, monkeypatch):
    for name in ("b.txt", "a.txt", "c.txt.gz", "inner/d.txt"):
        write(tmp_path / name, "It rains .\n")
    (tmp_path / "link.txt").symlink_to("b.txt")
    monkeypatch.chdir(tmp_path)
    patterns = ["b.txt", "*.txt", "c.txt.gz", "inner/../a.txt", "**/d.txt", str(tmp_path / "*")]
    found = [path.resolve().relative_to(tmp_path) for path in expand_corpus(patterns)]
    assert sorted(map(str, found)) == ["a.txt", "b.txt", "c.txt.gz", "inner/d.txt"]
    assert expand_corpus(["*.txt", "a.txt"]) == [Path("a.txt"), Path("b.txt")]


def test_white_space_separates_tokens_and_blank_lines_are_skipped(corpus_file):
    write(corpus_file, "It  rains \t.\n\n \t\n  Łódź\tsleeps . \r\nlast line")
    assert list(read_sentences(corpus_file)) == [
        ["It", "rains", "."],
        ["Łódź", "sleeps", "."],
        ["last", "line"],
    ]
    assert list(read_sentences(str(corpus_file))) == list(read_sentences(corpus_file))


def test_any_white_space_separates_tokens_as_in_embedding(corpus_file):
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
def test_what_was_joined_is_read_back(tmp_path_factory, sentences):
    path = tmp_path_factory.mktemp("corpus") / "a.txt.gz"
    write(path, "\n".join(" ".join(sentence) for sentence in sentences))
    assert list(read_sentences(path)) == sentences


def test_the_longest_line_is_read_and_a_longer_one_named(corpus_file):
    line = b"a " * (MAX_LINE_BYTES // 2 - 1) + b"a"
    write(corpus_file, line + b"\nb\n")
    assert [len(sentence) for sentence in read_sentences(corpus_file)] == [
        MAX_LINE_BYTES // 2,
        1,
    ]
    write(corpus_file, b"b\n" + line + b" a\n")
    message = r"line 2: found a line of more than 1,000,000 bytes, expected one tokenized sentence"
    with pytest.raises(ConfigurationError, match=message):
        list(read_sentences(corpus_file))


def test_a_corpus_of_one_endless_line_is_refused_in_little_memory(tmp_path):
    path = tmp_path / "endless.txt.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        for _ in range(50):
            file.write(b"no end " * (MAX_LINE_BYTES // 7))
    tracemalloc.start()
    with pytest.raises(ConfigurationError, match=r"endless\.txt\.gz, line 1: found a line of more"):
        next(read_sentences(path))
    assert tracemalloc.get_traced_memory()[1] < 5 * MAX_LINE_BYTES
    tracemalloc.stop()


def test_bytes_read_grows_to_the_size_of_the_file(corpus_file):
    # More than a gzip file reads at once: 128 KiB, since Python 3.12.
    write(corpus_file, "".join(f"sentence {i} .\n" for i in range(100_000)))
    with CorpusFile(corpus_file) as file:
        sentences = file.sentences()
        next(sentences)
        assert 0 < file.bytes_read < corpus_file.stat().st_size
        assert sum(1 for _ in sentences) == 99_999
        assert file.bytes_read == corpus_file.stat().st_size


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with a good file, bad ones, a broken link and a folder."""
    monkeypatch.chdir(tmp_path)
    files = {
        "good.txt": b"It rains .\n",
        "part[1].txt": b"It rains .\n",
        "blank.txt": b" \n\t\n",
        "latin.txt": b"It rains\n\nS\xe3o Paulo\n",
        "packed.txt": gzip.compress(b"It rains\n"),
        "plain.gz": b"It rains .\n",
        "cut.gz": gzip.compress(random.Random(0).randbytes(9999).hex().encode())[:-100],
        **{f"empty{number}.txt": b"" for number in range(7)},
    }
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "broken.txt").symlink_to("gone.txt")
    (tmp_path / "folder1").mkdir()


def test_a_name_that_looks_like_a_glob_is_a_file_first(folder):
    assert expand_corpus(["part[1].txt"]) == [Path("part[1].txt")]


@pytest.mark.parametrize(
    "patterns, message",
    [
        ([], r"corpus: found \[\], expected a list of at least"),
        ("good.txt", "corpus: found 'good.txt', expected a list of at least"),
        (["good.txt", "none.txt"], r"corpus: none\.txt matches no file, expected the path"),
        (["good.txt", "none*"], r"corpus: none\* matches no file, expected the path"),
        (["folder*"], r"corpus: folder\* matches no file"),
        (["folder1"], r"folder1 is a folder.* with .*/\*\.txt\."),
        (["good.txt", "empty[01].txt"], r"2 of 3 files are empty \(empty0\.txt, empty1\.txt\)"),
        (["empty*"], r"7 of 7 files are empty .*4\.txt, \.\.\.\), expected"),
        (["g*.txt", "b*k*.txt"], r"broken\.txt: cannot be read \(.*No such file"),
        (["plain.gz"], r"plain\.gz: cannot be read \(Not a gzipped"),
    ],
)
def test_a_faulty_corpus_is_refused(folder, patterns, message):
    with pytest.raises(ConfigurationError, match=message):
        expand_corpus(patterns)


@pytest.mark.parametrize(
    "name, message",
    [
        ("none.txt", r"none\.txt: cannot be read \(.*No such file"),
        ("blank.txt", r"blank\.txt: found no sentence"),
        ("empty1.txt", r"empty1\.txt: found no sentence"),
        ("latin.txt", r"latin\.txt, line 3: found the bytes b'\\xe3', expected UTF-8"),
        ("packed.txt", r"packed\.txt, line 1: .* its name must end in \.gz"),
        ("cut.gz", r"cut\.gz: cannot be read .* complete gzip file"),
    ],
)
def test_a_faulty_file_is_refused(folder, name, message):
    with pytest.raises(ConfigurationError, match=message):
        list(read_sentences(name))
