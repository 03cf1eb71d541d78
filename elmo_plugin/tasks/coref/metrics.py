"""Compare predicted clusters of mentions with gold ones: the scores of CoNLL-2012."""

from collections import Counter
from typing import Callable, Dict, Hashable, List, NamedTuple, Sequence

import numpy
import torch
from allennlp.nn.util import dist_reduce_sum
from allennlp.training.metrics import Metric
from scipy.optimize import linear_sum_assignment

Clusters = Sequence[Sequence[Hashable]]


class ScoreParts(NamedTuple):
    """Numerators and denominators, to be summed over documents before they are divided."""

    precision_numerator: float
    precision_denominator: float
    recall_numerator: float
    recall_denominator: float


def muc(predicted: Clusters, gold: Clusters) -> ScoreParts:
    """
    Count links (Vilain et al. 1995). A gold cluster of n mentions has n - 1 links. If the prediction splits
    it into p clusters, where a mention without a cluster counts as one, p - 1 links are missing. Precision is
    the same with the sides exchanged.
    """

    parts: List[float] = []
    for clusters, others in ((predicted, gold), (gold, predicted)):
        # A mention that no other cluster contains counts as a separate part, and adds 0.
        parts.append(sum(share.total() - len(share) for share in _shares(clusters, others)))
        parts.append(sum(len(cluster) - 1 for cluster in clusters))
    return ScoreParts(*parts)


def b_cubed(predicted: Clusters, gold: Clusters) -> ScoreParts:
    """
    Count mentions (Bagga and Baldwin 1998). The recall of a gold mention is the part of its gold cluster that
    is in its predicted cluster, 0 if it has none. Precision is the same with the sides exchanged.
    """

    parts: List[float] = []
    for clusters, others in ((predicted, gold), (gold, predicted)):
        found = 0.0
        for cluster, share in zip(clusters, _shares(clusters, others)):
            # Each of `count` mentions has the same `count / len(cluster)`.
            found += sum(count * count for count in share.values()) / len(cluster)
        parts += [found, sum(len(cluster) for cluster in clusters)]
    return ScoreParts(*parts)


def ceaf_phi4(predicted: Clusters, gold: Clusters) -> ScoreParts:
    """
    Count entities (Luo 2005), also called CEAF_e: the one-to-one alignment of predicted and gold clusters
    with the greatest total similarity. The similarity of two clusters is `phi_4`, their Dice coefficient.
    """
    similarity = numpy.zeros((len(predicted), len(gold)))
    for row, share in enumerate(_shares(predicted, gold)):
        for column, count in share.items():
            similarity[row, column] = 2 * count / (len(predicted[row]) + len(gold[column]))
    total = float(similarity[linear_sum_assignment(similarity, maximize=True)].sum())
    return ScoreParts(total, len(predicted), total, len(gold))


CLUSTER_SCORES: Dict[str, Callable[[Clusters, Clusters], ScoreParts]] = {
    "muc": muc,
    "b_cubed": b_cubed,
    "ceaf": ceaf_phi4,
}
"""The three whose mean is the score of CoNLL-2012."""


def _shares(clusters: Clusters, others: Clusters) -> List[Counter]:
    """Return, for each of `clusters`, the number of its mentions in each of `others`, by index."""
    index_of = {mention: index for index, cluster in enumerate(others) for mention in cluster}
    return [
        Counter(index_of[mention] for mention in cluster if mention in index_of)
        for cluster in clusters
    ]


@Metric.register("elmo_coreference_scores")
class CoreferenceScores(Metric):
    """
    MUC, B-cubed and CEAF (phi 4) of predicted clusters, and the mean of the three, the score of CoNLL-2012
    (Pradhan et al. 2014); and the share of gold mentions that are among the kept spans.

    Like in the official scorer, numerators and denominators are summed over documents before they are
    divided, and mentions that only one side has lower the score of the other. In distributed training the
    sums are over all workers.
    """

    supports_distributed = True

    def __init__(self) -> None:
        self.reset()

    def __call__(
        self,
        predicted: Sequence[Clusters],
        gold: Sequence[Clusters],
        kept_spans: Sequence[Sequence],
    ) -> None:
        """
        Count documents: the predicted and the gold clusters of each, lists of mentions without a mention in
        two clusters; and the kept spans, which are the candidates for mentions.
        """
        sums = torch.zeros_like(self._sums)
        num_gold, num_recalled = 0, 0
        for document_predicted, document_gold, document_kept in zip(
            predicted, gold, kept_spans, strict=True
        ):
            sums += torch.tensor(
                [score(document_predicted, document_gold) for score in CLUSTER_SCORES.values()],
                dtype=torch.double,
            )
            gold_mentions = {mention for cluster in document_gold for mention in cluster}
            num_gold += len(gold_mentions)
            num_recalled += len(gold_mentions.intersection(document_kept))
        mentions = torch.tensor([num_recalled, num_gold], dtype=torch.double)
        self._sums += dist_reduce_sum(sums).cpu()
        self._mentions += dist_reduce_sum(mentions).cpu()

    def get_metric(self, reset: bool = False) -> Dict[str, float]:
        """
        Return `coref_f1`, `coref_precision` and `coref_recall`, the means of the three metrics;
        `mention_recall`; `muc_f1`, `b_cubed_f1` and `ceaf_f1`; and the precision and recall of each, such as
        `_muc_recall` (AllenNLP writes these to its metrics files, but not into progress bars). Undefined
        values are 0.
        """
        scores: Dict[str, Dict[str, float]] = {"precision": {}, "recall": {}, "f1": {}}
        for name, sums in zip(CLUSTER_SCORES, self._sums.tolist()):
            parts = ScoreParts(*sums)
            precision = _divide(parts.precision_numerator, parts.precision_denominator)
            recall = _divide(parts.recall_numerator, parts.recall_denominator)
            scores["precision"][name] = precision
            scores["recall"][name] = recall
            scores["f1"][name] = _divide(2 * precision * recall, precision + recall)
        metrics = {
            f"coref_{kind}": sum(of_kind.values()) / len(of_kind)
            for kind, of_kind in scores.items()
        }
        num_recalled, num_gold = self._mentions.tolist()
        metrics["mention_recall"] = _divide(num_recalled, num_gold)
        for kind, of_kind in scores.items():
            for name, value in of_kind.items():
                metrics[f"{'' if kind == 'f1' else '_'}{name}_{kind}"] = value
        if reset:
            self.reset()
        return metrics

    def reset(self) -> None:
        # A row for each score, with the columns of ScoreParts.
        self._sums = torch.zeros(len(CLUSTER_SCORES), len(ScoreParts._fields), dtype=torch.double)
        self._mentions = torch.zeros(2, dtype=torch.double)  # recalled, gold


def _divide(numerator: float, denominator: float) -> float:
    return numerator / denominator if denominator else 0.0
