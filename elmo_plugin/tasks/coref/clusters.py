"""From links between mentions to clusters of mentions."""

from typing import Dict, List, Optional, Sequence, Tuple

Span = Tuple[int, int]
"""The tokens of a document from the first to the second number, exclusive."""
Cluster = List[Span]


def link_clusters(spans: Sequence[Span], antecedents: Sequence[Optional[int]]) -> List[Cluster]:
    """
    The clusters that links make: two mentions are in one cluster if a chain of links joins them. Mentions
    that no link reaches are in none.

    # Parameters

    spans : `Sequence[Span]`
        The mentions.
    antecedents : `Sequence[Optional[int]]`
        For each mention the index of an earlier one that it is linked to, or `None`.

    # Returns

    The clusters in the order of their first mentions, mentions in the order of `spans`.
    """
    cluster_of: Dict[int, Cluster] = {}
    clusters: List[Cluster] = []
    for index, antecedent in enumerate(antecedents):
        if antecedent is None:
            continue
        if antecedent >= index:
            raise ValueError(
                f"Mention {index} has the antecedent {antecedent}, which is not before it."
            )
        # Links go back, so what the antecedent is linked to is known by now.
        if antecedent not in cluster_of:
            cluster_of[antecedent] = [spans[antecedent]]
            clusters.append(cluster_of[antecedent])
        cluster_of[index] = cluster_of[antecedent]
        cluster_of[index].append(spans[index])
    return sorted(sorted(cluster) for cluster in clusters)
