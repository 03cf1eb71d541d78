import pytest

from elmo_plugin.tasks.coref.clusters import link_clusters

SPANS = [(0, 2), (3, 4), (3, 6), (7, 8), (9, 10)]


def test_chains_of_links_make_clusters():
    #  (0, 2) <- (3, 6) <- (9, 10), and (3, 4) <- (7, 8)
    assert link_clusters(SPANS, [None, None, 0, 1, 2]) == [
        [(0, 2), (3, 6), (9, 10)],
        [(3, 4), (7, 8)],
    ]


def test_mentions_with_one_antecedent_are_in_one_cluster():
    assert link_clusters(SPANS, [None, 0, 0, None, 0]) == [[(0, 2), (3, 4), (3, 6), (9, 10)]]


def test_without_links_there_are_no_clusters():
    assert link_clusters(SPANS, [None] * 5) == []
    assert link_clusters([], []) == []


def test_an_antecedent_comes_before():
    with pytest.raises(ValueError, match="Mention 1 has the antecedent 1, which is not before it"):
        link_clusters(SPANS[:2], [None, 1])
