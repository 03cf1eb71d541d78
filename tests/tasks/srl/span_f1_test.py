import os
import random
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path
from typing import Dict, List

import pytest
from allennlp.common.testing import run_distributed_test

from elmo_plugin.tasks.srl import SrlSpanF1
from elmo_plugin.tasks.srl.span_f1 import Argument, tags_to_arguments
from elmo_plugin.tasks.tags import Span, spans_to_tags

LABELS = ["ARG0", "ARG1", "C-ARG0", "C-ARG1", "R-ARG0", "C-R-ARG0", "ARGM-TMP", "C-ARGM-TMP", "C-V"]
TAGS = ["O", *(f"{prefix}-{label}" for label in [*LABELS, "V"] for prefix in "BI")]


def tags_of(num_tokens: int, *spans: Span) -> List[str]:
    return spans_to_tags(spans, num_tokens, "BIO")


def measure(predicted: List[str], gold: List[str]) -> Dict[str, float]:
    metric = SrlSpanF1(TAGS)
    metric([predicted], [gold])
    return metric.get_metric()


def scores(precision: float, recall: float, f1: float, suffix: str = "") -> Dict[str, float]:
    return {f"precision{suffix}": precision, f"recall{suffix}": recall, f"f1{suffix}": f1}


def test_arguments_are_right_with_their_role_and_all_their_words():
    # Gold:      [ARG0 The cat] [V chased] [ARG1 a mouse] [ARGM-TMP today]
    # Predicted: [ARG0 The cat] [V chased] [ARG1 a] [ARGM-TMP mouse today]
    gold = tags_of(
        6, Span(0, 2, "ARG0"), Span(2, 3, "V"), Span(3, 5, "ARG1"), Span(5, 6, "ARGM-TMP")
    )
    predicted = tags_of(
        6, Span(0, 2, "ARG0"), Span(2, 3, "V"), Span(3, 4, "ARG1"), Span(4, 6, "ARGM-TMP")
    )
    assert measure(predicted, gold) == pytest.approx(
        {
            **scores(1 / 3, 1 / 3, 1 / 3),
            **scores(1, 1, 1, "-ARG0"),
            **scores(0, 0, 0, "-ARG1"),
            **scores(0, 0, 0, "-ARGM-TMP"),
        }
    )


def test_a_continued_argument_is_right_as_a_whole_or_not_at_all():
    # [ARG1 The plan] , [ARG0 Ann] [V said] , [C-ARG1 was good]
    ann, said = Span(3, 4, "ARG0"), Span(4, 5, "V")
    gold = tags_of(8, Span(0, 2, "ARG1"), ann, said, Span(6, 8, "C-ARG1"))
    assert tags_to_arguments(gold) == [
        Argument("ARG1", ((0, 2), (6, 8))),
        Argument("ARG0", ((3, 4),)),
        Argument("V", ((4, 5),)),
    ]
    assert measure(gold, gold) == {
        **scores(1, 1, 1),
        **scores(1, 1, 1, "-ARG0"),
        **scores(1, 1, 1, "-ARG1"),
    }
    for wrong_part in (
        [Span(0, 2, "ARG1")],
        [Span(0, 2, "ARG1"), Span(6, 7, "C-ARG1")],
        [Span(0, 1, "ARG1"), Span(6, 8, "C-ARG1")],
        [Span(0, 2, "ARG1"), Span(6, 8, "C-ARGM-TMP")],
    ):
        wrong = tags_of(8, *wrong_part, ann, said)
        assert measure(wrong, gold)["recall-ARG1"] == 0.0
        assert measure(wrong, gold)["precision-ARG1"] == 0.0
        assert measure(wrong, gold)["recall"] == 0.5


def test_a_continuation_continues_the_last_argument_of_its_role():
    spans = [Span(0, 1, "ARGM-TMP"), Span(2, 3, "ARGM-TMP"), Span(4, 5, "C-ARGM-TMP")]
    assert tags_to_arguments(tags_of(8, *spans, Span(6, 7, "C-ARGM-TMP"))) == [
        Argument("ARGM-TMP", ((0, 1),)),
        Argument("ARGM-TMP", ((2, 3), (4, 5), (6, 7))),
    ]


def test_a_continuation_of_nothing_is_an_argument_itself():
    alone = tags_of(3, Span(0, 1, "C-ARG0"), Span(1, 2, "V"))
    assert measure(alone, tags_of(3, Span(0, 1, "ARG0"), Span(1, 2, "V"))) == {
        **scores(1, 1, 1),
        **scores(1, 1, 1, "-ARG0"),
    }
    # Before the argument as well: the scorer reads from left to right.
    assert tags_to_arguments(tags_of(3, Span(0, 1, "C-ARG0"), Span(2, 3, "ARG0"))) == [
        Argument("ARG0", ((0, 1),)),
        Argument("ARG0", ((2, 3),)),
    ]


