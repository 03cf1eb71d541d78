"""Base class of the models that classify texts: their output and their metrics."""

from typing import Any, Dict, List, Optional, Tuple

from allennlp.data import Vocabulary
from allennlp.models import Model
from allennlp.training.metrics import CategoricalAccuracy, FBetaMeasure
from torch import Tensor
from torch.nn.functional import cross_entropy

from elmo_plugin.tasks.checks import labels_of

# Names of the metrics, ours and AllenNLP's.
_CLASS_METRICS = {"precision": "precision", "recall": "recall", "f1": "fscore"}


class Classifier(Model):
    """
    Base class of classifiers. A task defines `forward`, which passes its logits to `_output`, and
    `word_keys`, the keys of its metadata that hold words.
    """

    word_keys: Tuple[str, ...] = ("words",)

    def __init__(self, vocab: Vocabulary, **kwargs: Any) -> None:
        super().__init__(vocab, **kwargs)
        self.classes = labels_of(vocab)
        self._accuracy = CategoricalAccuracy()
        self._class_metrics = FBetaMeasure()

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
        """
        Return the metrics since the last reset: `accuracy`, and for each class, in the order of the
        vocabulary, names such as `_precision-neutral`, `_recall-neutral`, `_f1-neutral`. AllenNLP writes
        names with a leading underscore to its metrics files, but not into progress bars. Undefined metrics
        are 0.0.
        """
        is_empty = self._accuracy.total_count == 0
        metrics = {"accuracy": self._accuracy.get_metric(reset)}
        if is_empty:
            # Then `FBetaMeasure` raises an error.
            return metrics
        per_class = self._class_metrics.get_metric(reset)
        for index, name in enumerate(self.classes):
            for metric, key in _CLASS_METRICS.items():
                metrics[f"_{metric}-{name}"] = per_class[key][index]
        return metrics

    def _output(
        self, logits: Tensor, label: Optional[Tensor], metadata: Optional[List[Dict[str, Any]]]
    ) -> Dict[str, Any]:
        """
        Return `logits` and `probabilities`, `(batch_size, num_classes)`; `loss`, the mean cross-entropy, if
        gold classes `(batch_size,)` are given; and the words, if metadata is given.
        """
        probabilities = logits.softmax(dim=-1)
        output: Dict[str, Any] = {"logits": logits, "probabilities": probabilities}
        if metadata is not None:
            for key in self.word_keys:
                output[key] = [text[key] for text in metadata]
        if label is not None:
            self._accuracy(probabilities, label)
            self._class_metrics(probabilities, label)
            output["loss"] = cross_entropy(logits, label)
        return output
