"""Task RNNs one on another, and what may stand below them."""

from itertools import pairwise
from typing import List, Optional

import torch
from allennlp.common import Lazy
from allennlp.common.checks import ConfigurationError, check_dimensions_match
from allennlp.modules import FeedForward, InputVariationalDropout, Seq2SeqEncoder
from allennlp.modules.seq2seq_encoders import FeedForwardEncoder
from torch import BoolTensor, Tensor


@Seq2SeqEncoder.register("elmo_stack", constructor="from_partial_objects")
class EncoderStack(Seq2SeqEncoder):
    """
    Encoders with derived widths: each reads what the one below gives, so that no `input_size` stands in the
    config. (AllenNLP's `compose` takes only encoders of one kind: no feed-forward network below a biLSTM.)

    Registered as a `Seq2SeqEncoder` with name `elmo_stack`.

    # Parameters

    encoders : `List[Seq2SeqEncoder]`
        From the lowest to the highest.
    dropout : `float`, optional (default = `0.0`)
        Variational dropout on the input of each encoder but the lowest, whose input is the caller's to drop.

    # Raises

    `ConfigurationError` if there is no encoder, or one does not read what the one below gives.
    """

    def __init__(self, encoders: List[Seq2SeqEncoder], dropout: float = 0.0) -> None:
        super().__init__()
        if not encoders:
            raise ConfigurationError("elmo_stack.encoders is empty, expected at least one encoder.")
        for index, (lower, upper) in enumerate(pairwise(encoders)):
            check_dimensions_match(
                lower.get_output_dim(),
                upper.get_input_dim(),
                f"output of elmo_stack.encoders[{index}]",
                f"input of elmo_stack.encoders[{index + 1}]",
            )
        self._stack = torch.nn.ModuleList(encoders)
        self.dropout = InputVariationalDropout(dropout)

    @classmethod
    def from_partial_objects(
        cls, encoders: List[Lazy[Seq2SeqEncoder]], input_size: int, dropout: float = 0.0
    ) -> "EncoderStack":
        """The constructor that configs use. `input_size`: the width of what the lowest encoder reads."""
        built: List[Seq2SeqEncoder] = []
        for encoder in encoders:
            built.append(built_encoder(encoder, input_size))
            input_size = built[-1].get_output_dim()
        return cls(built, dropout)

    @property
    def encoders(self) -> List[Seq2SeqEncoder]:
        """From the lowest to the highest."""
        return list(self._stack)

    def get_input_dim(self) -> int:
        return self.encoders[0].get_input_dim()

    def get_output_dim(self) -> int:
        return self.encoders[-1].get_output_dim()

    def is_bidirectional(self) -> bool:
        """Whether the highest encoder is."""
        return self.encoders[-1].is_bidirectional()

    def forward(self, inputs: Tensor, mask: Optional[BoolTensor] = None) -> Tensor:
        """From `(batch_size, timesteps, input_dim)` to `(batch_size, timesteps, output_dim)`."""
        lowest, *others = self.encoders
        outputs = lowest(inputs, mask)
        for encoder in others:
            outputs = encoder(self.dropout(outputs), mask)
        return outputs


@Seq2SeqEncoder.register("elmo_feedforward", constructor="from_partial_objects")
class StackedFeedForward(FeedForwardEncoder):
    """
    AllenNLP's `feedforward` encoder, a feed-forward network on each token, with a derived input width.

    Registered as a `Seq2SeqEncoder` with name `elmo_feedforward`.

    # Parameters

    feedforward : `FeedForward`
        In a config, without `input_dim`.
    """

    @classmethod
    def from_partial_objects(
        cls, feedforward: Lazy[FeedForward], input_size: int
    ) -> "StackedFeedForward":
        """The constructor that configs use. `input_size`: the width of a token's vector."""
        return cls(feedforward.construct(input_dim=input_size))


def built_encoder(encoder: Lazy[Seq2SeqEncoder], input_dim: int) -> Seq2SeqEncoder:
    """An encoder of a config, reading vectors of this width."""
    # AllenNLP's encoders call it by one name or the other.
    return encoder.construct(input_size=input_dim, input_dim=input_dim)
