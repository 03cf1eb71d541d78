"""What is wrong with the input of a pretraining is said before its first step, whatever it is."""

import json
import os
import tracemalloc
from pathlib import Path
from typing import Any, Callable, Dict, List, NoReturn, Union

import pytest
from allennlp.commands.train import train_model_from_file
from allennlp.common.checks import ConfigurationError

from elmo_plugin.pretraining import BiLMTrainingModel

FIXTURES = Path(__file__).parents[2] / "fixtures" / "lm"
SENTENCES = (FIXTURES / "heldout.txt").read_bytes()
WORDS = (FIXTURES / "vocab.txt").read_text().splitlines()

DataPath = Union[str, List[str]]


def train(tmp_path: Path, **overrides: Any) -> None:
    """As `allennlp train` does."""
    overrides = {"trainer.cuda_device": -1, **overrides}
    config = FIXTURES / "experiment.jsonnet"
    train_model_from_file(config, tmp_path / "run", json.dumps(overrides))


@pytest.fixture(autouse=True)
def no_step(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: Any, **kwargs: Any) -> NoReturn:
        pytest.fail("training started")

    monkeypatch.setattr(BiLMTrainingModel, "forward", fail)


def test_training_starts_with_good_input(tmp_path: Path) -> None:
    with pytest.raises(pytest.fail.Exception, match=r"training started"):
        train(tmp_path)


def shards(folder: Path, *contents: bytes) -> str:
    """Write a corpus of so many files."""
    for number, content in enumerate(contents):
        (folder / f"shard-{number}.txt").write_bytes(content)
    return str(folder / "shard-*.txt")


def an_empty_shard(folder: Path) -> DataPath:
    return shards(folder, SENTENCES, b"")


def a_blank_shard(folder: Path) -> DataPath:
    return shards(folder, SENTENCES, b"\n \n")


def a_missing_shard(folder: Path) -> DataPath:
    shards(folder, SENTENCES)
    return [str(folder / "shard-0.txt"), str(folder / "shard-1.txt")]


def a_broken_link(folder: Path) -> DataPath:
    (folder / "shard-1.txt").symlink_to(folder / "elsewhere.txt")
    return shards(folder, SENTENCES)


def a_glob_without_matches(folder: Path) -> DataPath:
    return str(folder / "*.gz")


def a_folder(folder: Path) -> DataPath:
    return str(folder)


def another_encoding(folder: Path) -> DataPath:
    return shards(folder, SENTENCES, b"It rains .\nna\xefve\n")


def half_a_gzip_file(folder: Path) -> DataPath:
    (folder / "shard.txt.gz").write_bytes(b"\x1f\x8b\x08\x00")
    return str(folder / "shard.txt.gz")


def one_endless_line(folder: Path) -> DataPath:
    data_path = shards(folder, SENTENCES, b"")
    os.truncate(folder / "shard-1.txt", 64 * 2**20)  # zeros that take no disk
    return data_path


CORPUS_FAULTS: Dict[Callable[[Path], DataPath], str] = {
    an_empty_shard: r"1 of 2 files are empty \(.*shard-1\.txt\)",
    a_blank_shard: r"shard-1\.txt: found no sentence",
    a_missing_shard: r"shard-1\.txt matches no file",
    a_broken_link: r"shard-1\.txt: cannot be read",
    a_glob_without_matches: r"\*\.gz matches no file",
    a_folder: r"is a folder, expected a file or a glob",
    another_encoding: r"shard-1\.txt, line 2: found the bytes b'\\xef', expected UTF-8",
    half_a_gzip_file: r"shard\.txt\.gz: cannot be read",
    one_endless_line: r"shard-1\.txt, line 1: found a line of more than 1,000,000 bytes",
}


@pytest.mark.parametrize("key", ["train_data_path", "validation_data_path"])
@pytest.mark.parametrize("fault", CORPUS_FAULTS, ids=lambda fault: fault.__name__)
def test_a_faulty_corpus_is_refused(
    fault: Callable[[Path], DataPath], key: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigurationError, match=CORPUS_FAULTS[fault]):
        train(tmp_path, **{key: fault(tmp_path)})


