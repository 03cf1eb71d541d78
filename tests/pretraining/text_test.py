"""Text for pretraining: what is held out, how it is cut up, and which words are predicted."""

import gzip
import io
import resource
from collections import Counter
from pathlib import Path
from typing import Any, List

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmo_plugin.bilm.model_files import VOCABULARY_NAME
from elmo_plugin.embedding.sentences import InputOptions, SentenceSource, find_sources
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.pretraining import text as text_module
from elmo_plugin.pretraining.text import HELDOUT_NAME, PreparedText, prepare_text
from tests.conftest import write_parquet

OPTIONS = InputOptions(skip_blank=True, accept_control_characters=True)


def prepare(folder: Path, *texts: List[str], heldout: Any = (), **settings: Any) -> PreparedText:
    sources = []
    for number, lines in enumerate(texts):
        path = folder / f"in{number:03}.txt"
        folder.mkdir(exist_ok=True)
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        sources.append(SentenceSource(path, OPTIONS))
    return prepare_text(
        sources, heldout, folder / "out", settings.pop("max_size", 1000), **settings
    )


def train_files(folder: Path) -> List[List[str]]:
    files = sorted((folder / "out" / "text").glob("train-*.txt.gz"))
    return [gzip.decompress(file.read_bytes()).decode().splitlines() for file in files]


def heldout_lines(folder: Path) -> List[str]:
    return (folder / "out" / HELDOUT_NAME).read_text().splitlines()


