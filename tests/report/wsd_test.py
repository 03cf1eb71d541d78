import json
import math
import re
import statistics
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any, Dict, Tuple

import numpy
import pytest

from elmo_plugin import BiLM
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.report.wsd import (
    AmbiguousWord,
    NearestMean,
    SenseInstance,
    SenseOptions,
    compare_senses,
    read_senses,
)
from tests.conftest import TINY_OPTIONS
from tests.report.conftest import column, tables_of

# The word beside "bank", by its sense.
CONTEXTS = {"money": "loan", "river": "water"}
LAYERS = ["0 (characters)", "1", "2", "mean of all"]


class TestCompareSenses:
    @pytest.fixture
    def options(self, tmp_path: Path) -> SenseOptions:
        # Another column of the table has the mean.
        for name, count in (("mean", 30), ("shore", 24)):
            lines = []
            for number in range(count):
                sense = "river" if number % 3 == 0 else "money"
                tokens = [CONTEXTS[sense], "bank", f"x{number}"]
                lines.append(json.dumps({"tokens": tokens, "index": 1, "sense": sense}))
            (tmp_path / f"{name}.jsonl").write_text("\n".join([*lines, ""]))
        files = tuple(str(tmp_path / f"{name}.jsonl") for name in ("mean", "shore"))
        output = str(tmp_path / "results")
        return SenseOptions(files=files, output=output, model="elmo_mini", seeds=(1, 2), folds=3)

    def test_only_lstm_layers_distinguish_senses_by_context(
        self, options: SenseOptions, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        seeds: Counter = Counter()
        splits = AmbiguousWord.splits

        def counted(word: AmbiguousWord, folds: int, seed: int) -> Any:
            seeds[seed] += 1
            return splits(word, folds, seed)

        monkeypatch.setattr(AmbiguousWord, "splits", counted)
        report = compare_senses(options)
        # Each seed divides two words, for the baseline and for four layers with and without training.
        assert seeds == {1: 2 * 9, 2: 2 * 9}
        table, differences = tables_of(report)
        names = ["most frequent sense", *[options.bilm_name] * 4, *["random weights"] * 4]
        assert column(table, "vectors") == names
        assert column(table, "layer") == ["", *LAYERS, *LAYERS]
        baseline, characters, first, second = column(table, "mean (%)")[:4]
        assert 65 < baseline < 68  # about two thirds: folds are not all of one size
        # Characters are the same everywhere, so that the most frequent sense is given.
        assert characters == baseline and first > 90 and second > 90
        assert column(table, "balanced mean (%)")[0] == 50.0
        words = [column(table, f"{word}, accuracy (%)") for word in ("mean", "shore")]
        means = zip(*words)
        for mean, both in zip(column(table, "mean (%)"), means, strict=True):
            assert abs(mean - sum(both) / 2) <= 0.0101  # three roundings to two decimals
        assert differences.rows[0][:3] == ["1", "0 (characters)", 2]
        assert differences.rows[0][3] > 40
        assert table.settings["folds"] == 3
        assert "30 occurrences, 2 senses" in table.settings["data"].values()
        assert sorted(report.files) == sorted(Path(options.output).iterdir())
        assert len(report.files) == 8

    def test_a_bilm_of_one_lstm_layer_without_control_and_with_one_seed(
        self, options: SenseOptions, tmp_path: Path
    ) -> None:
        bilm = BiLM(replace(TINY_OPTIONS, num_lstm_layers=1))
        bilm.save(tmp_path / "options.json", tmp_path / "weights.hdf5")
        given = replace(options, model=str(tmp_path), control=False, seeds=(1,))
        table = tables_of(compare_senses(given))[0]
        assert "random weights" not in column(table, "vectors")
        assert set(column(table, "std")) == {None}
        assert tables_of(compare_senses(given))[0] == table  # seeds determine everything

    @pytest.mark.parametrize(
        "changes, message",
        [
            ({"folds": 1}, "--folds: found 1, expected 2 or more"),
            ({"folds": 11}, r"mean\.jsonl: found .* 'river' \(10 different sentences\), 'mo"),
            ({"files": ("bank.jsonl", "bank.jsonl")}, "FILE: found bank, bank, expected files"),
        ],
    )
    def test_options_are_checked_before_a_bilm_is_loaded(
        self, changes: Dict[str, Any], message: str, options: SenseOptions
    ) -> None:
        with pytest.raises(ConfigurationError, match=message):
            compare_senses(replace(options, model="no_such_bilm", **changes))


class TestReadSenses:
    def write(self, path: Path, *lines: Any) -> Path:
        path.write_text("".join(f"{x if isinstance(x, str) else json.dumps(x)}\n" for x in lines))
        return path

    def instance(self, text: str, sense: str, index: int = 0) -> Dict[str, Any]:
        return {"tokens": text.split(), "index": index, "sense": sense}

    def test_a_word_is_named_after_its_file(self, tmp_path: Path) -> None:
        first = {**self.instance("a line", "text", 1), "id": "1"}
        path = self.write(tmp_path / "line.jsonl", first, "", self.instance("lines", "cord"))
        instances = [SenseInstance(("a", "line"), 1, "text"), SenseInstance(("lines",), 0, "cord")]
        assert read_senses(path, folds=1) == AmbiguousWord("line", instances)

    @pytest.mark.parametrize("senses, found", [("AAA", "'A' (3"), ("AABBC", "'C' (1")])
    def test_senses_that_cannot_be_divided_are_named(
        self, senses: str, found: str, tmp_path: Path
    ) -> None:
        lines = [self.instance(f"x {number}", sense) for number, sense in enumerate(senses)]
        path = self.write(tmp_path / "a.jsonl", *lines, lines[-1])  # a sentence counts once
        expected = rf"{re.escape(found)} different sentences.*two or more, each with at least 2"
        with pytest.raises(ConfigurationError, match=expected):
            read_senses(path, folds=2)

    @pytest.mark.parametrize(
        "line, message",
        [
            ("{", "line 2: Found a line that is not JSON"),
            ({"tokens": ["a"], "index": 0}, "line 2: .* expected 'sense'"),
            ({"tokens": ["a", "b"], "index": 2, "sense": "A"}, "line 2: 'index' is 2, expected"),
            ({"tokens": ["a"], "index": -1, "sense": "A"}, "line 2: 'index' is -1, expected"),
            ({"tokens": ["a"], "index": True, "sense": "A"}, "line 2: 'index' is True, expected"),
            ({"tokens": ["a"], "index": 0, "sense": 1}, "line 2: 'sense' is 1, expected a text"),
        ],
    )
    def test_a_wrong_line_is_named(self, line: Any, message: str, tmp_path: Path) -> None:
        path = self.write(tmp_path / "line.jsonl", self.instance("x", "B"), line)
        with pytest.raises(ConfigurationError, match=rf"line\.jsonl, {message}.*Correct the line"):
            read_senses(path, folds=1)


def word_of(*instances: Tuple[str, str]) -> AmbiguousWord:
    rows = [SenseInstance(tuple(text.split()), 0, sense) for text, sense in instances]
    return AmbiguousWord("line", rows)


def test_each_sentence_is_tested_once_and_each_part_has_its_share_of_each_sense() -> None:
    word = word_of(*((f"line {number % 12}", "AB"[number % 2]) for number in range(60)))
    orders = []
    for seed in (1, 2, 3, 3):
        orders.append([])
        for split in word.splits(3, seed):
            training, test = ({word.instances[index].tokens for index in side} for side in split)
            assert training and test and not training & test
            assert Counter(word.senses[split[1]]) == {"A": 10, "B": 10}
            orders[-1] += split[1].tolist()
        assert sorted(orders[-1]) == list(range(60))
    assert orders[0] != orders[1] != orders[2] == orders[3]


def test_a_vector_gets_the_sense_of_the_nearest_mean() -> None:
    generator = numpy.random.default_rng(1)
    training = generator.normal(size=(40, 6)).astype(numpy.float32)
    senses = generator.choice(["A", "B", "C"], size=40)
    vectors = generator.normal(size=(25, 6)).astype(numpy.float32)
    vectors[:3] = [training[senses == sense].mean(axis=0) for sense in "ABC"]
    expected = []
    for vector in vectors.tolist():  # in Python's own numbers
        cosines = {}
        for sense in "ABC":
            columns = zip(*training[senses == sense].tolist())
            mean = [statistics.fmean(values) for values in columns]
            dot = sum(a * b for a, b in zip(mean, vector))
            cosines[sense] = dot / math.hypot(*mean) / math.hypot(*vector)
        expected.append(max(cosines, key=cosines.__getitem__))
    assert len(set(expected)) == 3
    assert NearestMean().fit(training, senses).predict(vectors).tolist() == expected


@pytest.mark.parametrize(
    "senses, expected", [("AAABBBBBBB", "B"), ("AAAAAAABBB", "A"), ("BBBBBAAAAA", "A")]
)
def test_of_equally_near_senses_it_is_the_most_frequent(senses: str, expected: str) -> None:
    vector = numpy.random.default_rng(2).normal(size=(1, 50)).astype(numpy.float32)
    # The means of 3 and of 7 equal vectors differ only by rounding.
    training = numpy.repeat(vector, 10, axis=0)
    assert NearestMean().fit(training, numpy.array(list(senses))).predict(vector) == [expected]
