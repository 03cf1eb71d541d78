"""Compare two sentences token by token: ESIM."""

from typing import Any, Dict, List, Optional, Union

import torch
from allennlp.common import Lazy
from allennlp.data import TextFieldTensors, Vocabulary
from allennlp.models import Model
from allennlp.modules import FeedForward, InputVariationalDropout, Seq2SeqEncoder
from allennlp.modules.matrix_attention import DotProductMatrixAttention
from allennlp.nn import InitializerApplicator
from allennlp.nn.util import masked_max, masked_mean, masked_softmax, weighted_sum
from torch import BoolTensor, LongTensor, Tensor

from elmo_plugin.errors import ConfigurationError
from elmo_plugin.modules.text_encoder import TextEncoder, built
from elmo_plugin.tasks.classes import Classifier
from elmo_plugin.tasks.snli.reader import LABELS


@Model.register("elmo_snli")
class SnliClassifier(Classifier):
    """
    ESIM (Chen et al. 2017, without its tree LSTM), the paper's model of textual entailment. One text encoder
    reads both sentences; each token is compared with the part of the other sentence that it is aligned with;
    the inference encoder reads the comparisons; its output is pooled and classified.

    Premises and hypotheses go through all layers as one batch, so that there is one biLM pass for both.
    Statistics of ELMo's layer normalisation (`do_layer_norm`) are therefore those of premises and hypotheses
    together. They are computed over a batch, as in all implementations of ELMo, so the prediction for a pair
    depends slightly on the other pairs in the batch.

    In a config no part has an input width: `projection.input_dim`, `inference_encoder.input_size` and
    `output_feedforward.input_dim` are derived.

    # Parameters

    projection : `FeedForward`
        From the comparison of a token, four times as wide as the text encoder's output, to the input of the
        inference encoder.
    inference_encoder : `Seq2SeqEncoder`
        Reads the projected comparisons of a sentence.
    output_feedforward : `FeedForward`
        The layers before the last, which is linear. Reads a pooled pair, four times as wide as the inference
        encoder's output.
    attention_dropout : `float`, optional (default = `0.0`)
        On the comparisons.
    inference_dropout : `float`, optional (default = `0.0`)
        On the input of the inference encoder, the same units at all steps of a sentence.
    dropout : `float`, optional (default = `0.0`)
        On the inputs of `output_feedforward` and of the last layer.
    """

    default_predictor = "elmo_snli"
    word_keys = ("premise_words", "hypothesis_words")

    def __init__(
        self,
        vocab: Vocabulary,
        text_encoder: TextEncoder,
        projection: Union[Lazy[FeedForward], FeedForward],
        inference_encoder: Union[Lazy[Seq2SeqEncoder], Seq2SeqEncoder],
        output_feedforward: Union[Lazy[FeedForward], FeedForward],
        attention_dropout: float = 0.0,
        inference_dropout: float = 0.0,
        dropout: float = 0.0,
        initializer: Optional[InitializerApplicator] = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(vocab, **kwargs)
        if set(self.classes) != set(LABELS):
            raise ConfigurationError(
                f"The vocabulary's namespace 'labels' has {', '.join(self.classes)}, expected "
                f"{', '.join(LABELS)}. Give pairs of each label to learn from, or put the labels into the "
                "vocabulary's `tokens_to_add`."
            )
        self.text_encoder = text_encoder
        self.matrix_attention = DotProductMatrixAttention()
        self.attention_dropout = torch.nn.Dropout(attention_dropout)
        token_dim = text_encoder.get_output_dim()
        self.projection = built(projection, 4 * token_dim, "comparison of a token", "projection")
        self.inference_dropout = InputVariationalDropout(inference_dropout)
        token_dim = self.projection.get_output_dim()
        self.inference_encoder = built(
            inference_encoder, token_dim, "projected comparison", "inference encoder"
        )
        self.dropout = torch.nn.Dropout(dropout)
        pair_dim = 4 * self.inference_encoder.get_output_dim()
        self.output_feedforward = built(
            output_feedforward, pair_dim, "pooled pair", "output feedforward"
        )
        hidden_dim = self.output_feedforward.get_output_dim()
        self.label_projection = torch.nn.Linear(hidden_dim, len(LABELS))
        if initializer is not None:
            initializer(self)

    def forward(
        self,
        premise: TextFieldTensors,
        hypothesis: TextFieldTensors,
        label: Optional[LongTensor] = None,
        metadata: Optional[List[Dict[str, Any]]] = None,
    ) -> Dict[str, Any]:
        """Return `Classifier._output`. `label` holds the ids of the gold labels, `(batch_size,)`."""
        # The rows of all tensors here are the premises of the batch, then its hypotheses.
        encoded = self.text_encoder(concatenate_text_fields(premise, hypothesis))
        tokens, mask = encoded.contextualized, encoded.mask  # mask: (2 * batch_size, timesteps)
        aligned = self._align(tokens, mask)  # (2 * batch_size, timesteps, encoded_dim)
        # Chen et al., equations 14 and 15. (2 * batch_size, timesteps, 4 * encoded_dim)
        comparisons = torch.cat([tokens, aligned, tokens - aligned, tokens * aligned], dim=-1)
        # (2 * batch_size, timesteps, projection_dim)
        projected = self.projection(self.attention_dropout(comparisons))
        # (2 * batch_size, timesteps, inference_dim)
        inferred = self.inference_encoder(self.inference_dropout(projected), mask)
        pair = _pool(inferred, mask)  # (batch_size, 4 * inference_dim)
        hidden = self.output_feedforward(self.dropout(pair))  # (batch_size, hidden_dim)
        logits = self.label_projection(self.dropout(hidden))  # (batch_size, num_labels)
        return self._output(logits, label, metadata)

    def _align(self, encoded: Tensor, mask: BoolTensor) -> Tensor:
        """
        Return, for each token, the mean of the other sentence's tokens, weighted by similarity (Chen et al.,
        equations 11 to 13).
        """
        premise, hypothesis = encoded.chunk(2)  # (batch_size, timesteps, encoded_dim)
        premise_mask, hypothesis_mask = mask.chunk(2)  # (batch_size, timesteps)
        # (batch_size, timesteps of the premise, timesteps of the hypothesis)
        similarity = self.matrix_attention(premise, hypothesis)
        # `memory_efficient`: otherwise AllenNLP gives no weight to any token if all similarities are far
        # below 0, as products of wide vectors can be.
        hypothesis_weights = masked_softmax(similarity, hypothesis_mask, memory_efficient=True)
        premise_weights = masked_softmax(
            similarity.transpose(1, 2), premise_mask, memory_efficient=True
        )
        return torch.cat(
            [weighted_sum(hypothesis, hypothesis_weights), weighted_sum(premise, premise_weights)]
        )


def _pool(inferred: Tensor, mask: BoolTensor) -> Tensor:
    """
    Return average and maximum over the premise's tokens, then the hypothesis's (Chen et al., equation 20).
    """
    token_mask = mask.unsqueeze(-1)  # (2 * batch_size, timesteps, 1)
    averages = masked_mean(inferred, token_mask, dim=1)  # (2 * batch_size, inference_dim)
    maxima = masked_max(inferred, token_mask, dim=1)  # (2 * batch_size, inference_dim)
    premise, hypothesis = torch.cat([averages, maxima], dim=-1).chunk(2)
    return torch.cat([premise, hypothesis], dim=-1)


def concatenate_text_fields(first: TextFieldTensors, second: TextFieldTensors) -> TextFieldTensors:
    """
    Return one batch with the rows of `first`, then those of `second`, both of the same indexers. Every tensor
    is `(batch_size, timesteps, ...)`. The two may differ in all sizes; the smaller one is padded.
    """
    return {
        indexer: {
            name: _concatenate(tensor, second[indexer][name]) for name, tensor in tensors.items()
        }
        for indexer, tensors in first.items()
    }


def _concatenate(first: Tensor, second: Tensor) -> Tensor:
    sizes = [max(pair) for pair in zip(first.shape[1:], second.shape[1:], strict=True)]
    # 0 is padding in the output of all of AllenNLP's indexers, and False in masks.
    both = first.new_zeros(first.size(0) + second.size(0), *sizes)
    for start, tensor in ((0, first), (first.size(0), second)):
        region = both[start : start + tensor.size(0)]
        for dim, size in enumerate(tensor.shape[1:], start=1):
            region = region.narrow(dim, 0, size)
        region.copy_(tensor)
    return both
