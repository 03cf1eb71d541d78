import os
import random
from collections import Counter
from typing import Dict, List

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmo_plugin.bilm.lm_vocabulary import (
    MIN_SAMPLE_TOKENS,
    SPECIALS,
    LMVocabulary,
    _left_out_log_ranks,
)
from elmo_plugin.errors import ConfigurationError

WORDS = [*SPECIALS, "the", "naïve", "8\u00a01/2", "<s>"]


def write(tmp_path, content):
    path = tmp_path / "vocab.txt"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


class TestLMVocabulary:
    def test_a_word_is_found_at_its_line(self, tmp_path):
        vocabulary = LMVocabulary.from_file(write(tmp_path, "".join(f"{w}\n" for w in WORDS)))
        assert vocabulary.words == WORDS
        assert len(vocabulary) == 7
        assert [vocabulary.index_of(word) for word in WORDS] == list(range(7))

    def test_the_three_marks_have_the_first_indices(self):
        vocabulary = LMVocabulary(WORDS)
        marks = (LMVocabulary.BEGIN, LMVocabulary.END, LMVocabulary.UNKNOWN)
        assert tuple(vocabulary.words[index] for index in marks) == SPECIALS
        assert marks == (0, 1, 2)

    def test_any_other_word_is_unknown(self):
        vocabulary = LMVocabulary(WORDS)
        assert vocabulary.index_of("The") == vocabulary.index_of("") == vocabulary.UNKNOWN

    @pytest.mark.parametrize(
        "content",
        [
            b"<S>\n</S>\n<UNK>\nthe",
            b"<S>\r\n</S>\r\n<UNK>\r\nthe\r\n",
            b"\xef\xbb\xbf<S>\n</S>\n<UNK>\nthe\n",
        ],
    )
    def test_line_ends_and_byte_order_marks_do_not_matter(self, tmp_path, content):
        assert LMVocabulary.from_file(write(tmp_path, content)).words == [*SPECIALS, "the"]

    @given(
        words=st.lists(
            st.text(
                st.characters(exclude_characters=" \t\n\v\f\r", codec="utf-8"), min_size=1
            ).filter(lambda word: word not in SPECIALS),
            unique=True,
        )
    )
    def test_what_is_written_is_read_back(self, tmp_path_factory, words):
        path = tmp_path_factory.mktemp("vocabulary") / "vocab.txt"
        LMVocabulary([*SPECIALS, *words]).to_file(path)
        assert LMVocabulary.from_file(path).words == [*SPECIALS, *words]

    def test_a_written_file_has_one_word_on_each_line_and_ordinary_permissions(self, tmp_path):
        path = tmp_path / "vocab.txt"
        LMVocabulary(WORDS).to_file(path)
        assert path.read_bytes() == "".join(f"{word}\n" for word in WORDS).encode()
        plain = tmp_path / "plain"
        plain.touch()
        assert path.stat().st_mode == plain.stat().st_mode

    def test_a_failed_write_leaves_only_the_previous_file(self, tmp_path, monkeypatch):
        def replace(*args):
            raise OSError("no space left")

        path = write(tmp_path, "former")
        monkeypatch.setattr(os, "replace", replace)
        with pytest.raises(OSError, match="no space left"):
            LMVocabulary(WORDS).to_file(path)
        assert path.read_text() == "former"
        assert os.listdir(tmp_path) == ["vocab.txt"]

    @pytest.mark.parametrize(
        "content, message",
        [
            ("", "line 1: found the end of the file, expected <S>"),
            ("the\nof\n", "line 1: found 'the', expected <S>: the first three lines are <S>, </S>"),
            ("<s>\n</s>\n<unk>\n", "line 1: found '<s>', expected <S>"),
            ("<S>\n<UNK>\n</S>\n", "line 2: found '<UNK>', expected </S>"),
            ("<S>\n</S>\n", "line 3: found the end of the file, expected <UNK>"),
            ("<S>\n</S>\nthe\n", "line 3: found 'the', expected <UNK>"),
            ("\n<S>\n</S>\n", "line 1: found '', expected <S>"),
        ],
    )
    def test_a_file_without_the_marks_in_order_is_refused(self, tmp_path, content, message):
        with pytest.raises(ConfigurationError, match=rf"vocab\.txt, {message}.*elmo vocab"):
            LMVocabulary.from_file(write(tmp_path, content))

    @pytest.mark.parametrize("word", ["the", "<S>"])
    def test_a_word_twice_is_refused_with_both_lines(self, tmp_path, word):
        content = "\n".join([*SPECIALS, "the", "of", word])
        line = ["<S>", "", "", "the"].index(word) + 1
        message = rf"vocab\.txt, line 6: found '{word}' again, which is already on line {line},"
        with pytest.raises(ConfigurationError, match=message):
            LMVocabulary.from_file(write(tmp_path, content))

    @pytest.mark.parametrize("empty", ["\n", "\n\n", "\nof\n"])
    def test_an_empty_line_is_refused(self, tmp_path, empty):
        content = "\n".join([*SPECIALS, "the", empty])
        with pytest.raises(
            ConfigurationError, match=r"line 5: found an empty line, expected one word"
        ):
            LMVocabulary.from_file(write(tmp_path, content))

    @pytest.mark.parametrize("word", ["the 5123", "the\t5123", " the", "the ", "a\rb", "a\x0cb"])
    def test_a_word_with_white_space_is_refused(self, tmp_path, word):
        content = "\n".join([*SPECIALS, word])
        with pytest.raises(
            ConfigurationError, match=r"line 4: found '.*', expected one word without"
        ):
            LMVocabulary.from_file(write(tmp_path, content))

    def test_bytes_that_are_not_utf8_are_named_with_their_line(self, tmp_path):
        content = b"<S>\n</S>\n<UNK>\nS\xe3o\n"
        with pytest.raises(ConfigurationError, match=r"line 4: found the bytes b'\\xe3'"):
            LMVocabulary.from_file(write(tmp_path, content))

    def test_a_file_of_one_long_line_is_refused(self, tmp_path):
        with pytest.raises(ConfigurationError, match=r"line 1: .*expected one word on each line"):
            LMVocabulary.from_file(write(tmp_path, b"a " * 1_000_000))

    def test_a_missing_file_is_refused(self, tmp_path):
        with pytest.raises(ConfigurationError, match=r"none\.txt: cannot read the vocabulary file"):
            LMVocabulary.from_file(tmp_path / "none.txt")


