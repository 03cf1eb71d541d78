"""All invalid input of a pretraining is an error before its first step."""

import json
from pathlib import Path
from typing import Any, List, NoReturn, Optional

import pytest
from allennlp.commands.train import train_model_from_file

from elmo_plugin.errors import ConfigurationError
from elmo_plugin.pretraining import BiLMTrainingModel

FIXTURES = Path(__file__).parents[2] / "fixtures" / "lm"
SENTENCES = (FIXTURES / "heldout.txt").read_bytes()
WORDS = (FIXTURES / "vocab.txt").read_text().splitlines()


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


# What else a file can be wrong in: corpus_files_test.py.
@pytest.mark.parametrize("key", ["train_data_path", "validation_data_path"])
@pytest.mark.parametrize(
    "second_shard, message",
    [
        (b"", r"1 of 2 files are empty \(.*shard-1\.txt\)"),
        (
            b"It rains .\nna\xefve\n",
            r"shard-1\.txt, line 2: found the bytes b'\\xef', expected UTF-8",
        ),
    ],
)
def test_a_faulty_corpus_is_refused(
    second_shard: bytes, message: str, key: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        train(tmp_path, **{key: shards(tmp_path, SENTENCES, second_shard)})


def test_a_corpus_of_too_few_sentences_is_refused_but_held_out_text_is_not(tmp_path: Path) -> None:
    few = shards(tmp_path, b"It rains .\n" * 5)
    with pytest.raises(
        ConfigurationError, match=r"shard-\*\.txt: found 20 words and sentence ends, .* rows"
    ):
        train(tmp_path, train_data_path=few)
    (tmp_path / "other").mkdir()
    with pytest.raises(pytest.fail.Exception, match=r"training started"):
        train(tmp_path / "other", validation_data_path=few)


# What else it can be wrong in: lm_vocabulary_test.py.
@pytest.mark.parametrize("key", ["dataset_reader", "vocabulary"])
@pytest.mark.parametrize(
    "words, message",
    [
        (WORDS[3:], r"other\.txt, line 1: found '.*', expected <S>"),
        # A config names its vocabulary twice, and the two must be the same.
        (
            WORDS[:-1],
            r"dataset_reader\.vocabulary_file has other words .*: found 69\d words, expected 69\d",
        ),
        (None, r"other\.txt: cannot be read"),
    ],
    ids=["no specials", "another one", "missing"],
)
def test_a_faulty_vocabulary_is_refused(
    words: Optional[List[str]], message: str, key: str, tmp_path: Path
) -> None:
    path = tmp_path / "other.txt"
    if words is not None:
        path.write_text("".join(f"{word}\n" for word in words))
    with pytest.raises(ConfigurationError, match=message):
        train(tmp_path, **{f"{key}.vocabulary_file": str(path)})


@pytest.mark.parametrize(
    "key, value, message",
    [
        (
            "model.softmax.num_samples",
            9999,
            rf"softmax\.num_samples is 9999, but the vocabulary has only {len(WORDS)} words",
        ),
        ("data_loader.rows", 5000, r"\.txt: found .*\(rows 5000 x unroll_steps 10\)"),
    ],
)
def test_numbers_larger_than_the_data_are_refused(
    key: str, value: int, message: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        train(tmp_path, **{key: value})
