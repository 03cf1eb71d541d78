"""All invalid input of a pretraining is an error before its first step."""

from pathlib import Path
from typing import Any, Optional

import pytest
from allennlp.common import Params
from allennlp.data import Vocabulary
from allennlp.models import Model

from elmo_plugin.errors import ConfigurationError
from elmo_plugin.pretraining import BiLMTrainingModel
from tests.pretraining.conftest import HELD_OUT, VOCABULARY_FILE, train

WORDS = Path(VOCABULARY_FILE).read_text().splitlines()


@pytest.fixture(autouse=True)
def no_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        BiLMTrainingModel, "forward", lambda *args, **batch: pytest.fail("training started")
    )


# What else a file of text can be wrong in: tests/files/text_test.py.
@pytest.mark.parametrize("key", ["train_data_path", "validation_data_path"])
@pytest.mark.parametrize(
    "content, message",
    [
        (None, r"there is no file .*b\.txt, and as a pattern it matches no file"),
        (b" \n\t\n", r"b\.txt: found no sentence"),
        (b"It rains .\nna\xefve\n", r"b\.txt, line 2: found the bytes b'\\xef', expected"),
    ],
)
def test_a_faulty_corpus_is_refused(
    content: Optional[bytes], message: str, key: str, tmp_path: Path
) -> None:
    if content is not None:
        (tmp_path / "b.txt").write_bytes(content)
    with pytest.raises(ConfigurationError, match=message):
        train(tmp_path / "run", **{key: [HELD_OUT, str(tmp_path / "b.txt")]})


# What else a vocabulary can be wrong in: lm_vocabulary_test.py.
@pytest.mark.parametrize("key", ["dataset_reader", "vocabulary"])
@pytest.mark.parametrize(
    "words, message",
    [
        (WORDS[3:], r"other\.txt, line 1: found '.*', expected <S>"),
        # A config names its vocabulary twice, and the two must be the same.
        (WORDS[:-1], r"vocabulary_file has other words .*: found 69\d words, expected 69\d"),
        (
            [*WORDS[:-2], *WORDS[:-3:-1]],
            r"vocabulary_file has other words .*: found '.*' in line 69\d,",
        ),
    ],
    ids=["no specials", "another one", "another order"],
)
def test_a_faulty_vocabulary_is_refused(words: Any, message: str, key: str, tmp_path: Path) -> None:
    path = tmp_path / "other.txt"
    path.write_text("".join(f"{word}\n" for word in words))
    with pytest.raises(ConfigurationError, match=message):
        train(tmp_path / "run", **{f"{key}.vocabulary_file": str(path)})


@pytest.mark.parametrize(
    "key, value, message",
    [
        ("model.softmax.num_samples", 9999, r"num_samples is 9999, expected 1 to 69\d, the vocabu"),
        ("data_loader.rows", 5000, r"\.txt: found .*\(rows 5000 x unroll_steps 10\)"),
        ("model.precision", "float16", "model.precision is 'float16', expected one of"),
        ("model.softmax_first", -1, "model.softmax_first is -1, expected 0 to inf"),
        ("model.dropout", 2, "model.dropout is 2.*, expected 0 to 1"),
        ("model.options.lstm.dim", -1, r"^model\.options: lstm\.dim is -1"),
    ],
)
def test_impossible_settings_are_refused(
    key: str, value: Any, message: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        train(tmp_path / "run", **{key: value})


def test_a_vocabulary_without_words_to_predict_is_refused() -> None:
    params = Params({"type": "elmo_bilm", "options": {}, "softmax": {"type": "elmo_full"}})
    with pytest.raises(ConfigurationError, match="no namespace 'lm_words', expected the words"):
        Model.from_params(params, vocab=Vocabulary())
