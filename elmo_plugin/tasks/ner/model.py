"""Tags named entities with a CRF over contextual vectors."""

from typing import Any, Dict, List, Optional

import torch
from allennlp.data import TextFieldTensors, Vocabulary
from allennlp.models import Model
from allennlp.modules.conditional_random_field import ConditionalRandomField
from allennlp.modules.conditional_random_field.conditional_random_field import allowed_transitions
from allennlp.nn import InitializerApplicator
from allennlp.training.metrics import SpanBasedF1Measure
from torch import BoolTensor, Tensor

from elmo_plugin.modules.text_encoder import TextEncoder
from elmo_plugin.tasks.tags import check_gold_labels, check_scheme, check_tag_vocabulary

# The names of the metrics here and in AllenNLP's span metric.
_METRICS = {"precision": "precision", "recall": "recall", "f1": "f1-measure"}


@Model.register("elmo_ner")
class NerTagger(Model):
    """
    Text encoder, linear layer, linear-chain CRF (paper, section 4): the tags of a sentence are
    decided together, and only sequences that are possible in the tag scheme are decoded.

    The loss is the negative log-likelihood of the gold tags, averaged over the sentences of the
    batch. AllenNLP's `crf_tagger` sums it over the batch. With the mean, gradient clipping and
    regularization weigh the same for every batch size; settings copied from a `crf_tagger` config
    have to be divided by its batch size to keep their effect.

    Registered as a `Model` with name `elmo_ner`.

    # Parameters

    vocab : `Vocabulary`
        Its `label_namespace` holds the tags.
    text_encoder : `TextEncoder`
        From tokens to contextual vectors, with ELMo where wanted.
    label_scheme : `str`, optional (default = `"BIOUL"`)
        `BIO` or `BIOUL`, the reader's `label_scheme`.
    label_namespace : `str`, optional (default = `"labels"`)
        The reader's `label_namespace`.
    dropout : `float`, optional (default = `0.0`)
        On the output of the text encoder, beside the text encoder's own.
    include_start_end_transitions : `bool`, optional (default = `True`)
        Whether the CRF learns a score for each tag at the start and at the end of a sentence. The configs of
        this project have `False`, as AllenNLP's experiment with ELMo; the default is that of its
        `crf_tagger`.
    training_metrics : `bool`, optional (default = `False`)
        Decode and measure while training, too. Decoding a training batch takes longer than its loss.
    verbose_metrics : `bool`, optional (default = `False`)
        Show the metrics of each label in progress bars. They are measured in any case, see
        `get_metrics`.
    initializer : `InitializerApplicator`, optional
        Initial values of parameters; PyTorch's and AllenNLP's by default.

    # Raises

    `ConfigurationError` if the vocabulary has no tags, or tags that cannot be of `label_scheme`.
    """

    default_predictor = "elmo_ner"

    def __init__(
        self,
        vocab: Vocabulary,
        text_encoder: TextEncoder,
        label_scheme: str = "BIOUL",
        label_namespace: str = "labels",
        dropout: float = 0.0,
        include_start_end_transitions: bool = True,
        training_metrics: bool = False,
        verbose_metrics: bool = False,
        initializer: Optional[InitializerApplicator] = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(vocab, **kwargs)
        check_scheme("label_scheme", label_scheme, ("BIO", "BIOUL"))
        tags = check_tag_vocabulary(vocab, label_namespace, label_scheme)
        self.label_scheme = label_scheme
        self.label_namespace = label_namespace
        self.text_encoder = text_encoder
        self.dropout = torch.nn.Dropout(dropout)
        constraints = allowed_transitions(label_scheme, dict(enumerate(tags)))
        self.num_tags = len(tags)
        self.tag_projection = torch.nn.Linear(text_encoder.get_output_dim(), self.num_tags)
        self.crf = ConditionalRandomField(self.num_tags, constraints, include_start_end_transitions)
        self._training_metrics = training_metrics
        self._span_f1 = SpanBasedF1Measure(
            vocab, tag_namespace=label_namespace, label_encoding=label_scheme
        )
        self._label_metric_prefix = "" if verbose_metrics else "_"
        if initializer is not None:
            initializer(self)

    def forward(
        self,
        tokens: TextFieldTensors,
        tags: Optional[Tensor] = None,
        metadata: Optional[List[Dict[str, Any]]] = None,
    ) -> Dict[str, Any]:
        """
        # Parameters

        tokens : `TextFieldTensors`
            The sentences.
        tags : `LongTensor`, optional
            `(batch_size, timesteps)`. Gold tag ids.
        metadata : `List[Dict[str, Any]]`, optional
            Of each sentence, with its `words`.

        # Returns

        `logits` `(batch_size, timesteps, num_tags)`; `mask` `(batch_size, timesteps)`; `loss`, if gold tags
        are given; `words`, if metadata is given. Not while training, unless `training_metrics`: `tags`, for
        each sentence the list of the best tag ids.

        # Raises

        `ConfigurationError` if, not while training, a gold tag is none of those the model was built for.
        """
        encoded = self.text_encoder(tokens)
        mask = encoded.mask  # (batch_size, timesteps)
        # (batch_size, timesteps, num_tags)
        logits = self.tag_projection(self.dropout(encoded.contextualized))
        output: Dict[str, Any] = {"logits": logits, "mask": mask}
        if metadata is not None:
            output["words"] = [sentence["words"] for sentence in metadata]
        if self._is_measured():
            output["tags"] = self._best_tags(logits, mask)
        if tags is not None:
            if not self.training:
                check_gold_labels(tags, self.num_tags, self.vocab, self.label_namespace)
            # AllenNLP's CRF returns the sum over the batch.
            output["loss"] = -self.crf(logits, tags, mask) / logits.size(0)
            if self._is_measured():
                self._span_f1(_as_scores(output["tags"], logits), tags, mask)
        return output

    def make_output_human_readable(self, output_dict: Dict[str, Any]) -> Dict[str, Any]:
        """The output of `forward` with tags in place of their ids; decoded here if it has none."""
        best_tags = output_dict.get("tags")
        if best_tags is None:
            best_tags = self._best_tags(output_dict["logits"], output_dict["mask"])
        tags = [
            [self.vocab.get_token_from_index(tag_id, self.label_namespace) for tag_id in tag_ids]
            for tag_ids in best_tags
        ]
        return {**output_dict, "tags": tags}

    def get_metrics(self, reset: bool = False) -> Dict[str, float]:
        """
        Metrics of exactly matching spans, since the last reset.

        # Returns

        `precision`, `recall` and `f1` over all labels; and the same of each label with a gold or a
        predicted span, such as `_f1-PER`, with `verbose_metrics` `f1-PER`. AllenNLP writes all of
        them to its metrics files, but leaves names with a leading underscore out of progress bars. Nothing
        while training, unless `training_metrics`.
        """
        if not self._is_measured():
            return {}
        measured = self._span_f1.get_metric(reset)
        # AllenNLP's keys are such as `f1-measure-overall` and `f1-measure-PER`.
        labels = sorted(key[len("recall-") :] for key in measured if key.startswith("recall-"))
        labels.remove("overall")
        metrics = {name: measured[f"{key}-overall"] for name, key in _METRICS.items()}
        for label in labels:
            for name, key in _METRICS.items():
                metrics[f"{self._label_metric_prefix}{name}-{label}"] = measured[f"{key}-{label}"]
        return metrics

    def _is_measured(self) -> bool:
        return self._training_metrics or not self.training

    def _best_tags(self, logits: Tensor, mask: BoolTensor) -> List[List[int]]:
        return [tags for tags, _ in self.crf.viterbi_tags(logits, mask)]


def _as_scores(tags: List[List[int]], logits: Tensor) -> Tensor:
    """
    1 for the decoded tag of each token and 0 for the others, `(batch_size, timesteps, num_tags)`: the
    metric takes scores, and looks for the best itself.
    """
    scores = torch.zeros_like(logits)
    for row, tag_ids in enumerate(tags):
        scores[row, range(len(tag_ids)), tag_ids] = 1.0
    return scores
