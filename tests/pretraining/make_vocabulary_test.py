import os
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmo_plugin.errors import ConfigurationError
from elmo_plugin.pretraining import make_vocabulary as module
from elmo_plugin.pretraining.make_vocabulary import make_vocabulary
from tests.conftest import vocabulary_words


class TestMakeVocabulary:
    def test_words_are_sorted_by_count_then_by_code_point(self, corpus):
        make_vocabulary([corpus], "vocab.txt")
        expected = b"<S>\n</S>\n<UNK>\nthe\na\nb\nz\n\xc3\xa9\n"
        assert Path("vocab.txt").read_bytes() == expected

    def test_files_can_be_given_in_any_order_and_number(self, corpus):
        make_vocabulary([corpus], "vocab.txt")
        make_vocabulary(["2.txt.gz", "1.txt", corpus], Path("other.txt"))
        assert vocabulary_words("other.txt") == vocabulary_words()

    def test_the_summary_has_the_counts(self, corpus):
        summary = make_vocabulary([corpus], "vocab.txt", min_count=2, max_size=5)
        assert summary == (2, 4, 10, 5, 2, 6)
        assert summary.coverage == pytest.approx(0.6)
        rows = [line.rsplit(maxsplit=1) for line in str(summary).splitlines()]
        assert rows == [
            ["files", "2"],
            ["sentences", "4"],
            ["tokens", "10"],
            ["types", "5"],
            ["types kept", "2"],
            ["entries, with <S>, </S>, <UNK>", "5"],
            ["coverage of the tokens", "60.00%"],
        ]

    def test_special_words_of_the_corpus_are_not_listed_again(self, tmp_path):
        (tmp_path / "a.txt").write_text("<S> it <UNK> </S> <unk>\n")
        summary = make_vocabulary([str(tmp_path / "a.txt")], tmp_path / "vocab.txt")
        assert vocabulary_words(tmp_path / "vocab.txt") == ["<unk>", "it"]
        assert (summary.num_tokens, summary.num_kept_tokens) == (5, 2)

    @given(
        sentences=st.lists(
            st.lists(st.sampled_from(["a", "b", "日", "ß", "<unk>", "''"]), min_size=1), min_size=1
        ),
        min_count=st.integers(1, 3),
        max_size=st.none() | st.integers(4, 8),
    )
    def test_the_file_equals_that_of_a_slow_count(
        self, tmp_path_factory, sentences, min_count, max_size
    ):
        folder = tmp_path_factory.mktemp("corpus")
        text = "".join(" ".join(sentence) + "\n" for sentence in sentences)
        (folder / "a.txt").write_text(text, encoding="utf-8")
        counts = Counter(text.split())
        expected = [word for word in sorted(counts) if counts[word] >= min_count]
        expected.sort(key=lambda word: -counts[word])
        if max_size is not None:
            expected = expected[: max_size - 3]
        arguments = ([str(folder / "a.txt")], folder / "vocab.txt", min_count, max_size)
        if not expected:
            with pytest.raises(
                ConfigurationError, match="--min-count: no word of the corpus occurs"
            ):
                make_vocabulary(*arguments)
            return
        summary = make_vocabulary(*arguments)
        assert vocabulary_words(folder / "vocab.txt") == expected
        assert summary.num_kept_tokens == sum(counts[word] for word in expected)


class TestBadInput:
    """Each is refused before any file of the corpus is read, or leaves nothing behind."""

    @pytest.fixture
    def unread(self, corpus, monkeypatch):
        def count_words(paths):
            raise AssertionError("the corpus was read")

        monkeypatch.setattr(module, "_count_words", count_words)
        return corpus

    @pytest.mark.parametrize("min_count", [0, -1])
    def test_a_count_below_one_is_an_error(self, unread, min_count):
        with pytest.raises(
            ConfigurationError, match=f"--min-count: found {min_count}, expected at"
        ):
            make_vocabulary([unread], "vocab.txt", min_count=min_count)

    def test_a_size_without_room_for_a_word_is_an_error(self, unread):
        with pytest.raises(ConfigurationError, match="--max-size: found 3, expected at least 4"):
            make_vocabulary([unread], "vocab.txt", max_size=3)

    def test_an_existing_file_is_kept(self, unread):
        Path("vocab.txt").write_text("former")
        with pytest.raises(ConfigurationError, match=r"--output: vocab\.txt exists.*--overwrite"):
            make_vocabulary([unread], "vocab.txt")
        assert Path("vocab.txt").read_text() == "former"

    def test_a_missing_folder_is_named(self, unread):
        with pytest.raises(
            ConfigurationError, match="--output: there is no folder missing to write"
        ):
            make_vocabulary([unread], "missing/vocab.txt")

    def test_a_folder_as_output_is_an_error(self, unread):
        with pytest.raises(ConfigurationError, match=r"--output: \. is a folder, expected a file"):
            make_vocabulary([unread], ".", overwrite=True)

    def test_a_folder_that_may_not_be_written_is_named(self, unread, monkeypatch):
        # Not by permissions: the superuser, as whom tests may run, writes anywhere.
        monkeypatch.setattr(os, "access", lambda path, mode: False)
        with pytest.raises(
            ConfigurationError, match="--output: nothing may be written in the folder"
        ):
            make_vocabulary([unread], "vocab.txt")

    def test_a_file_of_the_corpus_is_not_overwritten(self, unread):
        with pytest.raises(ConfigurationError, match=r"--output: 1\.txt is a file of the corpus"):
            make_vocabulary([unread], "1.txt", overwrite=True)

    @pytest.mark.parametrize("error", [KeyboardInterrupt, ConfigurationError])
    def test_an_interrupt_during_reading_leaves_nothing(self, corpus, monkeypatch, error):
        files = set(os.listdir())

        def sentences(file):
            yield ["the"]
            raise error("interrupted")

        monkeypatch.setattr(module.CorpusFile, "sentences", sentences)
        with pytest.raises(error):
            make_vocabulary([corpus], "vocab.txt")
        assert set(os.listdir()) == files

    def test_an_interrupt_during_writing_keeps_the_previous_file(self, corpus, monkeypatch):
        def replace(*args):
            raise KeyboardInterrupt

        Path("vocab.txt").write_text("former")
        files = set(os.listdir())
        monkeypatch.setattr(os, "replace", replace)
        with pytest.raises(KeyboardInterrupt):
            make_vocabulary([corpus], "vocab.txt", overwrite=True)
        assert Path("vocab.txt").read_text() == "former"
        assert set(os.listdir()) == files
