"""Classify the sentiment of sentences with a biattentive classification network."""

from typing import Any, Dict, List, Optional, Union

import torch
from allennlp.common import Lazy
from allennlp.data import TextFieldTensors, Vocabulary
from allennlp.models import Model
from allennlp.modules import FeedForward, Seq2SeqEncoder
from allennlp.modules.matrix_attention import DotProductMatrixAttention
from allennlp.nn import InitializerApplicator
from allennlp.nn.util import masked_max, masked_mean, masked_softmax, weighted_sum
from torch import BoolTensor, Tensor

from elmo_plugin.modules.encoder_stack import built
from elmo_plugin.modules.text_encoder import TextEncoder
from elmo_plugin.tasks.class_metrics import ClassMetrics


@Model.register("elmo_sst")
class BiattentiveClassifier(Model):
    """
    The biattentive classification network of McCann et al. (2017, section 5) for one sentence, with the ELMo
    paper's change to its last layers: text encoder (a relu layer on each token, then a biLSTM), attention of
    the sentence to itself, integrating biLSTM, pooling, and relu layers in place of maxout.

    ELMo is where the text encoder has it: at the output means the output of the first biLSTM, before the
    attention, as in the paper. AllenNLP's `bcn` adds it after the integrator.

    Registered as a `Model` with name `elmo_sst`. In a config neither `integrator` nor `output_layer` has an
    input width, and the output layer's last width is free: a linear layer from there to the classes follows.

    # Parameters

    vocab : `Vocabulary`
        Its `label_namespace` holds the classes.
    text_encoder : `TextEncoder`
        From tokens to contextual vectors, with ELMo where wanted.
    integrator : `Seq2SeqEncoder`
        Reads, of each token, its vector, the difference to what it attends to, and the product of the two.
    output_layer : `FeedForward`
        From the pooled sentence to what the classes are scored from.
    dropout : `float`, optional (default = `0.0`)
        On the pooled sentence, beside the dropout of text encoder and output layer.
    label_namespace : `str`, optional (default = `"labels"`)
        The reader's `label_namespace`.
    verbose_metrics : `bool`, optional (default = `False`)
        Show the metrics of each class in progress bars. They are measured in any case, see `get_metrics`.
    initializer : `InitializerApplicator`, optional
        Initial values of parameters; PyTorch's and AllenNLP's by default.

    # Raises

    `ConfigurationError` if the vocabulary has no classes, or the widths of the parts do not fit.
    """

    default_predictor = "elmo_sst"

    def __init__(
        self,
        vocab: Vocabulary,
        text_encoder: TextEncoder,
        integrator: Union[Lazy[Seq2SeqEncoder], Seq2SeqEncoder],
        output_layer: Union[Lazy[FeedForward], FeedForward],
        dropout: float = 0.0,
        label_namespace: str = "labels",
        verbose_metrics: bool = False,
        initializer: Optional[InitializerApplicator] = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(vocab, **kwargs)
        self._metrics = ClassMetrics(vocab, label_namespace, verbose_metrics)
        self.label_namespace = label_namespace
        self.text_encoder = text_encoder
        self.self_attention = DotProductMatrixAttention()
        self.integrator = built(
            integrator,
            3 * text_encoder.get_output_dim(),
            "three vectors of a token",
            "integrator",
        )
        self.pooling = FourWayPooling(self.integrator.get_output_dim())
        self.dropout = torch.nn.Dropout(dropout)
        self.output_layer = built(
            output_layer, self.pooling.get_output_dim(), "pooled sentence", "output layer"
        )
        self.label_projection = torch.nn.Linear(
            self.output_layer.get_output_dim(), len(self._metrics.classes)
        )
        if initializer is not None:
            initializer(self)

    def forward(
        self,
        tokens: TextFieldTensors,
        label: Optional[Tensor] = None,
        metadata: Optional[List[Dict[str, Any]]] = None,
    ) -> Dict[str, Any]:
        """
        # Parameters

        tokens : `TextFieldTensors`
            The sentences.
        label : `LongTensor`, optional
            `(batch_size,)`. Gold class ids.
        metadata : `List[Dict[str, Any]]`, optional
            Of each sentence, with its `words`.

        # Returns

        `logits` and `probabilities` `(batch_size, num_classes)`; `loss`, the mean of the sentences'
        cross-entropies, if gold classes are given; `words`, if metadata is given.

        # Raises

        `ConfigurationError` if a gold class is none of those the model was built for.
        """
        encoded = self.text_encoder(tokens)
        mask = encoded.mask  # (batch_size, timesteps)
        integrated = self._integrate(encoded.contextualized, mask)
        sentence = self.dropout(self.pooling(integrated, mask))  # (batch_size, pooled_dim)
        logits = self.label_projection(self.output_layer(sentence))  # (batch_size, num_classes)
        output: Dict[str, Any] = {"logits": logits, "probabilities": logits.softmax(dim=-1)}
        if metadata is not None:
            output["words"] = [sentence_metadata["words"] for sentence_metadata in metadata]
        if label is not None:
            self._metrics(logits, label)
            output["loss"] = torch.nn.functional.cross_entropy(logits, label)
        return output

    def make_output_human_readable(self, output_dict: Dict[str, Any]) -> Dict[str, Any]:
        """The output of `forward` with the `label`, the name of the most probable class."""
        labels = [
            self.vocab.get_token_from_index(int(class_id), self.label_namespace)
            for class_id in output_dict["probabilities"].argmax(dim=-1)
        ]
        return {**output_dict, "label": labels}

    def get_metrics(self, reset: bool = False) -> Dict[str, float]:
        """
        Metrics since the last reset.

        # Returns

        `accuracy`; and of each class `_precision-neutral`, `_recall-neutral`, `_f1-neutral`, with
        `verbose_metrics` `precision-neutral` and so on. AllenNLP writes all of them to its metrics files, but
        leaves names with a leading underscore out of progress bars.
        """
        return self._metrics.get_metric(reset)

    def _integrate(self, tokens: Tensor, mask: BoolTensor) -> Tensor:
        """The sentence beside what each of its tokens attends to, read by the integrator."""
        # (batch_size, timesteps, timesteps), from each token to all
        scores = self.self_attention(tokens, tokens)
        # "Memory efficient" is the exact one: the other lets padding take a share, then divides it out.
        weights = masked_softmax(scores, mask, memory_efficient=True)
        attended = weighted_sum(tokens, weights)  # (batch_size, timesteps, text_encoder_dim)
        # (batch_size, timesteps, 3 * text_encoder_dim)
        compared = torch.cat([tokens, tokens - attended, tokens * attended], dim=-1)
        return self.integrator(compared, mask)  # (batch_size, timesteps, integrator_dim)


class FourWayPooling(torch.nn.Module):
    """
    The maximum, the minimum, the mean and a weighted mean over the tokens, side by side. The weights are
    learned: a softmax over the tokens of a linear score of each (McCann et al. 2017, section 5).

    # Parameters

    input_dim : `int`
        Width of a token's vector.
    """

    def __init__(self, input_dim: int) -> None:
        super().__init__()
        # A bias would move all scores alike, which changes no weight.
        self.token_score = torch.nn.Linear(input_dim, 1, bias=False)

    def get_output_dim(self) -> int:
        return 4 * self.token_score.in_features

    def forward(self, tokens: Tensor, mask: BoolTensor) -> Tensor:
        """
        # Parameters

        tokens : `Tensor`
            `(batch_size, timesteps, input_dim)`. What stands at padded steps never counts.
        mask : `BoolTensor`
            `(batch_size, timesteps)`. At least one step of each row is `True`.

        # Returns

        `Tensor` of shape `(batch_size, 4 * input_dim)`.
        """
        wide_mask = mask.unsqueeze(-1)  # (batch_size, timesteps, 1)
        maximum = masked_max(tokens, wide_mask, dim=1)  # (batch_size, input_dim)
        minimum = -masked_max(-tokens, wide_mask, dim=1)  # (batch_size, input_dim)
        mean = masked_mean(tokens, wide_mask, dim=1)  # (batch_size, input_dim)
        scores = self.token_score(tokens).squeeze(-1)  # (batch_size, timesteps)
        # "Memory efficient" is the exact one: the other lets padding take a share, then divides it out.
        weights = masked_softmax(scores, mask, memory_efficient=True)  # (batch_size, timesteps)
        weighted_mean = weighted_sum(tokens, weights)  # (batch_size, input_dim)
        return torch.cat([maximum, minimum, mean, weighted_mean], dim=-1)
