"""The scores of CoNLL-2012 over the documents of a data set."""

from typing import Dict, Sequence

import torch
from allennlp.nn.util import dist_reduce_sum
from allennlp.training.metrics import Metric

from elmo_plugin.tasks.coref.cluster_scores import CLUSTER_SCORES, Clusters, ScoreParts


@Metric.register("elmo_coreference_scores")
class CoreferenceScores(Metric):
    """
    MUC, B-cubed and CEAF (phi 4) of predicted clusters, and the mean of the three, the score of CoNLL-2012
    (Pradhan et al. 2014); and how many gold mentions are among those that were considered.

    As the official scorer does, numerators and denominators are summed over documents before they are
    divided; mentions that only one side has count against the other as they are. What is summed is summed
    over the workers of distributed training, too.

    Registered as a `Metric` with name `elmo_coreference_scores`.
    """

    supports_distributed = True

    def __init__(self) -> None:
        self.reset()

    def __call__(
        self,
        predicted: Sequence[Clusters],
        gold: Sequence[Clusters],
        considered: Sequence[Sequence],
    ) -> None:
        """
        # Parameters

        predicted : `Sequence[Clusters]`
            Of each document the predicted clusters, lists of mentions. No mention is in two clusters.
        gold : `Sequence[Clusters]`
            The gold clusters of the same documents.
        considered : `Sequence[Sequence]`
            Of each document the mentions that clusters could be made of.
        """
        sums = torch.zeros_like(self._sums)
        num_gold, num_recalled = 0, 0
        for document_predicted, document_gold, document_considered in zip(
            predicted, gold, considered, strict=True
        ):
            sums += torch.tensor(
                [score(document_predicted, document_gold) for score in CLUSTER_SCORES.values()],
                dtype=torch.double,
            )
            gold_mentions = {mention for cluster in document_gold for mention in cluster}
            num_gold += len(gold_mentions)
            num_recalled += len(gold_mentions.intersection(document_considered))
        mentions = torch.tensor([num_recalled, num_gold], dtype=torch.double)
        self._sums += dist_reduce_sum(sums).cpu()
        self._mentions += dist_reduce_sum(mentions).cpu()

    def get_metric(self, reset: bool = False) -> Dict[str, float]:
        """
        # Returns

        `coref_f1`, the mean of the three F1 scores, `coref_precision` and `coref_recall`, the means of
        theirs; `mention_recall`; the F1 of each of the three, `muc_f1`, `b_cubed_f1`, `ceaf_f1`; and their
        precision and recall, such as `_muc_recall` (AllenNLP writes them to its metrics files, but not into
        progress bars). Where there is nothing to divide by, 0.
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
