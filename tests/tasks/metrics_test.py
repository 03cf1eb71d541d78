import random
from typing import List, Set, Tuple

import pytest
from allennlp.common.testing import run_distributed_test

from elmo_plugin.tasks.metrics import SpanF1
from elmo_plugin.tasks.tags import find_tag_fault, tags_to_spans

LABELS = ["PER", "ORG", "LOC"]
# Predicted and gold spans of two sentences.
FIRST = [("PER", 0), ("ORG", 3)], [("PER", 0), ("PER", 3)]
SECOND = [("ORG", 1)], [("ORG", 1), ("ORG", 2)]
EXPECTED = {
    "precision": 2 / 3,
    "recall": 2 / 4,
    "f1": 4 / 7,
    "precision-ORG": 1 / 2,
    "recall-ORG": 1 / 2,
    "f1-ORG": 1 / 2,
    "precision-PER": 1.0,
    "recall-PER": 1 / 2,
    "f1-PER": 2 / 3,
}


def count_a_sentence(rank: int, world_size: int, gpu_id: int) -> None:
    metric = SpanF1(LABELS)
    metric(*(FIRST, SECOND)[rank])
    for reset in (False, True):
        measured = metric.get_metric(reset)
        assert list(measured) == list(EXPECTED)
        assert measured == pytest.approx(EXPECTED)
    assert metric.get_metric() == {"precision": 0.0, "recall": 0.0, "f1": 0.0}


def test_spans_of_all_workers_are_counted_before_anything_is_divided():
    run_distributed_test([-1, -1], func=count_a_sentence)


def conlleval_chunks(tags: List[str]) -> Set[Tuple[str, int, int]]:
    """
    Label, first and last token of chunks by the rules of conlleval, for any tags in IOB1 or BIO: one starts
    at `B-X`, and at an `I-X` that is not after a tag with the label X; other `I-X` continue it.
    """
    chunks: List[Tuple[str, int, int]] = []
    for index, tag in enumerate(tags):
        prefix, _, label = tag.partition("-")
        if prefix == "B" or (prefix == "I" and (index == 0 or tags[index - 1][2:] != label)):
            chunks.append((label, index, index))
        elif prefix == "I":
            chunks[-1] = (label, chunks[-1][1], index)
    return set(chunks)


@pytest.mark.parametrize("scheme", ["IOB1", "BIO"])
def test_spans_are_counted_as_conlleval_does(scheme):
    # Other tags are refused by readers, and not predicted by models.
    random_numbers = random.Random(13)
    sentences: List[List[str]] = []
    while len(sentences) < 400:
        tags = random_numbers.choices(["O", "I-PER", "B-PER", "I-ORG", "B-ORG"], k=6)
        if find_tag_fault(tags, scheme) is None:
            sentences.append(tags)
    metric, correct, num_predicted, num_gold = SpanF1(LABELS), 0, 0, 0
    for gold, predicted in zip(sentences[::2], sentences[1::2]):
        spans = [tags_to_spans(tags, scheme) for tags in (predicted, gold)]
        metric(*([(span.label, span) for span in of_tags] for of_tags in spans))
        chunks = conlleval_chunks(predicted), conlleval_chunks(gold)
        correct += len(chunks[0] & chunks[1])
        num_predicted += len(chunks[0])
        num_gold += len(chunks[1])
    measured = metric.get_metric()
    precision, recall = correct / num_predicted, correct / num_gold
    found = [measured[name] for name in ("precision", "recall", "f1")]
    f1 = 2 * precision * recall / (precision + recall)
    assert found == pytest.approx([precision, recall, f1])
