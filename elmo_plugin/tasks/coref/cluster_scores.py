"""How well predicted clusters of mentions match gold ones: MUC, B-cubed and CEAF."""

from collections import Counter
from typing import Callable, Dict, Hashable, List, NamedTuple, Sequence

import numpy
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
    Links (Vilain et al. 1995). A gold cluster of n mentions takes n - 1 links; if the prediction spreads it
    over p clusters, a mention that is in none counting as one, p - 1 of them are missing. Precision is the
    same with the sides exchanged.
    """

    def found_and_needed_links(clusters: Clusters, others: Clusters) -> List[float]:
        found, needed = 0, 0
        cluster_of = _cluster_of_mention(others)
        for cluster in clusters:
            pieces = {cluster_of[mention] for mention in cluster if mention in cluster_of}
            num_alone = sum(mention not in cluster_of for mention in cluster)
            needed += len(cluster) - 1
            found += len(cluster) - (len(pieces) + num_alone)
        return [found, needed]

    return ScoreParts(
        *found_and_needed_links(predicted, gold), *found_and_needed_links(gold, predicted)
    )


def b_cubed(predicted: Clusters, gold: Clusters) -> ScoreParts:
    """
    Mentions (Bagga and Baldwin 1998). The recall of a gold mention is the part of its gold cluster that is in
    its predicted cluster, 0 if it is in none; precision is the same with the sides exchanged.
    """

    def found_and_all_mentions(clusters: Clusters, others: Clusters) -> List[float]:
        found = 0.0
        cluster_of = _cluster_of_mention(others)
        for cluster in clusters:
            shares = Counter(cluster_of[mention] for mention in cluster if mention in cluster_of)
            # Each of the `share` mentions has the same `share / len(cluster)`.
            found += sum(share * share for share in shares.values()) / len(cluster)
        return [found, sum(len(cluster) for cluster in clusters)]

    return ScoreParts(
        *found_and_all_mentions(predicted, gold), *found_and_all_mentions(gold, predicted)
    )


def ceaf_phi4(predicted: Clusters, gold: Clusters) -> ScoreParts:
    """
    Entities (Luo 2005), also called CEAF_e: of all alignments of predicted clusters with gold ones, one to
    one, that of the greatest similarity in total. The similarity of two clusters is `phi_4`, their Dice
    coefficient.
    """
    cluster_of = _cluster_of_mention(gold)
    similarity = numpy.zeros((len(predicted), len(gold)))
    for row, cluster in enumerate(predicted):
        shares = Counter(cluster_of[mention] for mention in cluster if mention in cluster_of)
        for column, share in shares.items():
            similarity[row, column] = 2 * share / (len(cluster) + len(gold[column]))
    total = float(similarity[linear_sum_assignment(similarity, maximize=True)].sum())
    return ScoreParts(total, len(predicted), total, len(gold))


CLUSTER_SCORES: Dict[str, Callable[[Clusters, Clusters], ScoreParts]] = {
    "muc": muc,
    "b_cubed": b_cubed,
    "ceaf": ceaf_phi4,
}
"""The three whose mean is the score of CoNLL-2012."""


def _cluster_of_mention(clusters: Clusters) -> Dict[Hashable, int]:
    return {mention: index for index, cluster in enumerate(clusters) for mention in cluster}
