import json
import shutil
import sys
from pathlib import Path
from typing import Any, Dict, List

import numpy
import pytest
import torch
from allennlp.commands import main
from allennlp.commands.train import train_model_from_file
from allennlp.predictors import Predictor

from elmo_plugin import SentenceScorer
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.pretraining.export import export_model
from elmo_plugin.pretraining.predictor import BiLMPredictor
from tests.closeness import assert_close

LM = Path(__file__).parents[2] / "fixtures" / "lm"
# The widest filter, the highway layer and the projection; two layers of an LSTM with 24 cells and 12 outputs
# for each step of the longest sentence, which has five words and the sentence marks; a logit and the
# exponentials of the vocabulary.
TERMS = (
    3 * 4 + 2 * 24 + (5 + 2) * 2 * (2 * 12 + 24) + 13 + len((LM / "vocab.txt").read_text().split())
)


@pytest.fixture(scope="module")
def archive_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive of a biLM that saw a few windows. The vocabulary file of its config is gone."""
    folder = tmp_path_factory.mktemp("pretrained")
    vocabulary_file = shutil.copy(LM / "vocab.txt", folder / "vocab.txt")
    overrides: Dict[str, Any] = {
        "train_data_path": str(LM / "heldout.txt"),
        "dataset_reader.vocabulary_file": str(vocabulary_file),
        "vocabulary.vocabulary_file": str(vocabulary_file),
        "trainer.num_epochs": 1,
        "trainer.cuda_device": -1,
    }
    train_model_from_file(
        LM / "experiment.jsonnet", folder / "run", overrides=json.dumps(overrides)
    )
    Path(vocabulary_file).unlink()
    return folder / "run" / "model.tar.gz"


@pytest.fixture(scope="module")
def predictor(archive_file: Path) -> Predictor:
    return Predictor.from_path(archive_file)


def assert_close_logs(found: float, expected: float) -> None:
    # Outputs of a step, and exponentials relative to their sum, are at most 1.
    assert_close(found, expected, terms=TERMS, scale=1.0, dtype=torch.float32)


def predict(archive_file: Path, lines: List[str], folder: Path, *arguments: str) -> List[Any]:
    (folder / "in.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    files = [str(archive_file), str(folder / "in.jsonl"), "--output-file", str(folder / "o.jsonl")]
    sys.argv = ["allennlp", "predict", *files, "--silent", *arguments]
    main()
    return [json.loads(line) for line in (folder / "o.jsonl").read_text("utf-8").splitlines()]


def test_it_does_what_elmo_score_does_with_the_exported_bilm(
    archive_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", sys.argv)
    export_model(archive_file, tmp_path / "my_bilm")
    scorer = SentenceScorer.from_files(tmp_path / "my_bilm")
    lines = [
        '{"sentence": "It was naïveish ."}',
        '{"tokens": ["It", "___", "."], "best": 3}',
        '{"tokens": ["It", "was", "a", "house", "."]}',
    ]
    first, best, last = predict(archive_file, lines, tmp_path, "--batch-size", "3")
    for answer in (first, last):
        expected = scorer.score_sentence(answer["tokens"]).as_json(with_words=True)
        assert answer.keys() == expected.keys()
        assert_close_logs(*numpy.log([answer["perplexity"], expected["perplexity"]]))
        for word, other in zip(answer["words"], expected["words"], strict=True):
            assert_close_logs(word["forward"], other["forward"])
            assert word["is_unknown"] == other["is_unknown"]
    assert first["tokens"] == ["It", "was", "naïveish", "."]
    assert first["num_unknown"] == 1
    expected_best = scorer.best_words(["It", "___", "."], 3)
    assert [word["word"] for word in best["best"]] == [word.word for word in expected_best]
    assert best["tokens"] == ["It", "___", "."]


@pytest.mark.parametrize(
    "line, message",
    [
        ("{", "Found a line that is not JSON"),
        ("{}", "Found the keys (none) in the input, expected exactly one of 'sentence', 'tokens'"),
        ('{"sentence": "a", "tokens": ["a"]}', "expected exactly one of 'sentence', 'tokens'"),
        ('{"sentence": " "}', "'sentence' is \" \", expected a text that is not empty"),
        ('{"tokens": []}', "'tokens' is [], expected a list of words that is not empty"),
        ('{"tokens": ["a", 5]}', "'tokens'[1] is 5, expected a word"),
        ('{"sentence": "___", "best": 0}', "'best' is 0, expected a positive whole number"),
        ('{"sentence": "___", "best": true}', "'best' is true, expected a positive whole number"),
        ('{"sentence": "___", "best": "5"}', "'best' is \"5\", expected a positive whole number"),
        ('{"sentence": "a", "best": 5}', "The sentence: found 0 blanks, expected one token ___"),
    ],
)
def test_an_invalid_line_does_not_stop_the_others(
    line: str, message: str, predictor: Predictor
) -> None:
    good = '{"sentence": "It was"}'
    before, answer, after = predictor.predict_batch_json([good, line, good])
    assert answer.keys() == {"error"}
    assert message in answer["error"]
    alone = predictor.predict_json({"tokens": ["It", "was"]})
    assert before["tokens"] == after["tokens"] == alone["tokens"]
    for answer in (before, after):
        assert_close_logs(*numpy.log([answer["perplexity"], alone["perplexity"]]))


def test_instances_of_the_reader_are_refused(predictor: Predictor) -> None:
    assert isinstance(predictor, BiLMPredictor)
    instance = predictor._dataset_reader.text_to_instance(["It"])
    with pytest.raises(ConfigurationError, match="--use-dataset-reader: the predictor elmo_bilm"):
        predictor.predict_instance(instance)
