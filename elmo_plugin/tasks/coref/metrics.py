"""Compare predicted clusters of mentions with gold ones: the scores of CoNLL-2012."""

from collections import Counter
from typing import Callable, Dict, Hashable, List, Sequence, Tuple

import numpy
import torch
from allennlp.nn.util import dist_reduce_sum
from allennlp.training.metrics import Metric
from scipy.optimize import linear_sum_assignment

Clusters = Sequence[Sequence[Hashable]]

# Each measure returns numerator and denominator of the precision of clusters, compared with gold ones. Recall
# is the same with the sides exchanged. Both are summed over documents before they are divided.


def muc(clusters: Clusters, gold: Clusters) -> Tuple[float, float]:
    """
    Count links (Vilain et al. 1995). A cluster of n mentions has n - 1 links. If the other side splits it
    into p clusters, where a mention without a cluster counts as one, p - 1 of them are wrong.
    """
    # A mention that no other cluster contains counts as a separate part, and adds 0.
    found = sum(share.total() - len(share) for share in _shares(clusters, gold))
    return found, sum(len(cluster) - 1 for cluster in clusters)


def b_cubed(clusters: Clusters, gold: Clusters) -> Tuple[float, float]:
    """
    Count mentions (Bagga and Baldwin 1998). The precision of a mention is the part of its cluster that is in
    its gold cluster, 0 if it has none.
    """
    found = 0.0
    for cluster, share in zip(clusters, _shares(clusters, gold)):
        # Each of `count` mentions has the same `count / len(cluster)`.
        found += sum(count * count for count in share.values()) / len(cluster)
    return found, sum(len(cluster) for cluster in clusters)


def ceaf_phi4(clusters: Clusters, gold: Clusters) -> Tuple[float, float]:
    """
    Count entities (Luo 2005), also called CEAF_e: the one-to-one alignment of clusters with the greatest
    total similarity. The similarity of two clusters is `phi_4`, their Dice coefficient.
    """
    similarity = numpy.zeros((len(clusters), len(gold)))
    for row, share in enumerate(_shares(clusters, gold)):
        for column, count in share.items():
            similarity[row, column] = 2 * count / (len(clusters[row]) + len(gold[column]))
    aligned = linear_sum_assignment(similarity, maximize=True)
    return float(similarity[aligned].sum()), len(clusters)


Measure = Callable[[Clusters, Clusters], Tuple[float, float]]
MEASURES: Dict[str, Measure] = {"muc": muc, "b_cubed": b_cubed, "ceaf": ceaf_phi4}
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

    As in the official scorer, mentions that only one side has lower the score of the other. In distributed
    training the sums are over all workers.
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
        for of_document in zip(predicted, gold, kept_spans, strict=True):
            clusters, gold_clusters, candidates = of_document
            for row, measure in enumerate(MEASURES.values()):
                precision = measure(clusters, gold_clusters)
                recall = measure(gold_clusters, clusters)
                self._sums[row] += torch.tensor([precision, recall], dtype=torch.double)
            mentions = {mention for cluster in gold_clusters for mention in cluster}
            num_kept = len(mentions.intersection(candidates))
            self._mentions += torch.tensor([num_kept, len(mentions)], dtype=torch.double)

    def get_metric(self, reset: bool = False) -> Dict[str, float]:
        """
        Return `coref_precision`, `coref_recall` and `coref_f1`, the means of the three measures;
        `mention_recall`; and the same of each measure, such as `muc_f1` and `_muc_recall`. AllenNLP writes
        names with a leading underscore to its metrics files, but not into progress bars. Undefined values
        are 0.
        """
        sums = dist_reduce_sum(self._sums).tolist()
        metrics: Dict[str, float] = {}
        means = {"precision": 0.0, "recall": 0.0, "f1": 0.0}
        for name, (of_precision, of_recall) in zip(MEASURES, sums):
            precision, recall = _divide(*of_precision), _divide(*of_recall)
            f1 = _divide(2 * precision * recall, precision + recall)
            metrics[f"_{name}_precision"] = precision
            metrics[f"_{name}_recall"] = recall
            metrics[f"{name}_f1"] = f1
            for kind, value in zip(means, (precision, recall, f1)):
                means[kind] += value / len(MEASURES)
        metrics.update({f"coref_{kind}": value for kind, value in means.items()})
        metrics["mention_recall"] = _divide(*dist_reduce_sum(self._mentions).tolist())
        if reset:
            self.reset()
        return metrics

    def reset(self) -> None:
        # For each measure precision and recall, of which each is a numerator and a denominator.
        self._sums = torch.zeros(len(MEASURES), 2, 2, dtype=torch.double)
        self._mentions = torch.zeros(2, dtype=torch.double)  # kept gold mentions, gold mentions


def _divide(numerator: float, denominator: float) -> float:
    return numerator / denominator if denominator else 0.0