@given(lengths=st.lists(st.integers(1, 9), min_size=1, max_size=30))
def test_each_sentence_is_trained_on_or_held_out_once_if_there_are_few_files(
    lengths: List[int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("text")
    texts = [
        [f"sentence {file} {line}" for line in range(length)] for file, length in enumerate(lengths)
    ]
    total = sum(lengths)
    if total < 2:
        with pytest.raises(
            ConfigurationError, match="too few to train on some and hold out others"
        ):
            prepare(folder, *texts)
        return
    prepared = prepare(folder, *texts)
    train = [line for lines in train_files(folder) for line in lines]
    heldout = heldout_lines(folder)
    assert len(heldout) == prepared.heldout_sentences == max(1, total // 20)
    assert len(train) == prepared.train_sentences
    everything = [line for lines in texts for line in lines]
    if len(lengths) < 20:
        assert heldout == everything[-len(heldout) :]
        assert sorted(train + heldout) == sorted(everything)
    else:  # whole files: none of them is trained on
        files_of = [{line.split()[1] for line in lines} for lines in (train, heldout)]
        assert not files_of[0] & files_of[1]


def test_a_file_with_most_of_the_text_is_not_held_out(tmp_path: Path) -> None:
    for number in range(20):
        texts = [["a b"] * (1000 if file == number else 10) for file in range(20)]
        prepared = prepare(tmp_path / str(number), *texts)
        assert prepared.heldout_sentences == 59  # a twentieth
        assert prepared.train_sentences == 1190 - 60
        assert prepared.heldout_from == "from 6 of 20 files, which are not trained on"


def test_training_files_have_sentences_from_everywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text_module, "SENTENCES_PER_FILE", 25)
    lines = [f"sentence number {number}" for number in range(100)]
    prepare(tmp_path, lines)
    files = train_files(tmp_path)
    assert files == [lines[start:95:4] for start in range(4)]


def test_long_text_does_not_need_more_files_than_a_process_may_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    num_open = len(list(Path("/dev/fd").iterdir()))
    monkeypatch.setattr(text_module, "SENTENCES_PER_FILE", 1)
    lines = [f"sentence number {number}" for number in range(500)]
    # As on macOS, which has 256 with those that a program has opened itself.
    resource.setrlimit(resource.RLIMIT_NOFILE, (num_open + 250, limits[1]))
    try:
        prepare(tmp_path, lines)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    train = [line for lines in train_files(tmp_path) for line in lines]
    assert sorted(train) == sorted(lines[:475])


def test_held_out_text_of_ones_own_is_all_that_is_held_out(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("held out\n" * 3)
    heldout = [SentenceSource(tmp_path / "mine.txt", OPTIONS)]
    prepared = prepare(tmp_path, ["a b"] * 40, heldout=heldout)
    assert heldout_lines(tmp_path) == ["held out"] * 3
    assert (prepared.train_sentences, prepared.train_words) == (40, 80)
    assert (prepared.heldout_sentences, prepared.heldout_words) == (3, 6)
    assert prepared.lines()["held out"] == f"6 words in 3 sentences, from {tmp_path}/mine.txt"


def test_a_plan_says_how_many_held_out_sentences_are_trained_on_too(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("held  out\na b c\na b\nheld out\n")
    heldout = [SentenceSource(tmp_path / "mine.txt", OPTIONS)]
    prepared = prepare(tmp_path, ["a b"] * 40, ["b", "held out"], heldout=heldout)
    assert prepared.heldout_seen == 3  # spaces do not matter, and each copy counts
    assert prepared.lines()["held out"].endswith("mine.txt; 3 of them are trained on too")
    # Without --heldout: copies in other files.
    lines = [f"sentence {number}" for number in range(10)]
    assert prepare(tmp_path / "files", *[lines] * 20).heldout_seen == 10


def test_texts_that_can_be_read_once_are_all_read_without_blank_lines(tmp_path: Path) -> None:
    sources = find_sources([io.StringIO("a b\n\n" * 10), io.StringIO("c  d\n" * 10)], OPTIONS)
    prepared = prepare_text(sources, [], tmp_path / "out", 1000)
    assert prepared.train_sentences == 19
    assert Counter(train_files(tmp_path)[0]) == {"a b": 10, "c d": 9}
    assert not list((tmp_path / "out" / "text").glob("input-*"))  # it would be there twice


def test_the_vocabulary_has_words_of_the_training_text_that_are_not_rare(tmp_path: Path) -> None:
    lines = ["the cat"] * 10 + ["the dog"] * 9 + ["one bird"] + ["rare rare"]
    prepared = prepare(tmp_path, lines)
    words = (tmp_path / "out" / VOCABULARY_NAME).read_text().split()
    assert words == ["<S>", "</S>", "<UNK>", "the", "cat", "dog"]  # "rare rare" is held out
    assert (prepared.distinct_words, prepared.vocabulary_words) == (5, 3)
    assert prepared.coverage == 38 / 40
    assert prepare(tmp_path, lines, max_size=5).vocabulary_words == 2
    # If no word occurs twice, all of them; special entries do not count.
    assert prepare(tmp_path, ["<UNK> one", "<UNK> two", "held out"]).vocabulary_words == 2


@pytest.mark.parametrize(
    "is_little, words", [(False, ["word", "three"]), (True, ["word", "three", "two"])]
)
def test_of_much_text_words_that_occur_twice_are_left_out(
    is_little: bool, words: List[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The documented sizes; a hundredth of them takes no seconds.
    assert (text_module.LITTLE_TEXT, text_module.MAX_HELDOUT_SENTENCES) == (1_000_000, 2000)
    monkeypatch.setattr(text_module, "LITTLE_TEXT", 10_000)
    monkeypatch.setattr(text_module, "MAX_HELDOUT_SENTENCES", 20)
    train = [["three", "two"], ["three", "two"], ["three"], *[[]] * 397]
    lines = [" ".join([*rare, *["word"] * (25 - len(rare))]) for rare in train]
    lines[-1] = lines[-1].removesuffix(" word" if is_little else "")
    prepared = prepare(tmp_path, [*lines, *["held out"] * 20])
    assert prepared.train_words == 10_000 - is_little
    # A twentieth would be 21.
    assert prepared.heldout_sentences == 20
    entries = (tmp_path / "out" / VOCABULARY_NAME).read_text().split()
    assert entries == ["<S>", "</S>", "<UNK>", *words]


@pytest.mark.parametrize(
    "num_characters, num_lines, is_said", [(17, 1, True), (16, 1, False), (17, 0, False)]
)
def test_a_plan_says_that_words_are_cut_as_in_text_that_is_not_split_into_words(
    num_characters: int, num_lines: int, is_said: bool, tmp_path: Path
) -> None:
    # 100 words to train on; the last five lines are held out. A Chinese character has three bytes.
    lines = ["\u8a9e" * num_characters] * num_lines + ["word"] * (100 - num_lines) + ["other"] * 5
    prepared = prepare(tmp_path, lines)
    assert prepared.train_words == 100
    said = prepared.lines().get("cut words", "")
    assert said.startswith("1.0% of the text, as they have more than 48 bytes") is is_said


def test_the_vocabulary_of_another_biLM_is_kept(tmp_path: Path) -> None:
    words = ["<S>", "</S>", "<UNK>", "cat"]
    prepared = prepare(tmp_path, ["the cat"] * 40, words=words)
    assert (tmp_path / "out" / VOCABULARY_NAME).read_text().split() == words
    assert prepared.coverage == 0.5


def test_text_that_can_be_read_once_is_split_once(tmp_path: Path) -> None:
    # spaCy's rules split what they have split again: "I", "'m" into "I", "'", "m".
    options = InputOptions(tokenizer="spacy", skip_blank=True, accept_control_characters=True)
    sources = find_sources(io.StringIO("I'm gonna go\n" * 2), options)
    prepare_text(sources, [], tmp_path / "out", 1000)
    assert train_files(tmp_path) == [["I 'm gon na go"]]


def test_tokens_with_white_space_are_counted_as_they_are_read_in_training(tmp_path: Path) -> None:
    rows = [["New York", "", "10\u00a0000"], ["two\nlines"]] * 2
    path = write_parquet(tmp_path / "in.parquet", sentence=rows)
    sources = [SentenceSource(path, OPTIONS)]
    prepared = prepare_text(sources, [], tmp_path / "out", 1000)
    assert train_files(tmp_path) == [["New York 10 000", "two lines", "New York 10 000"]]
    assert (prepared.train_sentences, prepared.train_words) == (3, 10)
    assert (prepared.heldout_sentences, prepared.heldout_words) == (1, 2)
    words = (tmp_path / "out" / VOCABULARY_NAME).read_text().split("\n")
    assert words == ["<S>", "</S>", "<UNK>", "000", "10", "New", "York", ""]
