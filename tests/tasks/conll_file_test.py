import pytest
from allennlp.common.checks import ConfigurationError

from elmo_plugin.tasks.conll_file import SentencePlace, read_conll_sentences


def write(tmp_path, content):
    file_path = tmp_path / "data.conll"
    file_path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return file_path


def read_rows(file_path):
    return [sentence.rows(2, "token, tag") for sentence in read_conll_sentences(file_path)]


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
    ["It O\nrains O\n\n", "It\tO\nrains \t  O", "  It O \nrains O\t\n", "It O\r\nrains O\r\n\r\n"],
)
def test_white_space_around_columns_does_not_matter(tmp_path, content):
    assert read_rows(write(tmp_path, content)) == [[["It", "O"], ["rains", "O"]]]


@pytest.mark.parametrize("character", "\u00a0\u2009\u3000\u200b\u0085\u2028\u2029\x0b\x0c\x1c")
def test_other_white_space_belongs_to_the_token(tmp_path, character):
    token = f"8{character}1/2"
    assert read_rows(write(tmp_path, f"{token} O\nkm O\n")) == [[[token, "O"], ["km", "O"]]]


def test_a_byte_order_mark_is_no_part_of_the_first_token(tmp_path):
    assert read_rows(write(tmp_path, b"\xef\xbb\xbfIt O\n")) == [[["It", "O"]]]


@pytest.mark.parametrize("line, num_columns", [("rains", 1), ("rains VBZ O", 3)])
def test_a_wrong_number_of_columns_is_refused(tmp_path, line, num_columns):
    message = rf"line 2: found {num_columns} columns \('{line}'\), expected 2, as on the first line"
    with pytest.raises(ConfigurationError, match=message):
        read_rows(write(tmp_path, f"It O\n{line}\n"))


@pytest.mark.parametrize("content", ["", "\n\n", "-DOCSTART- O\n\n"])
def test_a_file_without_a_sentence_is_refused(tmp_path, content):
    with pytest.raises(ConfigurationError, match=r"data\.conll: found no sentence, expected"):
        read_rows(write(tmp_path, content))


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(ConfigurationError, match=r"data file: cannot find .*none\.conll"):
        read_rows(tmp_path / "none.conll")


def test_a_folder_is_refused(tmp_path):
    with pytest.raises(ConfigurationError, match="is a folder, expected a file"):
        read_rows(tmp_path)


def test_bytes_that_are_not_utf8_are_named_with_their_line(tmp_path):
    with pytest.raises(
        ConfigurationError, match=r"line 2: found the bytes b'\\xe3', expected UTF-8"
    ):
        read_rows(write(tmp_path, b"It O\nS\xe3o O\n"))


def test_places_can_be_told_apart_from_their_words():
    assert SentencePlace("train.conll", 7).of_token(0) == "train.conll, line 7"
