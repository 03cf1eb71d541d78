from itertools import permutations

import pytest
from allennlp.common.testing import run_distributed_test
from hypothesis import given
from hypothesis import strategies as st

from elmo_plugin.tasks.coref import CoreferenceScores
from elmo_plugin.tasks.coref.metrics import b_cubed, ceaf_phi4, muc


def precision_recall_f1(parts):
    precision = parts.precision_numerator / parts.precision_denominator
    recall = parts.recall_numerator / parts.recall_denominator
    f1 = 2 * precision * recall / (precision + recall) if precision + recall else 0.0
    return precision, recall, f1


def clusters(*texts):
    """Each letter is a mention."""
    return [list(text) for text in texts]


class TestExamplesOfVilainEtAl1995:
    """`A model-theoretic coreference scoring scheme`, MUC."""

    def test_a_missing_link_costs_recall(self):
        # Key {A B C D}: 3 links. The response has it in 2 pieces: 3 - 1 = 2 of 3.
        # Response {A B}, {C D}: 1 link each, both in one piece of the key: 2 of 2.
        parts = muc(clusters("AB", "CD"), clusters("ABCD"))
        assert parts == (2, 2, 2, 3)

    def test_an_extra_link_lowers_precision(self):
        # As above with the sides exchanged.
        parts = muc(clusters("ABCD"), clusters("AB", "CD"))
        assert parts == (2, 3, 2, 2)

    def test_a_mention_that_the_response_has_not_is_a_piece_of_its_own(self):
        # Key {A B C}: pieces {A B}, {C}: (3 - 2) of 2. Response {A B D}: pieces {A B}, {D}: 1 of 2.
        assert muc(clusters("ABD"), clusters("ABC")) == (1, 2, 1, 2)


# Bagga and Baldwin 1998, `Algorithms for scoring coreference chains`: 12 mentions of three entities. One
# response merges the small entity with a big one, the other the two big ones.
KEY = clusters("12345", "67", "89ABC")
MERGES_SMALL_AND_BIG = clusters("12345", "6789ABC")
MERGES_BOTH_BIG = clusters("1234589ABC", "67")
# Luo 2005, `On coreference resolution performance metrics`, has two more.
ONE_CLUSTER = clusters("123456789ABC")
ALL_SINGLE = clusters(*"123456789ABC")


class TestExamplesOfBaggaAndBaldwin1998AndOfLuo2005:
    @pytest.mark.parametrize("response", [MERGES_SMALL_AND_BIG, MERGES_BOTH_BIG])
    def test_muc_finds_both_mergers_as_bad(self, response):
        # Response: 12 mentions in 2 clusters, 10 links; 3 pieces of the key, so 9 of them are right. Recall:
        # all 12 - 3 = 9 links of the key are there. F1 = 2 * 0.9 / 1.9 = 0.947 (Luo, table 1).
        assert precision_recall_f1(muc(response, KEY)) == pytest.approx((0.9, 1.0, 0.947), abs=5e-4)

    def test_muc_of_one_cluster(self):
        # 11 links, 2 too many: 9 / 11. F1 = 2 * 9 / (11 + 9) = 0.9 (Luo).
        assert precision_recall_f1(muc(ONE_CLUSTER, KEY)) == pytest.approx((9 / 11, 1, 0.9))

    def test_muc_of_singletons_has_no_links(self):
        # Luo gives none: 0 of 0 links.
        assert muc(ALL_SINGLE, KEY) == (0, 0, 0, 9)

    @pytest.mark.parametrize(
        "response, precision, recall, f1",
        [
            # (5 * 5/5 + 2 * 2/7 + 5 * 5/7) / 12 = 16/21 = 76 %; every key entity is whole. F1 0.865 (Luo).
            (MERGES_SMALL_AND_BIG, 16 / 21, 1.0, 0.865),
            # (10 * 5/10 + 2 * 2/2) / 12 = 7/12 = 58 %. F1 0.737.
            (MERGES_BOTH_BIG, 7 / 12, 1.0, 0.737),
            # (10 * 5/12 + 2 * 2/12) / 12 = 54/144. F1 0.545.
            (ONE_CLUSTER, 54 / 144, 1.0, 0.545),
            # Recall: (10 * 1/5 + 2 * 1/2) / 12 = 3/12. F1 0.4.
            (ALL_SINGLE, 1.0, 0.25, 0.400),
        ],
    )
    def test_b_cubed(self, response, precision, recall, f1):
        parts = b_cubed(response, KEY)
        assert precision_recall_f1(parts) == pytest.approx((precision, recall, f1), abs=5e-4)

    @pytest.mark.parametrize(
        "response, similarity, f1",
        [
            # {1-5} = {1-5}: 1. {6-C} with {8-C}: 2 * 5 / (7 + 5) = 5/6. F1 = 2 * 11/6 / (2 + 3) = 0.733.
            (MERGES_SMALL_AND_BIG, 1 + 5 / 6, 0.733),
            # {67} = {67}: 1. The other with {1-5}: 2 * 5 / (10 + 5) = 2/3. F1 = 2 * 5/3 / 5 = 0.667.
            (MERGES_BOTH_BIG, 1 + 2 / 3, 0.667),
            # With one of 5: 2 * 5 / (12 + 5) = 10/17. F1 = 2 * 10/17 / (1 + 3) = 0.294.
            (ONE_CLUSTER, 10 / 17, 0.294),
            # One mention with each: 2/6 + 2/3 + 2/6 = 4/3. F1 = 2 * 4/3 / (12 + 3) = 0.178.
            (ALL_SINGLE, 4 / 3, 0.178),
        ],
    )
    def test_ceaf(self, response, similarity, f1):
        parts = ceaf_phi4(response, KEY)
        assert parts == pytest.approx((similarity, len(response), similarity, 3))
        assert precision_recall_f1(parts)[2] == pytest.approx(f1, abs=5e-4)


