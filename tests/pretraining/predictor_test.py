import json
import sys
from pathlib import Path

import numpy
import pytest
from allennlp.commands import main
from allennlp.predictors import Predictor

from elmo_plugin import SentenceScorer
from elmo_plugin.errors import ConfigurationError
from tests.closeness import assert_close
from tests.pretraining.conftest import VOCABULARY_FILE, num_terms

# The longest sentence has five words and the sentence marks.
TERMS = num_terms(steps=5 + 2, num_words=len(Path(VOCABULARY_FILE).read_text().split()))
# Input, and the beginning of an error, which is its answer.
INVALID = {
    "{": "Found a line that is not JSON",
    "{}": "Found the keys (none) in the input, expected exactly one of 'sentence', 'tokens'",
    '{"sentence": "___", "best": 0}': "'best' is 0, expected a positive whole number",
    '{"sentence": "___", "best": true}': "'best' is true, expected a positive whole number",
    '{"sentence": "a", "best": 5}': "The sentence: found 0 blanks, expected one token ___",
    '{"sentence": "___ is ___", "best": 5}': "The sentence: found 2 blanks, expected one token ___",
}


def assert_close_logs(found: float, expected: float) -> None:
    # Outputs of a step, and exponentials relative to their sum, are at most 1.
    assert_close(found, expected, terms=TERMS, scale=1.0, dtype="float32")


def test_it_does_what_elmo_score_does_with_the_exported_bilm(
    pretrained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [
        '{"sentence": "It was naïveish ."}',
        '{"tokens": ["It", "___", "."], "best": 3}',
        *INVALID,
        '{"tokens": ["It", "was", "a", "house", "."]}',
    ]
    source, output = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text("\n".join(lines) + "\n", encoding="utf-8")
    command = ["allennlp", "predict", str(pretrained / "run" / "model.tar.gz"), str(source)]
    options = ["--output-file", str(output), "--silent", "--batch-size", "4"]
    monkeypatch.setattr(sys, "argv", [*command, *options])
    main()
    answers = [json.loads(line) for line in output.read_text("utf-8").splitlines()]
    first, best, *errors, last = answers

    scorer = SentenceScorer.from_files(pretrained / "export")
    for answer in (first, last):
        expected = scorer.score_sentence(answer["tokens"]).as_json(with_words=True)
        assert answer.keys() == expected.keys()
        assert_close_logs(*numpy.log([answer["perplexity"], expected["perplexity"]]))
        for word, other in zip(answer["words"], expected["words"], strict=True):
            assert_close_logs(word["forward"], other["forward"])
            assert_close_logs(word["backward"], other["backward"])
            assert word["is_unknown"] == other["is_unknown"]
        assert [word["word"] for word in answer["words"]] == answer["tokens"]
    assert first["tokens"] == ["It", "was", "naïveish", "."]
    assert first["num_unknown"] == 1
    expected_best = scorer.best_words(["It", "___", "."], 3)
    assert [word["word"] for word in best["best"]] == [word.word for word in expected_best]
    assert best["tokens"] == ["It", "___", "."]
    for answer, message in zip(errors, INVALID.values(), strict=True):
        assert answer.keys() == {"error"}
        assert answer["error"].startswith(message)


def test_other_input_from_python_is_refused(pretrained: Path) -> None:
    predictor = Predictor.from_path(pretrained / "run" / "model.tar.gz")
    with pytest.raises(ConfigurationError, match="Found the keys"):
        predictor.predict_json({})
    instance = predictor._dataset_reader.text_to_instance(["It"])
    with pytest.raises(ConfigurationError, match="--use-dataset-reader: the predictor elmo_bilm"):
        predictor.predict_instance(instance)
