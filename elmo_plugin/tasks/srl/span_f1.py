"""Precision, recall and F1 of arguments, counted like CoNLL-2005's scorer does."""

from typing import Dict, FrozenSet, Iterable, List, NamedTuple, Sequence, Tuple

import torch
from allennlp.nn.util import dist_reduce_sum
from allennlp.training.metrics import Metric

from elmo_plugin.tasks.tags import split_tag, tags_to_spans

_CONTINUATION = "C-"
_EXCLUDED_ROLE = "V"


class Argument(NamedTuple):
    """
    A role, such as `ARG0`, `R-ARG0` or `ARGM-TMP`, but never one that starts with `C-`; and start and end
    (exclusive) of its pieces. There are several pieces if other words stand between them.
    """

    role: str
    pieces: Tuple[Tuple[int, int], ...]


@Metric.register("elmo_srl_span_f1")
class SrlSpanF1(Metric):
    """
    Precision, recall and F1 of arguments, overall and for each role, counted like `srl-eval.pl` of
    CoNLL-2005, which the paper used:

    - an argument is correct if its role and words are those of a gold argument of the same predicate;
    - `C-X` continues the last `X` before it: both are one argument, which is correct as a whole or not at
      all; without an `X` before it, it is an `X` itself;
    - a reference `R-X` is a separate role;
    - `V`, the predicate, and its continuations are not counted.

    AllenNLP's `SpanBasedF1Measure` differs: if there is a `C-X`, it makes one span from the first to the last
    span with `X` in its label, including `R-X` and all words between.

    In distributed training the counts of all workers are summed. `tags` are all BIO tags that may be gold or
    predicted, the same in all workers.
    """

    supports_distributed = True

    def __init__(self, tags: Iterable[str]) -> None:
        parts = (split_tag(tag, "BIO") for tag in tags if tag != "O")
        roles = {label.removeprefix(_CONTINUATION) for _, label in filter(None, parts)}
        self._roles = sorted(roles - {_EXCLUDED_ROLE})
        self._row_of = {role: row for row, role in enumerate(self._roles)}
        self.reset()

    def reset(self) -> None:
        # (num_roles, 3): how many arguments are correct, in excess, missed
        self._counts = torch.zeros(len(self._roles), 3, dtype=torch.long)

    def __call__(
        self, predicted_tags: Sequence[Sequence[str]], gold_tags: Sequence[Sequence[str]]
    ) -> None:
        """Count the arguments of predicates, from the predicted and the gold BIO tags of their sentences."""
        for predicted_of_one, gold_of_one in zip(predicted_tags, gold_tags, strict=True):
            predicted, gold = _counted(predicted_of_one), _counted(gold_of_one)
            columns = (predicted & gold, predicted - gold, gold - predicted)
            for column, arguments in enumerate(columns):
                for argument in arguments:
                    self._counts[self._row_of[argument.role], column] += 1

    def get_metric(self, reset: bool = False) -> Dict[str, float]:
        """
        Return the metrics since the last reset: `precision`, `recall` and `f1` over all roles, and the same
        for each role that was gold or predicted, such as `f1-ARG0`.
        """
        counts = dist_reduce_sum(self._counts)  # (num_roles, 3)
        metrics = _scores(counts.sum(dim=0).tolist(), "")
        for role, counts_of_role in zip(self._roles, counts.tolist()):
            if any(counts_of_role):
                metrics.update(_scores(counts_of_role, f"-{role}"))
        if reset:
            self.reset()
        return metrics


def tags_to_arguments(tags: Sequence[str]) -> List[Argument]:
    """Return the arguments that BIO tags mark, including `V`, in the order of their first pieces."""
    arguments: List[Argument] = []
    # The index of the last argument of each role.
    last_of: Dict[str, int] = {}
    for start, end, label in tags_to_spans(tags, "BIO"):
        role = label.removeprefix(_CONTINUATION)
        if label != role and role in last_of:
            continued = arguments[last_of[role]]
            pieces = (*continued.pieces, (start, end))
            arguments[last_of[role]] = Argument(role, pieces)
        else:
            last_of[role] = len(arguments)
            arguments.append(Argument(role, ((start, end),)))
    return arguments


def _counted(tags: Sequence[str]) -> FrozenSet[Argument]:
    return frozenset(
        argument for argument in tags_to_arguments(tags) if argument.role != _EXCLUDED_ROLE
    )


def _scores(counts: Sequence[int], suffix: str) -> Dict[str, float]:
    correct, excess, missed = counts
    precision = _ratio(correct, correct + excess)
    recall = _ratio(correct, correct + missed)
    f1 = _ratio(2 * precision * recall, precision + recall)
    return {f"precision{suffix}": precision, f"recall{suffix}": recall, f"f1{suffix}": f1}


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else 0.0
