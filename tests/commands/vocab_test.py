"""`elmo vocab`, as users call it."""

from collections import Counter
from pathlib import Path
from typing import Any, List, Optional

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmo_plugin.commands.main import main
from elmo_plugin.commands.vocab import VocabularyOptions, make_vocabulary
from elmo_plugin.errors import ConfigurationError
from tests.conftest import vocabulary_words, write_parquet

WORDS = st.sampled_from(["a", "b", "日", "ß", "<unk>", "''", "<S>", "<UNK>"])


def test_words_are_sorted_by_count_then_by_code_point(corpus: str, capsys: Any) -> None:
    main(["vocab", corpus, "--output", "vocab.txt"])
    expected = b"<S>\n</S>\n<UNK>\nthe\na\nb\nz\n\xc3\xa9\n"
    assert Path("vocab.txt").read_bytes() == expected
    captured = capsys.readouterr()
    assert "counting words" in captured.err
    assert "4 sentences" in captured.err


def test_the_counts_are_printed(corpus: str, capsys: Any) -> None:
    options = ["--output", "vocab.txt", "--min-count", "2", "--max-size", "5"]
    main(["vocab", "1.txt", "2.txt.gz", *options])
    rows = [line.rsplit(maxsplit=1) for line in capsys.readouterr().out.splitlines()]
    assert rows == [
        ["files", "2"],
        ["sentences", "4"],
        ["tokens", "10"],
        ["types", "5"],
        ["types kept", "2"],
        ["entries, with <S>, </S>, <UNK>", "5"],
        ["coverage of the tokens", "60.00%"],
    ]


@given(
    sentences=st.lists(st.lists(WORDS, min_size=1), min_size=1),
    min_count=st.integers(1, 3),
    max_size=st.none() | st.integers(4, 8),
)
def test_the_file_equals_that_of_a_slow_count(
    tmp_path_factory: pytest.TempPathFactory,
    sentences: List[List[str]],
    min_count: int,
    max_size: Optional[int],
) -> None:
    folder = tmp_path_factory.mktemp("corpus")
    text = "".join(" ".join(sentence) + "\n" for sentence in sentences)
    (folder / "a.txt").write_text(text, encoding="utf-8")
    counts = Counter(text.split())
    # Special words of the corpus are tokens, but not listed again.
    words = counts.keys() - {"<S>", "<UNK>"}
    expected = sorted(word for word in words if counts[word] >= min_count)
    expected.sort(key=lambda word: -counts[word])
    expected = expected[: None if max_size is None else max_size - 3]
    output = str(folder / "vocab.txt")
    options = VocabularyOptions([str(folder)], output, min_count, max_size)
    if not expected:
        with pytest.raises(ConfigurationError, match="min_count: no word of the corpus occurs"):
            make_vocabulary(options)
        return
    summary = make_vocabulary(options)
    assert vocabulary_words(output) == expected
    covered = sum(counts[word] for word in expected) / counts.total()
    assert summary["coverage of the tokens"] == f"{covered:.2%}"


def test_a_parquet_column_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_parquet("in.parquet", text=["a b", "a"], other=["c", "d"])
    main(["vocab", "in.parquet", "--output", "vocab.txt", "--column", "text"])
    assert vocabulary_words(Path("vocab.txt")) == ["a", "b"]
