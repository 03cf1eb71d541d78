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

from elmo_plugin.modules.text_encoder import TextEncoder, built
from elmo_plugin.tasks.classes import Classifier


@Model.register("elmo_sst")
class BiattentiveClassifier(Classifier):
    """
    The biattentive classification network of McCann et al. (2017, section 5) for one sentence, with the ELMo
    paper's change to its last layers: text encoder (a relu layer on each token, then a biLSTM), attention of
    the sentence to itself, integrating biLSTM, pooling, and relu layers in place of maxout.

    The text encoder places ELMo. Output ELMo is added to the output of the first biLSTM, before the
    attention, as in the paper. AllenNLP's `bcn` adds it after the integrator.

    In a config neither `integrator` nor `output_layer` has an input width. The output layer can have any
    output width, because a linear layer to the classes follows.

    # Parameters

    integrator : `Seq2SeqEncoder`
        Reads, for each token, its vector, the difference to the vector that it attends to, and the product of
        the two.
    output_layer : `FeedForward`
        From the pooled sentence to the input of the linear layer.
    dropout : `float`, optional (default = `0.0`)
        On the pooled sentence, in addition to the dropout of text encoder and output layer.
    """

    default_predictor = "elmo_sst"

    def __init__(
        self,
        vocab: Vocabulary,
        text_encoder: TextEncoder,
        integrator: Union[Lazy[Seq2SeqEncoder], Seq2SeqEncoder],
        output_layer: Union[Lazy[FeedForward], FeedForward],
        dropout: float = 0.0,
        initializer: Optional[InitializerApplicator] = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(vocab, **kwargs)
        self.text_encoder = text_encoder
        self.self_attention = DotProductMatrixAttention()
        token_dim = text_encoder.get_output_dim()
        self.integrator = built(integrator, 3 * token_dim, "three vectors of a token", "integrator")
        integrated_dim = self.integrator.get_output_dim()
        self.pooling = FourWayPooling(integrated_dim)
        self.dropout = torch.nn.Dropout(dropout)
        self.output_layer = built(
            output_layer, 4 * integrated_dim, "pooled sentence", "output layer"
        )
        self.label_projection = torch.nn.Linear(
            self.output_layer.get_output_dim(), len(self.classes)
        )
        if initializer is not None:
            initializer(self)

    def forward(
        self,
        tokens: TextFieldTensors,
        label: Optional[Tensor] = None,
        metadata: Optional[List[Dict[str, Any]]] = None,
    ) -> Dict[str, Any]:
        """Return `Classifier._output`. `label` holds the ids of the gold classes, `(batch_size,)`."""
        encoded = self.text_encoder(tokens)
        mask = encoded.mask  # (batch_size, timesteps)
        integrated = self._integrate(encoded.contextualized, mask)
        sentence = self.dropout(self.pooling(integrated, mask))  # (batch_size, pooled_dim)
        logits = self.label_projection(self.output_layer(sentence))  # (batch_size, num_classes)
        return self._output(logits, label, metadata)

    def _integrate(self, tokens: Tensor, mask: BoolTensor) -> Tensor:
        """Return the integrator's output for each token and the vector that it attends to."""
        # (batch_size, timesteps, timesteps), from each token to all
        scores = self.self_attention(tokens, tokens)
        # "Memory efficient" is the exact one: the other gives padding a share first, and then divides it out.
        weights = masked_softmax(scores, mask, memory_efficient=True)
        attended = weighted_sum(tokens, weights)  # (batch_size, timesteps, text_encoder_dim)
        # (batch_size, timesteps, 3 * text_encoder_dim)
        compared = torch.cat([tokens, tokens - attended, tokens * attended], dim=-1)
        return self.integrator(compared, mask)  # (batch_size, timesteps, integrator_dim)


class FourWayPooling(torch.nn.Module):
    """
    Concatenates the maximum, the minimum, the mean and a weighted mean over the tokens. The weights are a
    softmax over learned linear scores of the tokens (McCann et al. 2017, section 5).
    """

    def __init__(self, input_dim: int) -> None:
        super().__init__()
        # A bias would shift all scores equally, which changes no weight.
        self.token_score = torch.nn.Linear(input_dim, 1, bias=False)

    def forward(self, tokens: Tensor, mask: BoolTensor) -> Tensor:
        """
        Pool `(batch_size, timesteps, input_dim)` to `(batch_size, 4 * input_dim)`. Padded steps are ignored.
        Each row of the mask `(batch_size, timesteps)` must have a step that is `True`.
        """
        wide_mask = mask.unsqueeze(-1)  # (batch_size, timesteps, 1)
        maximum = masked_max(tokens, wide_mask, dim=1)  # (batch_size, input_dim)
        minimum = -masked_max(-tokens, wide_mask, dim=1)  # (batch_size, input_dim)
        mean = masked_mean(tokens, wide_mask, dim=1)  # (batch_size, input_dim)
        scores = self.token_score(tokens).squeeze(-1)  # (batch_size, timesteps)
        # "Memory efficient" is the exact one: the other gives padding a share first, and then divides it out.
        weights = masked_softmax(scores, mask, memory_efficient=True)  # (batch_size, timesteps)
        weighted_mean = weighted_sum(tokens, weights)  # (batch_size, input_dim)
        return torch.cat([maximum, minimum, mean, weighted_mean], dim=-1)