def test_a_corpus_of_too_few_sentences_is_refused_but_held_out_text_is_not(tmp_path: Path) -> None:
    few = shards(tmp_path, b"It rains .\n" * 5)
    with pytest.raises(
        ConfigurationError, match=r"shard-\*\.txt: found 20 words and sentence ends, .* rows"
    ):
        train(tmp_path, train_data_path=few)
    (tmp_path / "other").mkdir()
    with pytest.raises(pytest.fail.Exception, match=r"training started"):
        train(tmp_path / "other", validation_data_path=few)


def test_an_endless_line_is_not_held_in_memory(tmp_path: Path) -> None:
    data_path = one_endless_line(tmp_path)
    tracemalloc.start()
    with pytest.raises(ConfigurationError, match=r"1,000,000 bytes"):
        train(tmp_path, train_data_path=data_path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 16 * 2**20  # of 64


def test_more_rows_than_the_corpus_fills_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"\.txt: found .*\(rows 5000 x unroll_steps 10\)"):
        train(tmp_path, **{"data_loader.rows": 5000})


@pytest.mark.parametrize(
    "content, message",
    [
        (WORDS[3:], r"vocab\.txt, line 1: found '.*', expected <S>"),
        (WORDS[:2], r"vocab\.txt, line 3: found the end of the file, expected <UNK>"),
        ([], r"vocab\.txt, line 1: found the end of the file, expected <S>"),
        (
            WORDS[:3] + WORDS[:2:-1],
            r"vocab\.txt: the words are not sorted by descending frequency: '",
        ),
        ([*WORDS, WORDS[5]], rf"vocab\.txt, line {len(WORDS) + 1}: found '.*' again, .* line 6"),
        ([*WORDS[:9], "", *WORDS[9:]], r"vocab\.txt, line 10: found an empty line"),
        ([*WORDS[:9], "two words"], r"vocab\.txt, line 10: found 'two words'"),
        ([*WORDS[:9], "na\udcefve"], r"vocab\.txt, line 10: found the bytes b'\\xef'"),
        ([*WORDS[:9], "x" * 2_000_000], r"vocab\.txt, line 10: .* more than 1,000,000 bytes"),
    ],
    ids=["no specials", "few", "none", "unsorted", "twice", "empty", "space", "latin-1", "endless"],
)
def test_a_faulty_vocabulary_is_refused(content: List[str], message: str, tmp_path: Path) -> None:
    path = tmp_path / "vocab.txt"
    # Surrogates stand for bytes that are no UTF-8.
    path.write_text("".join(f"{word}\n" for word in content), errors="surrogateescape")
    keys = ("dataset_reader.vocabulary_file", "vocabulary.vocabulary_file")
    with pytest.raises(ConfigurationError, match=message):
        train(tmp_path, **dict.fromkeys(keys, str(path)))


@pytest.mark.parametrize("key", ["dataset_reader", "vocabulary"])
def test_a_missing_vocabulary_is_refused(key: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"none\.txt: cannot read the vocabulary file"):
        train(tmp_path, **{f"{key}.vocabulary_file": str(tmp_path / "none.txt")})


@pytest.mark.parametrize("key", ["dataset_reader", "vocabulary"])
def test_two_vocabularies_are_refused(key: str, tmp_path: Path) -> None:
    path = tmp_path / "other.txt"
    path.write_text("".join(f"{word}\n" for word in WORDS[:-1]))
    message = rf"dataset_reader\.vocabulary_file has .* one on line {len(WORDS)}: .*None"
    with pytest.raises(ConfigurationError, match=message):
        train(tmp_path, **{f"{key}.vocabulary_file": str(path)})


def test_more_negatives_than_words_are_refused(tmp_path: Path) -> None:
    message = rf"softmax\.num_samples is 9999, but the vocabulary has only {len(WORDS)} words"
    with pytest.raises(ConfigurationError, match=message):
        train(tmp_path, **{"model.softmax.num_samples": 9999})
