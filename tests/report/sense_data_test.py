import json
from collections import Counter
from pathlib import Path
from typing import Any, Callable, List, Optional, Tuple

import numpy
import pytest
from allennlp.common.checks import ConfigurationError

from elmo_plugin.report.sense_data import (
    AmbiguousWord,
    SenseInstance,
    check_distinct_names,
    read_senses,
)

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(*lines: Any, name: str = "line.jsonl") -> Path:
        path = tmp_path / name
        path.write_text(
            "".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines)
        )
        return path

    return write


def instance(text: str, sense: str, index: int = 0) -> dict:
    return {"tokens": text.split(), "index": index, "sense": sense}


def word_of(*instances: Tuple[str, str]) -> AmbiguousWord:
    return AmbiguousWord(
        "line",
        "line.jsonl",
        [SenseInstance(tuple(text.split()), 0, sense) for text, sense in instances],
        {},
    )


def many(**counts: int) -> AmbiguousWord:
    return word_of(
        *((f"line {sense} {n}", sense) for sense, count in counts.items() for n in range(count))
    )


class TestReadSenses:
    def test_a_word_is_called_after_its_file(self, write: Write) -> None:
        path = write({**instance("a line", "text", 1), "id": "1"}, "", instance("lines", "cord"))
        assert read_senses(path) == AmbiguousWord(
            "line",
            str(path),
            [SenseInstance(("a", "line"), 1, "text"), SenseInstance(("lines",), 0, "cord")],
            {},
        )

    def test_rare_senses_can_be_left_out(self, write: Write) -> None:
        lines = [instance("a", "A"), instance("b", "B"), instance("c", "B"), instance("d", "C")]
        word = read_senses(write(*lines, instance("e", "C")), min_instances=2)
        assert word.left_out == {"A": 1}
        assert word.senses == ["B", "B", "C", "C"]
        assert word.distinct_senses == ["B", "C"]

    @pytest.mark.parametrize(
        "line, message",
        [
            ("{", "line 2: Found a line that is not JSON"),
            ({"index": 0, "sense": "A"}, "line 2: .* expected exactly one of 'tokens'"),
            ({"tokens": ["a"], "sense": "A"}, "line 2: .* expected exactly one of 'index'"),
            ({"tokens": ["a"], "index": 0}, "line 2: .* expected exactly one of 'sense'"),
            (instance("a b", "A", 2), "line 2: 'index' is 2, expected .* 2 tokens, from 0 to 1"),
            (instance("a b", "A", -1), "line 2: 'index' is -1, expected"),
            ({**instance("a", "A"), "index": True}, "line 2: 'index' is True, expected"),
            ({**instance("a", "A"), "index": "0"}, "line 2: 'index' is '0', expected"),
            ({**instance("a", "A"), "sense": 1}, "line 2: 'sense' is 1, expected a text"),
        ],
    )
    def test_a_wrong_line_is_named(self, line: Any, message: str, write: Write) -> None:
        with pytest.raises(ConfigurationError, match=rf"line\.jsonl, {message}.*Correct the line"):
            read_senses(write(instance("x", "B"), line))

    def test_one_sense_is_too_few(self, write: Write) -> None:
        path = write(instance("a", "A"), instance("b", "A"))
        with pytest.raises(
            ConfigurationError, match=r"found the senses 'A' \(2 instances\), expec"
        ):
            read_senses(path)

    def test_one_sense_that_is_not_rare_is_too_few(self, write: Write) -> None:
        path = write(instance("a", "A"), instance("b", "A"), instance("c", "B"))
        with pytest.raises(ConfigurationError, match="two or more of at least 2 instances"):
            read_senses(path, min_instances=2)

    def test_words_of_one_name_are_refused(self) -> None:
        check_distinct_names([many(A=1), many(A=1)._replace(name="other")])
        with pytest.raises(ConfigurationError, match="the word of each would be called 'line'"):
            check_distinct_names([many(A=1), many(A=1)])


class TestTestParts:
    def test_each_instance_is_in_one_fold(self) -> None:
        parts = many(A=20, B=11).test_parts(1, 5)
        assert numpy.sum(parts, axis=0).tolist() == [1] * 31

    def test_folds_are_of_one_size_and_hold_each_sense_in_its_proportion(self) -> None:
        word = many(A=20, B=11, C=7)
        parts = word.test_parts(1, 5)
        assert sorted(part.sum() for part in parts) == [7, 7, 8, 8, 8]
        for part in parts:
            counts = Counter(sense for sense, is_in in zip(word.senses, part) if is_in)
            assert counts["A"] == 4
            assert counts["B"] in (2, 3) and counts["C"] in (1, 2)

    def test_a_share_is_taken_of_each_sense(self) -> None:
        word = many(A=20, B=10, C=2)
        (part,) = word.test_parts(1, 5, 0.3)
        counts = Counter(sense for sense, is_in in zip(word.senses, part) if is_in)
        assert counts == {"A": 6, "B": 3, "C": 1}

    @pytest.mark.parametrize("share", [0.01, 0.99])
    def test_each_side_of_a_share_holds_each_sense(self, share: float) -> None:
        word = many(A=4, B=2)
        (part,) = word.test_parts(1, 5, share)
        for side in (part, ~part):
            assert {sense for sense, is_in in zip(word.senses, side) if is_in} == {"A", "B"}

    def test_the_seed_decides(self) -> None:
        word = many(A=30, B=30)
        first, again, other = (word.test_parts(seed, 3)[0] for seed in (1, 1, 2))
        assert first.tolist() == again.tolist() != other.tolist()

    def test_a_sentence_is_never_on_both_sides(self) -> None:
        texts = [(f"line {number % 12}", "AB"[number % 2]) for number in range(60)]
        word = word_of(*texts)
        for share in (None, 0.4):
            for part in word.test_parts(3, 4, share):
                sides: List[set] = [
                    {one.tokens for one, is_in in zip(word.instances, side) if is_in}
                    for side in (part, ~part)
                ]
                assert sides[0] and not sides[0] & sides[1]

    @pytest.mark.parametrize(
        "share, message",
        [
            (None, r"'B' has 2 different sentences \(2 instances\), expected at least 3, one for"),
            (0.5, r"'C' has 1 different sentences \(2 instances\), expected at least 2, one to le"),
        ],
    )
    def test_a_sense_with_too_few_sentences_is_named(
        self, share: Optional[float], message: str
    ) -> None:
        word = word_of(
            *((f"line {number}", "A") for number in range(9)),
            *(("x", "B"), ("y", "B"), ("z", "C"), ("z", "C")),
        )
        with pytest.raises(ConfigurationError, match=message) as error:
            word.test_parts(1, 3, share)
        assert "--min-instances 3" in str(error.value)
