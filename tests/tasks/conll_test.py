import gzip
from pathlib import Path
from typing import List

import pytest

from elmo_plugin.errors import ConfigurationError
from elmo_plugin.tasks.conll import (
    Conll2012Sentence,
    read_conll_2012,
    read_conll_sentences,
)


def write(tmp_path, content):
    file_path = tmp_path / "data.conll"
    file_path.write_bytes(content.encode())
    return file_path


def read_columns(file_path):
    return [sentence.columns() for sentence in read_conll_sentences(file_path)]


def test_sentences_know_their_lines(tmp_path):
    file_path = write(tmp_path, "-DOCSTART- O\n\n\nIt O\nrains O\n-DOCSTART- O\nRain O\n \t\nSun O")
    sentences = list(read_conll_sentences(file_path))
    assert [sentence.lines for sentence in sentences] == [
        ["It O", "rains O"],
        ["Rain O"],
        ["Sun O"],
    ]
    assert [sentence.place.first_line for sentence in sentences] == [4, 7, 9]
    assert sentences[0].place.of_token(1) == f"{file_path}, line 5"


@pytest.mark.parametrize(
    "content",
    [
        "\ufeffIt O\nrains O\n\n",
        "It\tO\nrains \t  O",
        "  It O \nrains O\t\n",
        "It O\r\nrains O\r\n\r\n",
    ],
)
def test_white_space_around_columns_does_not_matter(tmp_path, content):
    assert read_columns(write(tmp_path, content)) == [[["It", "rains"], ["O", "O"]]]


@pytest.mark.parametrize("character", "\u00a0\u2009\u3000\u200b\u0085\u2028\u2029\x0b\x0c\x1c")
def test_other_white_space_belongs_to_the_token(tmp_path, character):
    token = f"8{character}1/2"
    assert read_columns(write(tmp_path, f"{token} O\nkm O\n")) == [[[token, "km"], ["O", "O"]]]


@pytest.mark.parametrize(
    "content, message",
    [
        ("It O\nrains\n", r"line 2: found 1 columns \('rains'\), expected at least 2 \(a token"),
        (
            "It O\nrains V O\n",
            r"line 2: found 3 columns \('rains V O'\), .* as many as on the first line",
        ),
    ],
)
def test_a_wrong_file_of_columns_is_refused(tmp_path, content, message):
    with pytest.raises(ConfigurationError, match=message):
        read_columns(write(tmp_path, content))


def row(index: int, word: str, *more: str) -> str:
    return "\t".join(["bc/x/1", "0", str(index), word, "NN", "*", "-", "-", "-", "Ann", "*", *more])


DOCUMENT = [
    "#begin document (bc/x/1); part 000",
    row(0, "Ann", "(ARG0*)", "*", "(1)"),
    row(1, "ran", "(V*)", "*", "-"),
    "",
    row(0, "8\u00a01/2", "-"),
    "",
    "#end document",
]


def write_lines(path: Path, lines: List[str]) -> Path:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def sentences_of(path: Path) -> List[Conll2012Sentence]:
    return [sentence for document in read_conll_2012(path) for sentence in document.sentences()]


def test_documents_have_names_parts_and_sentences_with_columns(tmp_path: Path) -> None:
    second = ["#begin document (b); part 012", row(0, "Hm", "-"), "#end document"]
    path = write_lines(tmp_path / "a.gold_conll", [*DOCUMENT, *second])
    documents = list(read_conll_2012(path))
    assert [document.place.document for document in documents] == [
        "bc/x/1, part 000",
        "b, part 012",
    ]
    first, number = documents[0].sentences()
    assert first.words == ["Ann", "ran"]
    assert first.arguments == [["(ARG0*)", "(V*)"], ["*", "*"]]
    assert first.coreference == ["(1)", "-"]
    assert first.speakers == ["Ann", "Ann"]
    assert first.place.of_token(1) == f"{path}, line 3, document bc/x/1, part 000"
    assert first.place.of_token(0, 4) == f"{path}, line 2, column 4, document bc/x/1, part 000"
    assert number.words == ["8\u00a01/2"] and number.arguments == []
    assert number.place.first_line == 5
    # The last sentence needs no blank line after it.
    assert documents[1].sentences()[0].words == ["Hm"]