class TestExampleOfPradhanEtAl2014:
    """`Scoring coreference partitions of predicted mentions`: key and response have other mentions."""

    KEY = clusters("abc", "defg")
    RESPONSE = clusters("ab", "cd", "fghi")

    def test_muc(self):
        # {abc} has pieces {ab}, {c}: 1 of 2 links. {defg} has {d}, {e} (in no cluster), {fg}: 1 of 3.
        # Recall 2/5.
        # {ab}: 1 of 1. {cd}: 0 of 1. {fghi} has {fg}, {h}, {i}: 1 of 3. Precision 2/5. Published: 0.40, 0.40.
        assert muc(self.RESPONSE, self.KEY) == (2, 5, 2, 5)

    def test_b_cubed(self):
        # Recall: a, b 2/3 each, c 1/3; d 1/4, e 0, f, g 2/4 each: (5/3 + 5/4) / 7 = 0.4167. Published: 0.42.
        # Precision: a, b 1 each; c, d 1/2 each; f, g 2/4 each; h, i 0: 4 / 8 = 0.5. Published: 0.50; F1 0.46.
        parts = b_cubed(self.RESPONSE, self.KEY)
        assert parts == pytest.approx((4, 8, 5 / 3 + 5 / 4, 7))
        assert precision_recall_f1(parts) == pytest.approx((0.50, 0.42, 0.46), abs=6e-3)

    def test_ceaf(self):
        # {abc} with {ab}: 2 * 2 / 5 = 0.8, with {cd}: 2/5. {defg} with {cd}: 2/6, with {fghi}: 4/8 = 0.5.
        # The best is 0.8 + 0.5: recall 1.3 / 2 = 0.65, precision 1.3 / 3 = 0.43. Published: 0.65, 0.43;
        # F1 0.52.
        parts = ceaf_phi4(self.RESPONSE, self.KEY)
        assert parts == pytest.approx((1.3, 3, 1.3, 2))
        assert precision_recall_f1(parts) == pytest.approx((0.43, 0.65, 0.52), abs=5e-3)


@st.composite
def partitions(draw):
    """Clusters of some of eight mentions, at most five."""
    numbers = draw(st.lists(st.integers(-1, 4), min_size=8, max_size=8))
    groups = {}
    for mention, number in enumerate(numbers):
        if number >= 0:
            groups.setdefault(number, []).append(mention)
    return list(groups.values())