# A language of 2,000 words: the word of rank k has a probability of about 1/k, as Zipf found.
LANGUAGE = [f"{random.Random(rank).randrange(10**6):x}-{rank}" for rank in range(1, 2001)]


def draw(num_tokens: int, seed: int = 0, language: List[str] = LANGUAGE) -> Dict[str, int]:
    weights = [1 / rank for rank in range(1, len(language) + 1)]
    return Counter(random.Random(seed).choices(language, weights, k=num_tokens))


def by_falling_count(counts: Dict[str, int]) -> List[str]:
    return sorted(counts, key=lambda word: (-counts[word], word))


def check(words: List[str], sample: Dict[str, int]) -> None:
    LMVocabulary([*SPECIALS, *words], "vocab.txt").check_is_sorted(sample)


def refuses(words: List[str], sample: Dict[str, int]) -> bool:
    try:
        check(words, sample)
    except ConfigurationError:
        return True
    return False


@pytest.mark.parametrize("num_tokens", [MIN_SAMPLE_TOKENS, 1000, 50_000])
class TestCheckFallingCounts:
    def test_a_vocabulary_of_the_same_text_passes(self, num_tokens):
        sample = draw(num_tokens)
        check(by_falling_count(sample), sample)

    def test_a_vocabulary_of_other_text_passes(self, num_tokens):
        for seed in range(1, 20):
            check(by_falling_count(draw(num_tokens, seed)), draw(num_tokens))
            check(by_falling_count(draw(50_000, seed)), draw(num_tokens))

    def test_a_vocabulary_slightly_out_of_order_passes(self, num_tokens):
        randomness = random.Random(5)
        # Each word moves up or down by a factor of about two.
        ranks = {word: rank * 2 ** randomness.gauss(0, 1) for rank, word in enumerate(LANGUAGE, 1)}
        check(sorted(LANGUAGE, key=ranks.__getitem__), draw(num_tokens))

    def test_a_vocabulary_of_another_domain_passes(self, num_tokens):
        randomness = random.Random(5)
        # Content words differ, function words are common to all.
        other = LANGUAGE[:50] + randomness.sample(LANGUAGE[50:], len(LANGUAGE) - 50)
        check(by_falling_count(draw(50_000, 1, other)), draw(num_tokens))

    @pytest.mark.parametrize("order", ["alphabetical", "reversed", "shuffled"])
    def test_other_orders_are_refused(self, num_tokens, order):
        words = {
            "alphabetical": sorted(LANGUAGE),
            "reversed": LANGUAGE[::-1],
            "shuffled": random.Random(3).sample(LANGUAGE, len(LANGUAGE)),
        }[order]
        assert refuses(words, draw(num_tokens))