def test_a_folder_means_all_of_its_files(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    (tmp_path / "cnn").mkdir()
    for name, part in (("cnn/1.gold_conll", "001"), ("a.v4_gold_conll", "002"), ("b", "003")):
        begin = DOCUMENT[0].replace("part 000", f"part {part}")
        write_lines(tmp_path / name, [begin, *DOCUMENT[1:]])
    write_lines(tmp_path / "a.auto_conll", ["something else"])
    # Compressed, and a folder with such a name.
    (tmp_path / "gold_conll").mkdir()
    text = (tmp_path / "b").read_bytes()
    (tmp_path / "gold_conll" / "b.gold_conll.gz").write_bytes(gzip.compress(text))
    # A link to a folder elsewhere.
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    write_lines(elsewhere / "1.gold_conll", [DOCUMENT[0].replace("000", "004"), *DOCUMENT[1:]])
    (tmp_path / "other").symlink_to(elsewhere)
    paths = [Path(document.unsplit[0].place.file_path) for document in read_conll_2012(tmp_path)]
    assert [str(path.relative_to(tmp_path)) for path in paths] == [
        "a.v4_gold_conll",
        "cnn/1.gold_conll",
        "gold_conll/b.gold_conll.gz",
        "other/1.gold_conll",
    ]
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigurationError, match="holds no file whose name ends in gold_conll"):
        list(read_conll_2012(tmp_path / "empty"))


def test_a_document_in_two_files_of_a_folder_is_an_error(tmp_path: Path) -> None:
    """As beside the compressed file that one was unpacked from."""
    write_lines(tmp_path / "a.gold_conll", [*DOCUMENT, *DOCUMENT])
    assert len(list(read_conll_2012(tmp_path))) == 2  # in one file it is the user's
    text = (tmp_path / "a.gold_conll").read_bytes()
    (tmp_path / "a.gold_conll.gz").write_bytes(gzip.compress(text))
    message = "a.gold_conll.gz, line 1, document bc/x/1, part 000: .* also in .*/a.gold_conll, exp"
    with pytest.raises(ConfigurationError, match=message):
        list(read_conll_2012(tmp_path))


def test_a_compressed_file_may_have_another_name_in_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_lines(tmp_path / "text", DOCUMENT)
    (tmp_path / "hash").write_bytes(gzip.compress((tmp_path / "text").read_bytes()))
    for module in ("conll", "reading"):
        name = f"elmo_plugin.tasks.{module}.local_path"
        monkeypatch.setattr(name, lambda *_: tmp_path / "hash")
    [document] = read_conll_2012("https://example.org/a.gold_conll.gz")
    assert document.place.file_path == "https://example.org/a.gold_conll.gz"


@pytest.mark.parametrize(
    "lines, message",
    [
        (["Ann NNP"], r"line 1: found 'Ann NNP', expected '#begin document \(NAME\)"),
        ([*DOCUMENT, row(0, "x", "-")], "line 8: found 'bc/x/1"),
        ([*DOCUMENT[:2], row(1, "ran", "*", "-"), "#end document"], "line 3, document .* found 13 columns"),
        ([DOCUMENT[0], "Ann NNP", "#end document"], r"found 2 columns .* expected at least 12"),
        ([*DOCUMENT[:-1], *DOCUMENT], "line 1, document bc/x/1, part 000: found no end, expected a line"),
        ([*DOCUMENT, *DOCUMENT[:-1]], "line 8, document bc/x/1, part 000: found no end, expected a line"),
        ([DOCUMENT[0], row(0, "[WORD]", "-"), DOCUMENT[-1]], r"line 2, column 4, .*found '\[WORD\]', expect"),
    ],
)  # fmt: skip
def test_a_wrong_file_is_refused_with_the_line(
    lines: List[str], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        sentences_of(write_lines(tmp_path / "a.gold_conll", lines))