def count_on_two_workers(global_rank: int, world_size: int, gpu_id: int) -> None:
    metric = SrlSpanF1(TAGS)
    gold = tags_of(3, Span(0, 1, "ARG0"), Span(1, 2, "V"), Span(2, 3, "ARG1"))
    # The workers see different roles.
    predicted = [gold, tags_of(3, Span(0, 1, "R-ARG0"), Span(1, 2, "V"))][global_rank]
    metric([predicted], [gold])
    for _ in range(2):
        measured = metric.get_metric()
        assert measured["precision"] == pytest.approx(2 / 3)
        assert measured["recall"] == pytest.approx(2 / 4)
        assert measured["recall-ARG1"] == pytest.approx(1 / 2)
        assert measured["precision-R-ARG0"] == 0.0


def test_workers_count_together():
    run_distributed_test([-1, -1], func=count_on_two_workers)


def find_srl_eval() -> str:
    """The scorer of CoNLL-2005, which comes with allennlp-models; empty if it cannot be run here."""
    spec = find_spec("allennlp_models")
    if spec is None or spec.origin is None or shutil.which("perl") is None:
        return ""
    script = Path(spec.origin).parent / "structured_prediction" / "tools" / "srl-eval.pl"
    return str(script) if script.is_file() else ""


def random_spans(random_numbers: random.Random, num_tokens: int, predicate: int) -> List[Span]:
    spans, start = [Span(predicate, predicate + 1, "V")], 0
    while start < num_tokens:
        end = min(start + random_numbers.choice([1, 1, 2, 3]), num_tokens)
        if start <= predicate < end:
            start = predicate + 1
            continue
        if random_numbers.random() < 0.7:
            spans.append(Span(start, end, random_numbers.choice(LABELS)))
        start = end
    return sorted(spans)


def changed(random_numbers: random.Random, spans: List[Span]) -> List[Span]:
    """Some spans shorter, with another label, or missing, as a model may predict them."""
    predicted = []
    for start, end, label in spans:
        change = random_numbers.choice(["keep"] * 5 + ["drop", "cut", "relabel"])
        if change == "cut" and end - start > 1:
            end -= 1
        elif change == "relabel":
            label = random_numbers.choice(LABELS)
        if change != "drop":
            predicted.append(Span(start, end, label))
    return predicted


def bracketed(spans: List[Span], num_tokens: int, predicate: int) -> str:
    """A sentence as the scorer reads it: a column of predicates and one of arguments."""
    cells = ["*"] * num_tokens
    for start, end, label in spans:
        cells[start] = f"({label}*"
        cells[end - 1] += ")"
    predicates = ["run" if index == predicate else "-" for index in range(num_tokens)]
    return "".join(f"{word} {cell}\n" for word, cell in zip(predicates, cells)) + "\n"


@pytest.mark.skipif(not find_srl_eval(), reason="needs perl and the srl-eval.pl of allennlp-models")
def test_counts_equal_those_of_the_scorer_of_conll_2005(tmp_path):
    random_numbers = random.Random(13)
    metric = SrlSpanF1(TAGS)
    gold_file, predicted_file = tmp_path / "gold", tmp_path / "predicted"
    with open(gold_file, "w") as gold_text, open(predicted_file, "w") as predicted_text:
        for _ in range(2000):
            num_tokens = random_numbers.randint(1, 12)
            predicate = random_numbers.randrange(num_tokens)
            gold = random_spans(random_numbers, num_tokens, predicate)
            predicted = changed(random_numbers, gold)
            metric([tags_of(num_tokens, *predicted)], [tags_of(num_tokens, *gold)])
            gold_text.write(bracketed(gold, num_tokens, predicate))
            predicted_text.write(bracketed(predicted, num_tokens, predicate))
    command = ["perl", find_srl_eval(), str(gold_file), str(predicted_file)]
    output = subprocess.run(
        command, capture_output=True, text=True, check=True, env={**os.environ, "LC_ALL": "C"}
    )
    expected: Dict[str, float] = {}
    # Rows of role, correct, excess, missed, precision, recall, F1; the last three in percent.
    for row in filter(lambda row: len(row) == 7, map(str.split, output.stdout.splitlines())):
        if row[0] != "V":
            suffix = "" if row[0] == "Overall" else f"-{row[0]}"
            expected.update(scores(*(float(value) / 100 for value in row[4:]), suffix))
    assert len(expected) == 3 * 5  # overall, ARG0, ARG1, ARGM-TMP, R-ARG0
    # Printed with two digits after the point.
    assert metric.get_metric() == pytest.approx(expected, abs=0.00005 + 1e-9)
