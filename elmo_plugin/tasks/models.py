"""Base classes of models that classify texts or tag tokens, and attention."""

import logging
from typing import Any, Dict, List, Optional, Tuple

from allennlp.data import Vocabulary
from allennlp.models import Model
from allennlp.nn.util import masked_softmax, weighted_sum
from allennlp.training.metrics import CategoricalAccuracy, FBetaMeasure
from torch import BoolTensor, Tensor
from torch.nn.functional import cross_entropy

from elmo_plugin.errors import ConfigurationError, warn_once
from elmo_plugin.tasks.metrics import Counts, SpanF1
from elmo_plugin.tasks.tags import split_tag, tags_to_spans

logger = logging.getLogger(__name__)

# Names of the metrics, ours and AllenNLP's.
_CLASS_METRICS = {"precision": "precision", "recall": "recall", "f1": "fscore"}
# A prefix of tags that occurs in data, and one that then occurs with the same label.
_IMPLIED_PREFIXES = {"BIO": {"I": "B"}, "BIOUL": {"I": "B", "B": "L", "L": "B"}}


def labels_of(vocab: Vocabulary) -> List[str]:
    """Return the labels of the training data in the order of their ids, at least one."""
    labels = vocab.get_index_to_token_vocabulary("labels")
    if not labels:
        raise ConfigurationError(
            "The vocabulary's namespace 'labels' is empty, expected the labels of the training data. Train "
            "on labeled data."
        )
    return [labels[index] for index in range(len(labels))]


def attend(scores: Tensor, vectors: Tensor, mask: Tensor) -> Tensor:
    """
    Return sums of vectors without padding, weighted by a softmax over their scores: from `(batch_size, ...,
    timesteps)` and `(batch_size, timesteps, dim)` to `(batch_size, ..., dim)`.
    """
    # "Memory efficient" is the exact one. The other gives padding a share, which it then divides out, and
    # gives no weight to any vector if all scores are far below 0, as products of wide vectors can be.
    return weighted_sum(vectors, masked_softmax(scores, mask, memory_efficient=True))


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

    def counts(self) -> Dict[str, Counts]:
        """Return the counts of `accuracy` since the last reset."""
        right, total = float(self._accuracy.correct_count), float(self._accuracy.total_count)
        return {"accuracy": [(right, total, right, total)]}

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


class Tagger(Model):
    """
    Base class of models that tag spans. A task defines `label_scheme`, the scheme of its tags, BIO or BIOUL;
    `_best_tags`; and `forward`, which starts from `_output` and passes each sentence with its best and gold
    tags to `_measure`. In training nothing is decoded or measured: decoding a batch takes longer than its
    loss.
    """

    label_scheme: str

    def __init__(self, vocab: Vocabulary, **kwargs: Any) -> None:
        super().__init__(vocab, **kwargs)
        self.tags = labels_of(vocab)
        self._check_vocabulary()
        # The class of each tag; "" for O.
        self._classes = [tag.partition("-")[2] for tag in self.tags]
        self._outside = self.tags.index("O")
        self._span_f1 = SpanF1(self._classes)

    def make_output_human_readable(self, output_dict: Dict[str, Any]) -> Dict[str, Any]:
        """Return the output of `forward` with the names of tags. Decode them first if the output has none."""
        best_tags = output_dict.get("tags")
        if best_tags is None:
            best_tags = self._best_tags(output_dict["logits"], output_dict["mask"])
        return {**output_dict, "tags": [self._names(tag_ids) for tag_ids in best_tags]}

    def get_metrics(self, reset: bool = False) -> Dict[str, float]:
        """
        Return `precision`, `recall` and `f1` of exactly matching spans since the last reset, and the same for
        each label with a gold or a predicted span, such as `_f1-PER`. Empty in training.
        """
        if self.training:
            return {}
        return {
            f"_{name}" if "-" in name else name: value
            for name, value in self._span_f1.get_metric(reset).items()
        }

    def counts(self) -> Dict[str, Counts]:
        """Return the counts of `f1` since the last reset."""
        return {"f1": self._span_f1.counts()}

    def _output(
        self, logits: Tensor, mask: BoolTensor, metadata: Optional[List[Dict[str, Any]]]
    ) -> Dict[str, Any]:
        """
        Return `logits` `(batch_size, timesteps, num_tags)` and `mask` `(batch_size, timesteps)`; `words`, if
        metadata is given; and, outside of training, `tags`, the list of the best tag ids of each sentence.
        """
        output: Dict[str, Any] = {"logits": logits, "mask": mask}
        if metadata is not None:
            output["words"] = [sentence["words"] for sentence in metadata]
        if not self.training:
            output["tags"] = self._best_tags(logits, mask)
        return output

    def _check_vocabulary(self) -> None:
        """Raise `ConfigurationError` if decoding would fail, or give wrong results, for want of tags."""
        scheme = self.label_scheme
        implied = {_IMPLIED_PREFIXES[scheme].get(tag[0], tag[0]) + tag[1:] for tag in self.tags}
        faults = [tag for tag in self.tags if split_tag(tag, scheme) is None]
        faults += [f"no {tag}" for tag in sorted({"O", *implied}.difference(self.tags))]
        if faults:
            raise ConfigurationError(
                f"The vocabulary's namespace 'labels' has {', '.join(faults)}, expected the tags of data in "
                f"the {scheme} scheme. Give the model tags of this scheme."
            )

    def _known_tags(self, tags: Tensor, metadata: Optional[List[Dict[str, Any]]]) -> Tensor:
        """
        Return ids of gold tags with `O` in place of those that the model has not learned, see `TagField`. A
        warning names each one. Raise `ConfigurationError` in training: the model would learn that they are
        outside of spans.
        """
        is_known = tags < len(self.tags)
        if is_known.all():
            return tags
        gold_tags = {tag for sentence in metadata or [] for tag in sentence.get("gold_tags") or []}
        for tag in sorted(gold_tags.difference(self.tags)):
            warn_once(
                logger,
                f"found tag '{tag}', expected one of those that the model learns: "
                f"{', '.join(sorted(self.tags))}. Its spans count as missed. Correct the tag, or train "
                "on data that has it.",
            )
        if self.training:
            raise ConfigurationError(
                "The training data have tags that the model does not have (warnings name them). Correct "
                "them, or leave `vocabulary` out of the config, so that it is made of these data. A model "
                "from an archive keeps its tags: for others, train a new one."
            )
        return tags.where(is_known, self._outside)

    def _measure(self, tag_ids: List[int], gold_ids: List[int], sentence: Dict[str, Any]) -> None:
        """
        Count the spans of a sentence: of its best tags, one per real token, and of its gold ones. The
        `gold_tags` of its metadata, which the vocabulary need not have, take precedence over ids.
        """
        gold_tags = sentence.get("gold_tags") or self._names(gold_ids[: len(tag_ids)])
        self._span_f1(self._spans(self._names(tag_ids)), self._spans(gold_tags))

    def _spans(self, tags: List[str]) -> List[Tuple[str, Any]]:
        """Return label and place of each span, as `SpanF1` counts them."""
        return [(span.label, span) for span in tags_to_spans(tags, self.label_scheme)]

    def _names(self, tag_ids: List[int]) -> List[str]:
        return [self.tags[tag_id] for tag_id in tag_ids]

    def _best_tags(self, logits: Tensor, mask: BoolTensor) -> List[List[int]]:
        """Return the ids of the best allowed tags of each sentence, one per real token."""
        raise NotImplementedError
