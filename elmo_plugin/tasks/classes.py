"""Shared by the models that classify texts: their output and their metrics."""

from typing import Any, Dict, List, Optional, Tuple

from allennlp.data import Vocabulary
from allennlp.models import Model
from allennlp.training.metrics import CategoricalAccuracy, FBetaMeasure, Metric
from torch import Tensor
from torch.nn.functional import cross_entropy, one_hot

from elmo_plugin.tasks.checks import check_gold_labels, check_label_vocabulary

# Names of the metrics, ours and AllenNLP's.
_CLASS_METRICS = {"precision": "precision", "recall": "recall", "f1": "fscore"}


class Classifier(Model):
    """
    Base class of classifiers. A task defines `forward`, which passes its logits to `_output`, and
    `word_keys`, the keys of its metadata that hold words.

    # Parameters

    label_namespace : `str`, optional (default = `"labels"`)
        The reader's `label_namespace`. It holds the classes.
    verbose_metrics : `bool`, optional (default = `False`)
        Show the metrics of each class in progress bars. They are measured in any case.
    """

    word_keys: Tuple[str, ...] = ("words",)

    def __init__(
        self,
        vocab: Vocabulary,
        label_namespace: str = "labels",
        verbose_metrics: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(vocab, **kwargs)
        self.label_namespace = label_namespace
        self._class_metrics = ClassMetrics(vocab, label_namespace, verbose_metrics)
        self.classes = self._class_metrics.classes

    def make_output_human_readable(self, output_dict: Dict[str, Any]) -> Dict[str, Any]:
        """
        Return the output of `forward` with the most probable `label`, and with `probabilities` by class name.
        """
        probabilities = output_dict["probabilities"]
        return {
            **output_dict,
            "label": [self.classes[index] for index in probabilities.argmax(dim=-1).tolist()],
            "probabilities": [dict(zip(self.classes, row)) for row in probabilities.tolist()],
        }

    def get_metrics(self, reset: bool = False) -> Dict[str, float]:
        """See `ClassMetrics.get_metric`."""
        return self._class_metrics.get_metric(reset)

    def _output(
        self, logits: Tensor, label: Optional[Tensor], metadata: Optional[List[Dict[str, Any]]]
    ) -> Dict[str, Any]:
        """
        Return `logits` and `probabilities`, `(batch_size, num_classes)`; `loss`, the mean cross-entropy, if
        gold classes `(batch_size,)` are given; and the words, if metadata is given.
        """
        output: Dict[str, Any] = {"logits": logits, "probabilities": logits.softmax(dim=-1)}
        if metadata is not None:
            for key in self.word_keys:
                output[key] = [text[key] for text in metadata]
        if label is not None:
            self._class_metrics(logits, label)
            output["loss"] = cross_entropy(logits, label)
        return output


class ClassMetrics(Metric):
    """
    Accuracy over all examples, and precision, recall and F1 of each class. In distributed training each
    worker counts the examples of all workers, as AllenNLP's metrics do.

    # Parameters

    vocab : `Vocabulary`
        Its `label_namespace` holds the classes.
    verbose : `bool`, optional (default = `False`)
        Name the metrics of classes without a leading underscore. AllenNLP writes both to its metrics
        files, but leaves names with one out of progress bars.
    """

    supports_distributed = True

    def __init__(
        self, vocab: Vocabulary, label_namespace: str = "labels", verbose: bool = False
    ) -> None:
        # A copy: the vocabulary can grow later, but the model's output cannot.
        self.classes = check_label_vocabulary(vocab, label_namespace)
        self._vocab = vocab
        self._label_namespace = label_namespace
        self._class_prefix = "" if verbose else "_"
        self._accuracy = CategoricalAccuracy()
        self._per_class = FBetaMeasure()
        self._is_empty = True

    def __call__(self, logits: Tensor, labels: Tensor) -> None:
        """
        Count a batch. The predicted class has the highest of the `logits` `(batch_size, num_classes)`; ties
        go to the first class. `labels` `(batch_size,)` are the ids of the gold classes.

        # Raises

        `ConfigurationError` for a gold class that the model was not built for.
        """
        check_gold_labels(labels, self.classes, self._vocab, self._label_namespace)
        # AllenNLP's FBetaMeasure treats a row of scores that sums to 0 as no prediction.
        predicted = one_hot(logits.detach().argmax(dim=-1), len(self.classes))
        self._accuracy(predicted, labels)
        self._per_class(predicted, labels)
        self._is_empty = False

    def get_metric(self, reset: bool = False) -> Dict[str, float]:
        """
        Return the metrics since the last reset: `accuracy`, and for each class, in the order of the
        vocabulary, names such as `_precision-neutral`, `_recall-neutral`, `_f1-neutral` (`verbose`: without
        the underscore). Undefined metrics are 0.0: the recall of a class that was never gold, the precision
        of a class that was never predicted, and all metrics before the first batch.
        """
        metrics = {"accuracy": self._accuracy.get_metric()}
        # AllenNLP's FBetaMeasure raises before the first batch.
        per_class = {} if self._is_empty else self._per_class.get_metric()
        for index, name in enumerate(self.classes):
            for metric, key in _CLASS_METRICS.items():
                value = per_class[key][index] if per_class else 0.0
                metrics[f"{self._class_prefix}{metric}-{name}"] = value
        if reset:
            self.reset()
        return metrics

    def reset(self) -> None:
        self._accuracy.reset()
        self._per_class.reset()
        self._is_empty = True
