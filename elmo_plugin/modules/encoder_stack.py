"""Stacked task RNNs, and encoders whose input width is derived."""

from typing import List, Optional, TypeVar, Union

import torch
from allennlp.common import Lazy
from allennlp.modules import FeedForward, InputVariationalDropout, Seq2SeqEncoder
from allennlp.modules.seq2seq_encoders import FeedForwardEncoder
from torch import BoolTensor, Tensor

from elmo_plugin.errors import ConfigurationError

Part = TypeVar("Part", Seq2SeqEncoder, FeedForward)


def built(part: Union[Lazy[Part], Part], input_dim: int, given_name: str, part_name: str) -> Part:
    """
    Build a part from its config and an input width, which the config need not have. A part that is built
    already is only checked. Raise `ConfigurationError`, which names the input `given_name` and the part
    `part_name`, if the part reads vectors of another width.
    """
    if isinstance(part, Lazy):
        # AllenNLP's modules have either of these argument names.
        part = part.construct(input_size=input_dim, input_dim=input_dim)
    if part.get_input_dim() != input_dim:
        raise ConfigurationError(
            f"{given_name} must match {part_name} input, but got {input_dim} and {part.get_input_dim()} "
            "instead. Correct the widths in the config, or leave out that of the input."
        )
    return part


@Seq2SeqEncoder.register("elmo_stack")
class EncoderStack(Seq2SeqEncoder):
    """
    Stack encoders and derive their widths: the input of each is the output of the one below, so the config
    needs no `input_size`. (AllenNLP's `compose` accepts only encoders of one kind: no feed-forward network
    below a biLSTM.)

    # Parameters

    encoders : `List[Seq2SeqEncoder]`
        From the lowest to the highest.
    input_size : `int`
        The input width of the lowest encoder. In the config of a text encoder it is derived.
    dropout : `float`, optional (default = `0.0`)
        Variational dropout on the input of each encoder except the lowest, whose input the caller drops.

    # Raises

    `ConfigurationError` if there is no encoder, or if the input width of one is not the output width of the
    one below.
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
        return self.encoders[-1].is_bidirectional()

    def forward(self, inputs: Tensor, mask: Optional[BoolTensor] = None) -> Tensor:
        """Transform `(batch_size, timesteps, input_dim)` to `(batch_size, timesteps, output_dim)`."""
        lowest, *others = self.encoders
        outputs = lowest(inputs, mask)
        for encoder in others:
            outputs = encoder(self.dropout(outputs), mask)
        return outputs


@Seq2SeqEncoder.register("elmo_feedforward", constructor="from_lazy")
class StackedFeedForward(FeedForwardEncoder):
    """
    Apply a feed-forward network to each token, as AllenNLP's `feedforward` encoder, with a derived input
    width: in a config, `feedforward` needs no `input_dim`.
    """

    @classmethod
    def from_lazy(cls, feedforward: Lazy[FeedForward], input_size: int) -> "StackedFeedForward":
        """Construct from a config. `input_size` is the width of a token's vector."""
        return cls(built(feedforward, input_size, "input of elmo_feedforward", "feedforward"))
