"""All invalid input of a pretraining is an error before its first step."""

import gzip
import json
from pathlib import Path
from typing import Any, NoReturn

import pytest
from allennlp.commands.train import train_model_from_file
from allennlp.common import Params
from allennlp.data import Vocabulary
from allennlp.models import Model

from elmo_plugin.errors import ConfigurationError
from elmo_plugin.pretraining import BiLMTrainingModel

FIXTURES = Path(__file__).parents[2] / "fixtures" / "lm"
SENTENCES = (FIXTURES / "heldout.txt").read_bytes()
WORDS = (FIXTURES / "vocab.txt").read_text().splitlines()


def train(tmp_path: Path, **overrides: Any) -> None:
    config = FIXTURES / "experiment.jsonnet"
    overrides = {"trainer.cuda_device": -1, **overrides}
    train_model_from_file(config, tmp_path / "run", json.dumps(overrides))


@pytest.fixture(autouse=True)
def no_step(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: Any, **kwargs: Any) -> NoReturn:
        pytest.fail("training started")

    monkeypatch.setattr(BiLMTrainingModel, "forward", fail)


@pytest.mark.parametrize("key", ["train_data_path", "validation_data_path"])
@pytest.mark.parametrize(
    "name, content, message",
    [
        ("b.txt", None, r"there is no file .*b\.txt, and as a pattern it matches no file"),
        ("b.txt", b"", r"b\.txt: found no sentence"),
        ("b.txt", b" \n\t\n", r"b\.txt: found no sentence"),
        ("b.txt", b"It rains .\nna\xefve\n", r"b\.txt, line 2: found the bytes b'\\xef', expected"),
        ("b.txt", b"a" * 1_000_001, r"b\.txt, line 1: found a line of more than 1,000,000 bytes"),
        ("b.txt", gzip.compress(b"It rains"), r"line 1: .* its name must end in \.gz"),
        ("b.gz", b"It rains .\n", r"b\.gz: cannot be read \(Not a gzipped"),
        ("b.gz", gzip.compress(SENTENCES)[:-100], r"b\.gz: cannot be read .* complete gzip file"),
    ],
)
def test_a_faulty_corpus_is_refused(
    name: str, content: bytes, message: str, key: str, tmp_path: Path
) -> None:
    (tmp_path / "a.txt").write_bytes(SENTENCES)
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(ConfigurationError, match=message):
        train(tmp_path, **{key: [str(tmp_path / "a.txt"), str(tmp_path / name)]})


def test_a_corpus_of_too_few_sentences_is_refused_but_held_out_text_is_not(tmp_path: Path) -> None:
    few = tmp_path / "few.txt"
    few.write_text("It rains .\n" * 5)
    with pytest.raises(
        ConfigurationError, match=r"few\.txt: found 20 words and sentence ends, .* rows"
    ):
        train(tmp_path, train_data_path=str(few))
    (tmp_path / "other").mkdir()
    with pytest.raises(pytest.fail.Exception, match=r"training started"):
        train(tmp_path / "other", validation_data_path=str(few))


# What else a vocabulary can be wrong in: lm_vocabulary_test.py.
@pytest.mark.parametrize("key", ["dataset_reader", "vocabulary"])
@pytest.mark.parametrize(
    "words, message",
    [
        (WORDS[3:], r"other\.txt, line 1: found '.*', expected <S>"),
        # A config names its vocabulary twice, and the two must be the same.
        (WORDS[:-1], r"vocabulary_file has other words .*: found 69\d words, expected 69\d"),
    ],
    ids=["no specials", "another one"],
)
def test_a_faulty_vocabulary_is_refused(words: Any, message: str, key: str, tmp_path: Path) -> None:
    path = tmp_path / "other.txt"
    path.write_text("".join(f"{word}\n" for word in words))
    with pytest.raises(ConfigurationError, match=message):
        train(tmp_path, **{f"{key}.vocabulary_file": str(path)})


@pytest.mark.parametrize(
    "key, value, message",
    [
        ("model.softmax.num_samples", 9999, "but the vocabulary has only .* Set num_samples to"),
        ("model.softmax.num_samples", 0, "num_samples is 0, expected 1 or more"),
        ("data_loader.rows", 5000, r"\.txt: found .*\(rows 5000 x unroll_steps 10\)"),
        ("model.dropout", 1.5, "model.dropout is 1.5, expected 0 to 1"),
        ("model.state_reset", 1.5, "model.state_reset is 1.5, expected 0 to 1"),
        ("model.precision", "float16", "model.precision is 'float16', expected one of"),
        ("model.softmax_first", -1, "model.softmax_first is -1, expected a number of batches"),
        ("model.options.lstm.dim", -1, r"^model\.options: lstm\.dim is -1"),
    ],
)
def test_impossible_settings_are_refused(
    key: str, value: Any, message: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        train(tmp_path, **{key: value})


def test_a_vocabulary_without_words_to_predict_is_refused() -> None:
    params = Params({"type": "elmo_bilm", "options": {}, "softmax": {"type": "elmo_full"}})
    with pytest.raises(ConfigurationError, match="no namespace 'lm_words', expected the words"):
        Model.from_params(params, vocab=Vocabulary())