class TestCheckFallingCountsOnLittleEvidence:
    def test_the_error_names_the_file_and_words_out_of_order(self):
        counts = {f"rare{i:03}": 1 for i in range(500)} | {"the": 300, "of": 100}
        words = [*(word for word in counts if word != "the"), "the"]
        message = (
            r"vocab\.txt: the words are not sorted by descending frequency: 'rare000' \(line 4, 1 times "
            r"in the sample\) comes before 'the' \(line 505, 300 times in the sample\).*`elmo vocab"
        )
        with pytest.raises(ConfigurationError, match=message):
            check(words, counts)

    def test_no_order_is_refused_for_a_few_tokens(self):
        check(LANGUAGE[::-1], draw(MIN_SAMPLE_TOKENS - 1))
        check(LANGUAGE[::-1], {})
        check([], {"the": 1000})

    def test_words_outside_the_vocabulary_are_no_evidence(self):
        check(LANGUAGE[::-1], {f"other{i}": count for i, count in enumerate(draw(1000).values())})
        assert refuses(LANGUAGE[::-1], {**draw(1000), "other": 10**6, "<S>": 10**6})

    def test_words_of_equal_counts_may_be_in_any_order(self):
        for seed in range(50):
            randomness = random.Random(seed)
            check(
                by_falling_count(Counter(randomness.choices(LANGUAGE[:100], k=1000))),
                Counter(randomness.choices(LANGUAGE[:100], k=1000)),
            )
        check(LANGUAGE[::-1], dict.fromkeys(LANGUAGE, 10))

    @pytest.mark.parametrize("num_words", [1, 2, 3, 10])
    def test_a_few_words_by_falling_count_pass(self, num_words):
        for seed in range(20):
            sample = draw(300, seed, LANGUAGE[:num_words])
            check(LANGUAGE[:num_words], sample)

    @given(counts=st.lists(st.integers(1, 6), min_size=1, max_size=12))
    def test_the_order_of_other_text_is_judged_with_each_token_left_out(self, counts):
        log_ranks = numpy.log(numpy.arange(4, 4 + len(counts)))
        expected = []
        for word in range(len(counts)):
            left = [count - (other == word) for other, count in enumerate(counts)]
            places = [
                place for place, count in enumerate(sorted(left)[::-1]) if count == left[word]
            ]
            expected.append(log_ranks[places].mean())
        # Cumulated sums round otherwise than means.
        numpy.testing.assert_allclose(
            _left_out_log_ranks(numpy.array(counts, dtype=float), log_ranks), expected, atol=1e-12
        )
