"""How often a classifier is right, overall and for each class."""

from typing import Dict

import torch
from allennlp.data import Vocabulary
from allennlp.training.metrics import CategoricalAccuracy, FBetaMeasure, Metric
from torch import Tensor

from elmo_plugin.tasks.tags import check_gold_labels, check_label_vocabulary

# The names of the metrics here and in AllenNLP's.
_CLASS_METRICS = {"precision": "precision", "recall": "recall", "f1": "fscore"}


class ClassMetrics(Metric):
    """
    Accuracy over all examples; and precision, recall and F1 of each class. The recall of a class is the
    accuracy over the examples that are of it.

    Under distributed training, as AllenNLP's metrics: each worker counts the examples of all.

    # Parameters

    vocab : `Vocabulary`
        Its `label_namespace` holds the classes.
    label_namespace : `str`, optional (default = `"labels"`)
    verbose : `bool`, optional (default = `False`)
        Show the metrics of each class in progress bars. AllenNLP writes them to its metrics files in any
        case, but leaves names with a leading underscore out of progress bars.

    # Raises

    `ConfigurationError` if the namespace is empty, or has entries for padding.
    """

    supports_distributed = True

    def __init__(
        self, vocab: Vocabulary, label_namespace: str = "labels", verbose: bool = False
    ) -> None:
        # As they are now: the vocabulary can grow later, but the model's output cannot.
        self.classes = check_label_vocabulary(vocab, label_namespace)
        self._vocab = vocab
        self._label_namespace = label_namespace
        self._class_prefix = "" if verbose else "_"
        self._accuracy = CategoricalAccuracy()
        self._per_class = FBetaMeasure()
        self._is_empty = True

    def __call__(self, logits: Tensor, labels: Tensor) -> None:
        """
        Count a batch.

        # Parameters

        logits : `Tensor`
            `(batch_size, num_classes)`. Any scores: the class with the highest one is predicted, of equal
            ones the first.
        labels : `LongTensor`
            `(batch_size,)`. Ids of the gold classes.

        # Raises

        `ConfigurationError` if a gold class is none of those the model was built for.
        """
        check_gold_labels(labels, len(self.classes), self._vocab, self._label_namespace)
        # AllenNLP's FBetaMeasure takes a row of scores that adds up to 0 for no prediction.
        predicted = torch.nn.functional.one_hot(logits.detach().argmax(dim=-1), len(self.classes))
        self._accuracy(predicted, labels)
        self._per_class(predicted, labels)
        self._is_empty = False

    def get_metric(self, reset: bool = False) -> Dict[str, float]:
        """
        The metrics since the last reset.

        # Returns

        `accuracy`; and for each class of the vocabulary, in its order, such as `_precision-neutral`,
        `_recall-neutral`, `_f1-neutral` (`verbose`: without the underscore). What cannot be measured is 0.0:
        the recall of a class that was never gold, the precision of one that was never predicted, and all
        before the first batch.
        """
        num_classes = len(self.classes)
        metrics = {"accuracy": self._accuracy.get_metric()}
        # AllenNLP's FBetaMeasure raises before the first batch.
        per_class = {} if self._is_empty else self._per_class.get_metric()
        for index, name in enumerate(self.classes):
            for metric, key in _CLASS_METRICS.items():
                values = per_class.get(key, [0.0] * num_classes)
                metrics[f"{self._class_prefix}{metric}-{name}"] = values[index]
        if reset:
            self.reset()
        return metrics

    def reset(self) -> None:
        self._accuracy.reset()
        self._per_class.reset()
        self._is_empty = True
