"""Compare predicted clusters of mentions with gold ones: the scores of CoNLL-2012."""

from collections import Counter
from typing import Dict, Hashable, List, Sequence, Tuple

import numpy
import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from elmo_plugin.tasks.metrics import Counts, SumMetric, ratio, with_f1

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


# The three whose mean is the score of CoNLL-2012.
MEASURES = {"muc": muc, "b_cubed": b_cubed, "ceaf": ceaf_phi4}


def _shares(clusters: Clusters, others: Clusters) -> List[Counter]:
    """Return, for each of `clusters`, the number of its mentions in each of `others`, by index."""
    index_of = {mention: index for index, cluster in enumerate(others) for mention in cluster}
    return [
        Counter(index_of[mention] for mention in cluster if mention in index_of)
        for cluster in clusters
    ]


class CoreferenceScores(SumMetric):
    """
    MUC, B-cubed and CEAF (phi 4) of predicted clusters, and the mean of the three, the score of CoNLL-2012
    (Pradhan et al. 2014); and the share of gold mentions that are among the kept spans.

    As in the official scorer, mentions that only one side has lower the score of the other.
    """

    def __init__(self) -> None:
        # Precision and recall of each measure, and of gold mentions the kept ones: numerator and denominator.
        super().__init__(2 * len(MEASURES) + 1, 2)

    def __call__(self, predicted: Clusters, gold: Clusters, kept_spans: Sequence[Hashable]) -> None:
        """
        Count a document: its predicted and its gold clusters, lists of mentions without a mention in two
        clusters; and the kept spans, which are the candidates for mentions.
        """
        fractions: List[Tuple[float, float]] = []
        for measure in MEASURES.values():
            fractions += [measure(predicted, gold), measure(gold, predicted)]
        mentions = {mention for cluster in gold for mention in cluster}
        fractions.append((len(mentions.intersection(kept_spans)), len(mentions)))
        self._sums += torch.tensor(fractions, dtype=torch.double)

    def counts(self) -> Counts:
        return [tuple(row) for row in self._sums[:-1].reshape(-1, 4).tolist()]

    def _from_sums(self, sums: Tensor) -> Dict[str, float]:
        """
        Return `coref_precision`, `coref_recall` and `coref_f1`, the means of the three measures;
        `mention_recall`; and the same of each measure, such as `muc_f1` and `_muc_recall` (with an underscore
        what progress bars do not show).
        """
        *ratios, mention_recall = (ratio(*fraction) for fraction in sums.tolist())
        scores = [with_f1(*pair) for pair in zip(ratios[::2], ratios[1::2])]
        metrics = {
            f"coref_{kind}": sum(of_measure[kind] for of_measure in scores) / len(scores)
            for kind in scores[0]
        }
        for name, of_measure in zip(MEASURES, scores):
            metrics[f"_{name}_precision"] = of_measure["precision"]
            metrics[f"_{name}_recall"] = of_measure["recall"]
            metrics[f"{name}_f1"] = of_measure["f1"]
        return {**metrics, "mention_recall": mention_recall}
