"""Task RNNs one on another, and parts whose input width is derived."""

from typing import List, Optional, TypeVar, Union

import torch
from allennlp.common import Lazy
from allennlp.common.checks import ConfigurationError, check_dimensions_match
from allennlp.modules import FeedForward, InputVariationalDropout, Seq2SeqEncoder
from allennlp.modules.seq2seq_encoders import FeedForwardEncoder
from torch import BoolTensor, Tensor

Part = TypeVar("Part", Seq2SeqEncoder, FeedForward)


def built(part: Union[Lazy[Part], Part], input_dim: int, given_name: str, part_name: str) -> Part:
    """
    Build a part of a config, which needs no input width there; one that is built already is only checked.

    # Parameters

    part : `Lazy` or built `Seq2SeqEncoder` or `FeedForward`
    input_dim : `int`
        The width of what it is given.
    given_name, part_name : `str`
        What it is given, and what it is, for errors.

    # Raises

    `ConfigurationError` if the part reads vectors of another width.
    """
    if isinstance(part, Lazy):
        # AllenNLP's modules call it by one name or the other.
        part = part.construct(input_size=input_dim, input_dim=input_dim)
    check_dimensions_match(input_dim, part.get_input_dim(), given_name, f"{part_name} input")
    return part


@Seq2SeqEncoder.register("elmo_stack")
class EncoderStack(Seq2SeqEncoder):
    """
    Encoders with derived widths: each reads what the one below gives, so that no `input_size` stands in the
    config. (AllenNLP's `compose` takes only encoders of one kind: no feed-forward network below a biLSTM.)

    Registered as a `Seq2SeqEncoder` with name `elmo_stack`.

    # Parameters

    encoders : `List[Seq2SeqEncoder]`
        From the lowest to the highest.
    input_size : `int`
        The width of what the lowest reads. In a text encoder's config, derived.
    dropout : `float`, optional (default = `0.0`)
        Variational dropout on the input of each encoder but the lowest, whose input is the caller's to drop.

    # Raises

    `ConfigurationError` if there is no encoder, or one does not read what the one below gives.
    """

    def __init__(
        self,
        encoders: List[Union[Lazy[Seq2SeqEncoder], Seq2SeqEncoder]],
        input_size: int,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if not encoders:
            raise ConfigurationError("elmo_stack.encoders is empty, expected at least one encoder.")
        self._stack = torch.nn.ModuleList()
        given_name = "input of elmo_stack"
        for index, encoder in enumerate(encoders):
            name = f"elmo_stack.encoders[{index}]"
            self._stack.append(built(encoder, input_size, given_name, name))
            input_size, given_name = self.get_output_dim(), f"output of {name}"
        self.dropout = InputVariationalDropout(dropout)

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


@Seq2SeqEncoder.register("elmo_feedforward", constructor="from_lazy")
class StackedFeedForward(FeedForwardEncoder):
    """
    AllenNLP's `feedforward` encoder, a feed-forward network on each token, with a derived input width.

    Registered as a `Seq2SeqEncoder` with name `elmo_feedforward`.

    # Parameters

    feedforward : `FeedForward`
        In a config, without `input_dim`.
    """

    @classmethod
    def from_lazy(cls, feedforward: Lazy[FeedForward], input_size: int) -> "StackedFeedForward":
        """The constructor that configs use. `input_size`: the width of a token's vector."""
        return cls(built(feedforward, input_size, "input of elmo_feedforward", "feedforward"))
