import itertools
import random

import pytest

from elmo_plugin.tasks.coref.metrics import CoreferenceScores, b_cubed, ceaf_phi4, muc


def clusters(*texts):
    """Each letter is a mention."""
    return [list(text) for text in texts]


# Bagga and Baldwin 1998, `Algorithms for scoring coreference chains`: 12 mentions of three entities. One
# response merges the small entity with a big one, the other the two big ones. Luo 2005, `On coreference
# resolution performance metrics`, has two more, and the F1 scores.
KEY = clusters("12345", "67", "89ABC")
SMALL_AND_BIG = clusters("12345", "6789ABC")
BOTH_BIG = clusters("1234589ABC", "67")
ONE_CLUSTER = clusters("123456789ABC")
ALL_SINGLE = clusters(*"123456789ABC")
# Pradhan et al. 2014, `Scoring coreference partitions of predicted mentions`: key and response have other
# mentions.
GOLD, PREDICTED = clusters("abc", "defg"), clusters("ab", "cd", "fghi")


@pytest.mark.parametrize(
    "measure, response, key, parts, published_f1",
    [
        # Vilain et al. 1995. Key: 3 links; the response has it in 2 pieces, so 3 - 1 = 2 of 3 are found.
        (muc, clusters("AB", "CD"), clusters("ABCD"), (2, 2, 2, 3), None),
        (muc, clusters("ABCD"), clusters("AB", "CD"), (2, 3, 2, 2), None),
        # A mention that the other side lacks is a separate piece: {A B}, {C}, and {A B}, {D}.
        (muc, clusters("ABD"), clusters("ABC"), (1, 2, 1, 2), None),
        # 12 mentions in 2 clusters have 10 links, of which 9 are right; all 9 of the key are found.
        (muc, SMALL_AND_BIG, KEY, (9, 10, 9, 9), 0.947),
        (muc, BOTH_BIG, KEY, (9, 10, 9, 9), 0.947),
        (muc, ONE_CLUSTER, KEY, (9, 11, 9, 9), 0.9),
        (muc, ALL_SINGLE, KEY, (0, 0, 0, 9), None),
        # {abc} has pieces {ab}, {c}; {defg} has {d}, {e}, {fg}. {ab}: 1 of 1, {cd}: 0, {fghi}: 1 of 3.
        (muc, PREDICTED, GOLD, (2, 5, 2, 5), 0.40),
        (b_cubed, SMALL_AND_BIG, KEY, (5 + 2 * 2 / 7 + 5 * 5 / 7, 12, 12, 12), 0.865),
        (b_cubed, BOTH_BIG, KEY, (10 * 5 / 10 + 2, 12, 12, 12), 0.737),
        (b_cubed, ONE_CLUSTER, KEY, (10 * 5 / 12 + 2 * 2 / 12, 12, 12, 12), 0.545),
        (b_cubed, ALL_SINGLE, KEY, (12, 12, 10 / 5 + 2 / 2, 12), 0.4),
        # Recall: a, b 2/3 each, c 1/3; d 1/4, f, g 2/4 each. Precision: a, b 1, c, d, f, g 1/2 each.
        (b_cubed, PREDICTED, GOLD, (4, 8, 5 / 3 + 5 / 4, 7), 0.46),
        # {1-5} is whole; {6-C} with {8-C}: 2 * 5 / (7 + 5).
        (ceaf_phi4, SMALL_AND_BIG, KEY, (1 + 5 / 6, 2, 1 + 5 / 6, 3), 0.733),
        (ceaf_phi4, BOTH_BIG, KEY, (1 + 2 / 3, 2, 1 + 2 / 3, 3), 0.667),
        (ceaf_phi4, ONE_CLUSTER, KEY, (10 / 17, 1, 10 / 17, 3), 0.294),
        # One mention with each: 2/6 + 2/3 + 2/6.
        (ceaf_phi4, ALL_SINGLE, KEY, (4 / 3, 12, 4 / 3, 3), 0.178),
        # {abc} with {ab}: 2 * 2 / 5; {defg} with {fghi}: 4/8.
        (ceaf_phi4, PREDICTED, GOLD, (1.3, 3, 1.3, 2), 0.52),
    ],
)
def test_examples_of_the_papers(measure, response, key, parts, published_f1):
    found = [*measure(response, key), *measure(key, response)]
    assert found == pytest.approx(parts)
    if published_f1 is not None:
        precision, recall = found[0] / found[1], found[2] / found[3]
        f1 = 2 * precision * recall / (precision + recall)
        # Published with two or three digits, some of them from rounded precision and recall.
        assert f1 == pytest.approx(published_f1, abs=6e-3)