def best_similarity_of_all_alignments(predicted, gold):
    """Luo's definition, by trying all."""
    fewer, more = sorted((predicted, gold), key=len)
    return max(
        sum(
            2 * len(set(one) & set(other)) / (len(one) + len(other))
            for one, other in zip(fewer, chosen)
        )
        for chosen in permutations(more, len(fewer))
    )


@given(predicted=partitions(), gold=partitions())
def test_ceaf_takes_the_best_of_all_alignments(predicted, gold):
    similarity = best_similarity_of_all_alignments(predicted, gold)
    expected = (similarity, len(predicted), similarity, len(gold))
    assert ceaf_phi4(predicted, gold) == pytest.approx(expected)


@given(predicted=partitions(), gold=partitions())
def test_b_cubed_is_the_mean_over_mentions(predicted, gold):
    def total(own, others):
        return sum(
            len(set(cluster) & set(other)) / len(cluster)
            for cluster in own
            for mention in cluster
            for other in others
            if mention in other
        )

    parts = b_cubed(predicted, gold)
    assert parts.precision_numerator == pytest.approx(total(predicted, gold))
    assert parts.recall_numerator == pytest.approx(total(gold, predicted))


# Pradhan et al. 2014; the parts are worked out in cluster_scores_test.py.
GOLD, PREDICTED = clusters("abc", "defg"), clusters("ab", "cd", "fghi")
CONSIDERED = list("abcdfghi")  # all gold mentions but e


def test_the_mean_of_the_three_f1_scores():
    scores = CoreferenceScores()
    scores([PREDICTED], [GOLD], [CONSIDERED])
    metrics = scores.get_metric(reset=True)
    b_cubed_recall = (5 / 3 + 5 / 4) / 7
    b_cubed_f1 = 2 * 0.5 * b_cubed_recall / (0.5 + b_cubed_recall)
    ceaf_f1 = 2 * 1.3 / 5
    assert metrics == pytest.approx(
        {
            "coref_precision": (0.4 + 0.5 + 1.3 / 3) / 3,
            "coref_recall": (0.4 + b_cubed_recall + 0.65) / 3,
            "coref_f1": (0.4 + b_cubed_f1 + ceaf_f1) / 3,
            "mention_recall": 6 / 7,
            "_muc_precision": 0.4,
            "_muc_recall": 0.4,
            "muc_f1": 0.4,
            "_b_cubed_precision": 0.5,
            "_b_cubed_recall": b_cubed_recall,
            "b_cubed_f1": b_cubed_f1,
            "_ceaf_precision": 1.3 / 3,
            "_ceaf_recall": 0.65,
            "ceaf_f1": ceaf_f1,
        }
    )
    assert set(scores.get_metric().values()) == {0.0}


def test_documents_are_summed_before_they_are_divided():
    # The same letters in two documents are not the same mentions.
    at_once, one_by_one = CoreferenceScores(), CoreferenceScores()
    other_predicted, other_gold = clusters("ab"), clusters("abcd")
    at_once([PREDICTED, other_predicted], [GOLD, other_gold], [CONSIDERED, list("ab")])
    one_by_one([PREDICTED], [GOLD], [CONSIDERED])
    one_by_one([other_predicted], [other_gold], [list("ab")])
    metrics = at_once.get_metric()
    assert metrics == pytest.approx(one_by_one.get_metric())
    # Recall: (2 + 1) of (5 + 3) links; precision: (2 + 1) of (5 + 1).
    assert (metrics["_muc_recall"], metrics["_muc_precision"]) == (3 / 8, 3 / 6)
    assert metrics["mention_recall"] == (6 + 2) / (7 + 4)


def _score_one_document_of_two(rank, world_size, gpu_id, expected):
    scores = CoreferenceScores()
    documents = [(PREDICTED, GOLD, CONSIDERED), (clusters("ab"), clusters("abcd"), list("ab"))]
    predicted, gold, kept_spans = documents[rank]
    scores([predicted], [gold], [kept_spans])
    assert scores.get_metric() == pytest.approx(expected)


def test_workers_that_share_the_documents_have_the_scores_of_all():
    scores = CoreferenceScores()
    scores([PREDICTED, clusters("ab")], [GOLD, clusters("abcd")], [CONSIDERED, list("ab")])
    run_distributed_test([-1, -1], _score_one_document_of_two, scores.get_metric())
