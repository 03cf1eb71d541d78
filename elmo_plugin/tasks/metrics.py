"""Metrics of spans, and what all metrics that are computed from sums over texts share."""

from typing import Any, Dict, Iterable, List, Tuple

import torch
from allennlp.nn.util import dist_reduce_sum
from allennlp.training.metrics import Metric
from torch import Tensor

Counts = List[Tuple[float, float, float, float]]
"""
Numerator and denominator of a precision, then of its recall; the mean of their F1s is a score. Counts of
texts can be added. Where a score is an accuracy or a mean, both fractions are the same.
"""


class SumMetric(Metric):
    """
    Base class of metrics that are computed from sums over texts; in distributed training, over those of all
    workers. A subclass adds to `_sums`, a tensor of the given shape, and defines `_from_sums`.
    """

    supports_distributed = True

    def __init__(self, *shape: int) -> None:
        self._sums = torch.zeros(shape, dtype=torch.double)

    def get_metric(self, reset: bool = False) -> Dict[str, float]:
        """Return the metrics since the last reset. Undefined ones are 0."""
        metrics = self._from_sums(dist_reduce_sum(self._sums))
        if reset:
            self.reset()
        return metrics

    def reset(self) -> None:
        self._sums.zero_()

    def _from_sums(self, sums: Tensor) -> Dict[str, float]:
        raise NotImplementedError


def ratio(part: float, whole: float) -> float:
    """Return `part / whole`, 0 if `whole` is 0."""
    return part / whole if whole else 0.0


def with_f1(precision: float, recall: float) -> Dict[str, float]:
    """Return `precision`, `recall` and their harmonic mean, `f1`."""
    f1 = ratio(2 * precision * recall, precision + recall)
    return {"precision": precision, "recall": recall, "f1": f1}


class SpanF1(SumMetric):
    """
    Precision, recall and F1 of labeled spans, over all labels and for each label with a gold or a predicted
    span, such as `f1-PER`. `labels` are those that may be predicted, the same in all workers; gold spans with
    another label count in the metrics over all labels. AllenNLP's `SpanBasedF1Measure` does not work in
    distributed training.
    """

    def __init__(self, labels: Iterable[str]) -> None:
        self._row_of = {label: row for row, label in enumerate(sorted(set(labels)))}
        # Numbers of correct, predicted and gold spans. The last row is for all other labels.
        super().__init__(len(self._row_of) + 1, 3)

    def __call__(
        self, predicted: Iterable[Tuple[str, Any]], gold: Iterable[Tuple[str, Any]]
    ) -> None:
        """Count the spans of a sentence, each a label and a place. A gold span must be matched exactly."""
        predicted_spans, gold_spans = set(predicted), set(gold)
        columns = (predicted_spans & gold_spans, predicted_spans, gold_spans)
        for column, spans in enumerate(columns):
            for label, _ in spans:
                self._sums[self._row_of.get(label, -1), column] += 1

    def counts(self) -> Counts:
        correct, num_predicted, num_gold = self._sums.sum(dim=0).tolist()
        return [(correct, num_predicted, correct, num_gold)]

    def _from_sums(self, sums: Tensor) -> Dict[str, float]:
        rows = zip(self._row_of, sums.tolist())
        counts_of = {f"-{label}": counts for label, counts in rows if any(counts)}
        metrics: Dict[str, float] = {}
        for suffix, counts in {"": sums.sum(dim=0).tolist(), **counts_of}.items():
            correct, num_predicted, num_gold = counts
            scores = with_f1(ratio(correct, num_predicted), ratio(correct, num_gold))
            metrics.update({f"{name}{suffix}": score for name, score in scores.items()})
        return metrics