def slow_muc(response, key):
    """Links of the response, and those that are right: all but one for each further part of a cluster."""
    found = num_links = 0
    for cluster in response:
        parts = [other for other in key if set(cluster) & set(other)]
        missing = [mention for mention in cluster if not any(mention in other for other in key)]
        num_links += len(cluster) - 1
        found += len(cluster) - len(parts) - len(missing)
    return found, num_links


def slow_b_cubed(response, key):
    """The part of each mention's cluster that is in its cluster of the key, and the number of mentions."""
    found, num_mentions = 0.0, 0
    for cluster in response:
        for mention in cluster:
            num_mentions += 1
            for other in key:
                if mention in other:
                    found += len(set(cluster) & set(other)) / len(cluster)
    return found, num_mentions


def slow_ceaf(response, key):
    """The best of all alignments, and the number of clusters."""
    few, many = sorted([response, key], key=len)
    alignments = itertools.permutations(many, len(few))
    similarity = max(
        sum(2 * len({*a} & {*b}) / (len(a) + len(b)) for a, b in zip(few, alignment))
        for alignment in alignments
    )
    return similarity, len(response)


def random_clusters(random_numbers):
    """Up to five clusters, some of one mention, of some of eight mentions; sometimes none."""
    found = {}
    for mention in "abcdefgh":
        found.setdefault(random_numbers.randrange(9), []).append(mention)
    return [found[number] for number in range(random_numbers.randrange(6)) if number in found]


def test_scores_equal_those_by_the_rules_of_the_scorer_of_conll():
    random_numbers = random.Random(13)
    for _ in range(200):
        response, key = random_clusters(random_numbers), random_clusters(random_numbers)
        scores = CoreferenceScores()
        scores(response, key, [])
        expected = {"mention_recall": 0.0}
        measured = []
        for name, slow in (("muc", slow_muc), ("b_cubed", slow_b_cubed), ("ceaf", slow_ceaf)):
            # What has no denominator is 0.
            precision, recall = (
                part / whole if whole else 0.0
                for part, whole in (slow(response, key), slow(key, response))
            )
            f1 = 2 * precision * recall / (precision + recall or 1)
            measured.append((precision, recall, f1))
            names = (f"_{name}_precision", f"_{name}_recall", f"{name}_f1")
            expected.update(zip(names, measured[-1]))
        for kind, values in zip(("precision", "recall", "f1"), zip(*measured)):
            expected[f"coref_{kind}"] = sum(values) / 3
        assert scores.get_metric() == pytest.approx(expected)


def test_documents_are_summed_before_they_are_divided():
    scores = CoreferenceScores()
    kept_spans = list("abcdfghi")  # all gold mentions but e
    scores(PREDICTED, GOLD, kept_spans)
    scores(clusters("ab"), clusters("abcd"), list("ab"))
    metrics = scores.get_metric()
    # Recall: (2 + 1) of (5 + 3) links; precision: (2 + 1) of (5 + 1).
    assert (metrics["_muc_recall"], metrics["_muc_precision"]) == (3 / 8, 3 / 6)
    assert metrics["mention_recall"] == (6 + 2) / (7 + 4)
    muc_counts, _, ceaf_counts = scores.counts()
    assert muc_counts == (2 + 1, 5 + 1, 2 + 1, 5 + 3)
    assert ceaf_counts == pytest.approx((1.3 + 2 / 3, 3 + 1, 1.3 + 2 / 3, 2 + 1))
    assert scores.get_metric(reset=True) == metrics
    assert set(scores.get_metric().values()) == {0.0}
