import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmo_plugin.bilm.lm_vocabulary import SPECIALS, LMVocabulary
from elmo_plugin.errors import ConfigurationError

WORDS = [*SPECIALS, "the", "naïve", "8\u00a01/2", "<s>"]


def write(tmp_path, content):
    path = tmp_path / "vocab.txt"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_a_word_is_found_at_its_line(tmp_path):
    vocabulary = LMVocabulary.from_file(write(tmp_path, "".join(f"{w}\n" for w in WORDS)))
    assert vocabulary.words == WORDS
    assert len(vocabulary) == 7
    assert [vocabulary.index_of(word) for word in WORDS] == list(range(7))

    assert (vocabulary.begin, vocabulary.end, vocabulary.unknown) == (0, 1, 2)
    assert vocabulary.index_of("The") == vocabulary.index_of("") == vocabulary.unknown


def test_the_special_entries_can_have_another_order(tmp_path):
    # That of AI2's vocab-2016-09-10.txt, according to a description.
    vocabulary = LMVocabulary.from_file(write(tmp_path, "</S>\n<S>\n<UNK>\nthe\n"))
    assert vocabulary.words == ["</S>", "<S>", "<UNK>", "the"]
    assert (vocabulary.end, vocabulary.begin, vocabulary.unknown) == (0, 1, 2)
    vocabulary = LMVocabulary(["<UNK>", "<S>", "</S>", "the"])
    assert (vocabulary.unknown, vocabulary.begin, vocabulary.end) == (0, 1, 2)
    assert vocabulary.index_of("of") == 0


@pytest.mark.parametrize(
    "content, words",
    [
        (b"<S>\n</S>\n<UNK>\nthe", ["the"]),
        (b"<S>\r\n</S>\r\n<UNK>\r\nthe\r\n", ["the"]),
        (b"\xef\xbb\xbf<S>\n</S>\n<UNK>\nthe\n", ["the"]),
        ("<S>\n</S>\n<UNK> 7\nthe 90\nof\t90\nnaïve 1\n", ["the", "of", "naïve"]),
        ("<S>\n</S>\n<UNK> 7\n10\u00a0000 57\n", ["10\u00a0000"]),
    ],
)
def test_line_ends_byte_order_marks_and_counts_are_dropped(tmp_path, content, words):
    assert LMVocabulary.from_file(write(tmp_path, content)).words == [*SPECIALS, *words]


@given(
    words=st.lists(
        st.text(st.characters(exclude_characters=" \t\n\v\f\r", codec="utf-8"), min_size=1).filter(
            lambda word: word not in SPECIALS
        ),
        unique=True,
    )
)
def test_what_is_written_is_read_back(tmp_path_factory, words):
    path = tmp_path_factory.mktemp("vocabulary") / "vocab.txt"
    LMVocabulary([*SPECIALS, *words]).to_file(path)
    assert path.read_bytes() == "".join(f"{word}\n" for word in (*SPECIALS, *words)).encode()
    assert LMVocabulary.from_file(path).words == [*SPECIALS, *words]


@pytest.mark.parametrize("max_size", [None, 0, 2, 3, 4, 5, 6])
def test_it_has_at_most_the_size_that_is_given(max_size):
    counts = {"the": 3, "of": 3, "naïve": 1}  # of equal counts, by code point
    if max_size is not None and max_size <= len(SPECIALS):
        with pytest.raises(ConfigurationError, match="no word"):
            LMVocabulary.from_counts(counts, max_size=max_size)
    else:
        words = LMVocabulary.from_counts(counts, max_size=max_size).words
        assert words == [*SPECIALS, "of", "the", "naïve"][:max_size]


def test_special_entries_are_no_words_of_a_corpus() -> None:
    with pytest.raises(ConfigurationError, match="occurs 4 times, expected at most 3, the larg"):
        LMVocabulary.from_counts({"<UNK>": 50, "hello": 3}, min_count=4)


MARKS = "<S>\n</S>\n<UNK>\n"


@pytest.mark.parametrize(
    "content, message",
    [
        ("", "line 1: found the end of the file, expected <S>, </S>, <UNK> in"),
        ("the\nof\n", "line 1: found 'the', expected <S>, </S>, <UNK> in"),
        ("<S>\nthe\n</S>\n<UNK>\n", "line 2: found 'the', expected <S>, </S>"),
        ("<S>\n<S>\n<UNK>\n", "line 2: found '<S>', expected each word once: it is on line 1"),
        ("<S>\n</S>\n", "line 3: found the end of the file, expected <S>, </S>"),
        (MARKS + "the\nof\nthe\n", "line 6: found 'the', expected each word once: it is on line 4"),
        (MARKS + "the\n<S>\n", "line 5: found '<S>', expected each word once: it is on line 1"),
        (MARKS + "the\n\nof\n", "line 5: found '', expected one word"),
        (MARKS + "the of\n", "line 4: found 'the of', expected one word without white space"),
        (MARKS + "a\x0cb\n", r"line 4: found 'a\\x0cb', expected one word"),
        (
            MARKS + "of 12\nthe 5123\n",
            "line 5: found the count 5,123 of 'the' after the count 12, expected counts that do not",
        ),
        (MARKS.encode() + b"S\xe3o\n", r"line 4: found the bytes b'\\xe3'"),
    ],
)
def test_an_invalid_file_is_refused(tmp_path, content, message):
    with pytest.raises(ConfigurationError, match=rf"vocab\.txt, {message}"):
        LMVocabulary.from_file(write(tmp_path, content))
