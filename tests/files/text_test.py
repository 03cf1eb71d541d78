"""Files of text and JSON that users name: their size, kind, encoding and syntax are checked."""

import gzip
import io
import os
from pathlib import Path
from typing import Any

import pytest

from elmo_plugin.errors import ConfigurationError
from elmo_plugin.files.text import (
    MAX_DEPTH,
    MAX_LINE_BYTES,
    byte_lines,
    decoded_lines,
    open_text,
    read_json,
)


def nested(depth: int) -> str:
    return "[" * depth + "]" * depth


@pytest.mark.parametrize(
    "content, value",
    [
        (b'{"a": [1, "\xc3\xa9"]}', {"a": [1, "é"]}),
        (b"\xef\xbb\xbf[]", []),
        (b"1" * 4000, int("1" * 4000)),
        (nested(MAX_DEPTH).encode(), None),
    ],
)
def test_a_file_of_json(content: bytes, value: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(content)
    found = read_json(tmp_path / "file", "sizes")
    assert value is None or found == value


@pytest.mark.parametrize(
    "content, message",
    [
        (b"", r"file: not JSON \(Expecting value: line 1 column 1 \(char 0\)\), expected sizes\."),
        (b'{\n "a" 1}', r"not JSON \(Expecting ':' delimiter: line 2 column 6"),
        (b"1" * 5000, r"not JSON \(Exceeds the limit .* digits"),
        (nested(MAX_DEPTH + 1).encode(), r"not JSON \(more than 100 levels\)"),
        (nested(10_000).encode(), r"not JSON \(more than 100 levels\)"),
        (b"\x89HDF\r\n", r"not UTF-8 text \(invalid start byte at byte 0\), expected sizes\."),
        (b"[" + b" " * 10_000_000 + b"]", r"cannot be read \(more than 10,000,000 bytes\)"),
    ],
)
def test_a_wrong_content_is_named(content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(ConfigurationError, match=message):
        read_json(tmp_path / "file", "sizes")


@pytest.mark.parametrize(
    "name, message",
    [
        ("missing", r"missing: cannot be read \(No such file or directory\), expected sizes\."),
        ("folder", r"folder: cannot be read \(not a regular file\)"),
        ("pipe", r"pipe: cannot be read \(not a regular file\)"),
        ("/dev/zero", r"/dev/zero: cannot be read \(not a regular file\)"),
        ("a\0b", r"cannot be read \(.*embedded null byte\)"),
    ],
)
def test_a_path_of_no_file_is_named(
    name: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("folder").mkdir()
    os.mkfifo("pipe")
    with pytest.raises(ConfigurationError, match=message):
        read_json(name, "sizes")


def test_lines_end_at_line_feeds_only(tmp_path: Path) -> None:
    for name, write in (("plain", open), ("packed.gz", gzip.open)):
        with write(tmp_path / name, "wb") as file:
            file.write("\ufeffone\r\n\n\ufefftwo\x0b\u2028three".encode())
        with open_text(tmp_path / name) as file:
            lines = list(decoded_lines(file, name, "a sentence"))
        assert lines == ["one\r", "", "\ufefftwo\x0b\u2028three"]


def test_the_longest_line_may_end_in_a_line_feed() -> None:
    line = b"a" * MAX_LINE_BYTES
    file = io.BytesIO(line + b"\n" + 3 * line + b"a\n" + line)
    lines = byte_lines(file, "in.txt", "a sentence", too_long=b"too long")
    assert list(lines) == [line, b"too long", line]


@pytest.mark.parametrize(
    "name, content, message",
    [
        ("none", None, r"none: cannot be read \(.*No such file"),
        (
            "cut.gz",
            gzip.compress(b"a" * 1000)[:-9],
            r"cut\.gz: cannot be read \(.*complete gzip file",
        ),
        ("plain.gz", b"plain", r"plain\.gz: cannot be read \(Not a gzipped file"),
        ("bytes", b"a\n\xff", r"bytes, line 2: found the bytes b'\\xff', expected UTF-8"),
        ("long", b"a\n" + b"b" * 1_000_001, "long, line 2: found a line of more than 1,000,000 by"),
    ],
)
def test_damaged_lines_are_named(name: str, content: Any, message: str, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(ConfigurationError, match=message), open_text(tmp_path / name) as file:
        list(decoded_lines(file, tmp_path / name, "a sentence"))
