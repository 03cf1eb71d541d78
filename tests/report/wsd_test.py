import json
import math
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any, Callable, Dict, Optional, Tuple

import numpy
import pytest

from elmo_plugin.errors import ConfigurationError
from elmo_plugin.report import wsd
from elmo_plugin.report.probes import BiLMChoice
from elmo_plugin.report.wsd import (
    AmbiguousWord,
    SenseInstance,
    SenseOptions,
    compare_senses,
    nearest_senses,
    read_senses,
)
from tests.conftest import TINY_OPTIONS, BiLMFiles
from tests.report.conftest import column

# Beside "bank" is a word that says which one is meant.
CONTEXTS = {"money": "loan", "river": "water"}
LAYERS = ["0 (characters)", "1", "2", "mean of all"]


def word_of(*instances: Tuple[str, str]) -> AmbiguousWord:
    rows = [SenseInstance(tuple(text.split()), 0, sense) for text, sense in instances]
    return AmbiguousWord("line", "line.jsonl", rows, {})


def many(**counts: int) -> AmbiguousWord:
    texts = ((f"line {sense} {n}", sense) for sense, count in counts.items() for n in range(count))
    return word_of(*texts)


class TestCompareSenses:
    @pytest.fixture
    def files(self, tmp_path: Path) -> Tuple[str, ...]:
        paths = []
        for name, count in (("bank", 30), ("shore", 24)):
            lines = []
            for number in range(count):
                sense = "river" if number % 3 == 0 else "money"
                tokens = [CONTEXTS[sense], "bank", f"x{number}"]
                lines.append(json.dumps({"tokens": tokens, "index": 1, "sense": sense}))
            path = tmp_path / f"{name}.jsonl"
            path.write_text("\n".join([*lines, ""]))
            paths.append(str(path))
        return tuple(paths)

    @pytest.fixture
    def options(
        self, files: Tuple[str, ...], tmp_path: Path, bilm_files: BiLMFiles
    ) -> SenseOptions:
        model = BiLMChoice(**{name: str(path) for name, path in bilm_files._asdict().items()})
        output = str(tmp_path / "results")
        return SenseOptions(files=files, output=output, model=model, seeds=(1, 2), folds=3)

    def test_only_lstm_layers_distinguish_senses_by_context(self, options: SenseOptions) -> None:
        report = compare_senses(options)
        table, words, differences = report.tables
        names = ["most frequent sense", *[options.model.name] * 4, *["random weights"] * 4]
        assert column(table, "vectors") == names
        assert column(table, "layer") == ["", *LAYERS, *LAYERS]
        baseline, characters, first, second = column(table, "mean (%)")[:4]
        assert baseline == pytest.approx(200 / 3, abs=1.0)  # folds are not all of one size
        # Characters are the same everywhere, so that the most frequent sense is given.
        assert characters == baseline and first > 90 and second > 90
        assert column(table, "balanced mean (%)")[0] == 50.0
        assert column(table, "paper, F1 (%)") == [65.9, None, 67.4, 69.0, *[None] * 5]
        for row in table.rows:
            assert row[4] == pytest.approx((row[2] + row[3]) / 2, abs=0.011)
        assert [row[:3] for row in words.rows[::9]] == [["bank", 30, 2], ["shore", 24, 2]]
        assert column(words, "accuracy (%)")[:9] == column(table, "bank (%)")
        balanced = column(table, "balanced mean (%)")
        assert differences.rows[0][:3] == ["1", "0 (characters)", 2]
        assert differences.rows[0][3] == pytest.approx(balanced[2] - balanced[1], abs=0.011)
        assert sorted(report.files) == sorted(Path(options.output).iterdir())
        assert len(report.files) == 11

    def test_the_same_options_make_the_same_table(
        self, options: SenseOptions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        files = tuple(Path(file).name for file in options.files)
        model = BiLMChoice()
        given = replace(
            options, files=files, output="results", model=model, distance="euclidean", centre=True
        )
        given = replace(given, control=False, seeds=(1,))
        table = compare_senses(given).tables[0]
        assert "random weights" not in column(table, "vectors")
        assert table.settings["test parts"] == "3 folds"
        assert table.settings["data"][files[0]] == "30 occurrences, 2 senses"
        assert compare_senses(given).tables[0] == table

    def test_a_test_share_is_measured_once_for_each_seed(self, options: SenseOptions) -> None:
        table = compare_senses(replace(options, test_share=0.5, seeds=(1,), control=False)).tables[
            0
        ]
        assert set(column(table, "std")) == {None}
        assert table.settings["test parts"] == "a share of 0.5"

    def test_distance_and_centring_reach_the_measure(
        self, options: SenseOptions, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        calls = set()

        def spy(*arguments: Any) -> numpy.ndarray:
            calls.add(arguments[3:])
            return nearest_senses(*arguments)

        monkeypatch.setattr(wsd, "nearest_senses", spy)
        compare_senses(replace(options, distance="euclidean", centre=True, control=False))
        assert calls == {("euclidean", True)}

    def test_rare_senses_that_are_left_out_are_named(
        self, options: SenseOptions, files: Tuple[str, ...]
    ) -> None:
        with open(files[0], "a") as file:
            file.write('{"tokens": ["bank"], "index": 0, "sense": "tilt"}\n')
        with pytest.raises(ConfigurationError, match=r"the sense 'tilt' has 1 different sentences"):
            compare_senses(options)
        table = compare_senses(replace(options, min_instances=2, control=False)).tables[0]
        assert "left out, with their occurrences: bank: tilt (1)." in table.notes[-1]

    def test_the_papers_scores_are_for_two_lstm_layers(
        self, options: SenseOptions, write_bilm: Callable[..., BiLMFiles]
    ) -> None:
        files = write_bilm(replace(TINY_OPTIONS, num_layers=1), name="other")._asdict()
        model = BiLMChoice(**{name: str(path) for name, path in files.items()})
        table = compare_senses(replace(options, model=model, control=False)).tables[0]
        assert not any("paper" in name for name in table.columns)

    @pytest.mark.parametrize(
        "changes, message",
        [
            ({"folds": 1}, "--folds 1: makes no parts of .*n_splits=2 or more"),
            ({"test_share": 1.0}, r"--test-share 1\.0: makes no parts of"),
            (
                {"distance": "manhattan"},
                "distance is 'manhattan', expected one of cosine, euclidean",
            ),
            ({"seeds": (1, 1)}, r"--seeds: found \[1, 1\], expected"),
        ],
    )
    def test_options_that_make_no_comparison_are_refused(
        self, changes: Dict[str, Any], message: str, options: SenseOptions
    ) -> None:
        with pytest.raises(ConfigurationError, match=message):
            compare_senses(replace(options, **changes))

    def test_files_are_checked_before_a_bilm_is_loaded(self, options: SenseOptions) -> None:
        given = replace(options, model=BiLMChoice(bilm="none"), files=(options.files[0],) * 2)
        with pytest.raises(ConfigurationError, match="found 2 files for the word 'bank'"):
            compare_senses(given)


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
        assert read_senses(path) == AmbiguousWord("line", str(path), instances, {})

    def test_rare_senses_can_be_left_out(self, tmp_path: Path) -> None:
        lines = [self.instance("x", sense) for sense in "ABBCC"]
        word = read_senses(self.write(tmp_path / "a.jsonl", *lines), min_instances=2)
        assert word.left_out == {"A": 1} and word.senses.tolist() == list("BBCC")
        with pytest.raises(ConfigurationError, match="two or more of at least 3 instances"):
            read_senses(tmp_path / "a.jsonl", min_instances=3)

    @pytest.mark.parametrize(
        "line, message",
        [
            ("{", "line 2: Found a line that is not JSON"),
            ({"index": 0, "sense": "A"}, "line 2: .* expected exactly one of 'tokens'"),
            ({"tokens": ["a"], "sense": "A"}, "line 2: .* expected exactly one of 'index'"),
            ({"tokens": ["a"], "index": 0}, "line 2: .* expected exactly one of 'sense'"),
            ({"tokens": ["a", "b"], "index": 2, "sense": "A"}, "line 2: 'index' is 2, expected"),
            ({"tokens": ["a"], "index": -1, "sense": "A"}, "line 2: 'index' is -1, expected"),
            ({"tokens": ["a"], "index": True, "sense": "A"}, "line 2: 'index' is True, expected"),
            ({"tokens": ["a"], "index": 0, "sense": 1}, "line 2: 'sense' is 1, expected a text"),
        ],
    )
    def test_a_wrong_line_is_named(self, line: Any, message: str, tmp_path: Path) -> None:
        path = self.write(tmp_path / "line.jsonl", self.instance("x", "B"), line)
        with pytest.raises(ConfigurationError, match=rf"line\.jsonl, {message}.*Correct the line"):
            read_senses(path)


def parts_of(folds: int, test_share: Optional[float] = None) -> SenseOptions:
    return SenseOptions(files=(), output="", folds=folds, test_share=test_share)


class TestTestParts:
    def test_folds_hold_each_sense_in_its_proportion(self) -> None:
        word = many(A=20, B=11, C=7)
        parts = word.test_parts(1, parts_of(5))
        assert numpy.sum(parts, axis=0).tolist() == [1] * 38
        for part in parts:
            counts = Counter(word.senses[part])
            assert counts["A"] == 4 and counts["B"] in (2, 3) and counts["C"] in (1, 2)

    def test_a_share_is_of_each_sense(self) -> None:
        word = many(A=20, B=10)
        (part,) = word.test_parts(1, parts_of(5, 0.3))
        assert Counter(word.senses[part]) == {"A": 6, "B": 3}

    def test_the_seed_decides(self) -> None:
        word = many(A=30, B=30)
        first, again, other = (word.test_parts(seed, parts_of(3))[0].tolist() for seed in (1, 1, 2))
        assert first == again != other

    @pytest.mark.parametrize("share", [None, 0.4])
    def test_a_sentence_is_never_on_both_sides(self, share: Any) -> None:
        word = word_of(*((f"line {number % 12}", "AB"[number % 2]) for number in range(60)))
        for part in word.test_parts(3, parts_of(4, share)):
            sides = [
                {one.tokens for one, is_in in zip(word.instances, side) if is_in}
                for side in (part, ~part)
            ]
            assert sides[0] and not sides[0] & sides[1]

    def test_too_few_sentences_are_named(self) -> None:
        texts = [(f"line {n}", "A") for n in range(9)] + [("x", "B"), ("y", "B")]
        match = r"'B' has 2 different sentences \(2 instances\), expected at least 3, one for each"
        with pytest.raises(ConfigurationError, match=match + ".*--min-instances 3"):
            word_of(*texts).test_parts(1, parts_of(3))
        with pytest.raises(
            ConfigurationError, match=r"--test-share 0\.01: makes no parts of line\.jsonl"
        ):
            word_of(*texts).test_parts(1, parts_of(3, 0.01))


class TestNearestSenses:
    def test_it_is_the_sense_of_the_nearest_mean(self) -> None:
        generator = numpy.random.default_rng(1)
        training = generator.normal(size=(40, 6)).astype(numpy.float32)
        senses = generator.choice(["A", "B", "C"], size=40)
        vectors = generator.normal(size=(25, 6)).astype(numpy.float32)
        expected = []
        for vector in vectors.tolist():  # in Python's own numbers
            cosines = {}
            for sense in "ABC":
                mean = [
                    sum(values) / len(values) for values in zip(*training[senses == sense].tolist())
                ]
                dot = sum(a * b for a, b in zip(mean, vector))
                cosines[sense] = dot / math.hypot(*mean) / math.hypot(*vector)
            expected.append(max(cosines, key=cosines.__getitem__))
        assert len(set(expected)) == 3
        assert nearest_senses(training, senses, vectors).tolist() == expected

    def test_only_euclidean_distance_depends_on_length(self) -> None:
        training, senses = numpy.array([[10.0, 0.0], [1.0, 1.0]]), numpy.array(["A", "B"])
        vectors = numpy.array([[1.0, 0.1]])
        assert nearest_senses(training, senses, vectors) == ["A"]
        assert nearest_senses(training, senses, vectors, "euclidean") == ["B"]

    def test_centring_subtracts_what_all_have_in_common(self) -> None:
        training = numpy.array([[100.0, 1], [100, 1], [90, -1], [90, -1]])
        senses, vectors = numpy.array(list("AABB")), numpy.array([[80.0, 0.2]])
        assert nearest_senses(training, senses, vectors) == ["A"]
        assert nearest_senses(training, senses, vectors, centre=True) == ["B"]

    @pytest.mark.parametrize("distance", ["cosine", "euclidean"])
    def test_of_equally_near_senses_it_is_the_most_frequent(self, distance: str) -> None:
        vector = numpy.random.default_rng(2).normal(size=(1, 50)).astype(numpy.float32)
        # The means of 3 and of 7 equal vectors differ by rounding alone.
        training = numpy.repeat(vector, 10, axis=0)
        for senses, expected in (("AAABBBBBBB", "B"), ("AAAAAAABBB", "A"), ("BBBBBAAAAA", "A")):
            found = nearest_senses(training, numpy.array(list(senses)), vector, distance)
            assert found == [expected]
