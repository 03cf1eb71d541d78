"""Task RNNs one on another, and what may stand below them."""

from typing import List

from allennlp.common import Lazy
from allennlp.common.checks import ConfigurationError
from allennlp.modules import FeedForward, Seq2SeqEncoder
from allennlp.modules.seq2seq_encoders import ComposeEncoder, FeedForwardEncoder


@Seq2SeqEncoder.register("elmo_stack", constructor="from_partial_objects")
class EncoderStack(ComposeEncoder):
    """
    AllenNLP's `compose` encoder, with derived widths: each encoder reads what the one below gives, so that
    no `input_size` stands in the config.

    Registered as a `Seq2SeqEncoder` with name `elmo_stack`.

    # Parameters

    encoders : `List[Seq2SeqEncoder]`
        From the lowest to the highest.

    # Raises

    `ConfigurationError` if there is no encoder.
    """

    @classmethod
    def from_partial_objects(
        cls, encoders: List[Lazy[Seq2SeqEncoder]], input_size: int
    ) -> "EncoderStack":
        """The constructor that configs use. `input_size`: the width of what the lowest encoder reads."""
        if not encoders:
            raise ConfigurationError("elmo_stack.encoders is empty, expected at least one encoder.")
        built: List[Seq2SeqEncoder] = []
        for encoder in encoders:
            # AllenNLP's encoders call it by one name or the other.
            built.append(encoder.construct(input_size=input_size, input_dim=input_size))
            input_size = built[-1].get_output_dim()
        return cls(built)


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
