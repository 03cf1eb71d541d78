"""The text encoder of all tasks: ELMo at its places, stacked task RNNs, and derived input widths."""

from typing import Any, Dict, List, NamedTuple, Optional, Tuple, TypeVar, Union

import torch
from allennlp.common import FromParams, Lazy
from allennlp.data import TextFieldTensors
from allennlp.modules import (
    FeedForward,
    InputVariationalDropout,
    Seq2SeqEncoder,
    TextFieldEmbedder,
)
from allennlp.modules.seq2seq_encoders import FeedForwardEncoder
from allennlp.nn.util import get_text_field_mask
from torch import BoolTensor, Tensor

from elmo_plugin.errors import ConfigurationError, check_choice, is_probability
from elmo_plugin.modules.elmo import Elmo, check_left_out

PLACES_OF: Dict[str, Tuple[str, ...]] = {
    "none": (),
    "input": ("input",),
    "output": ("output",),
    "both": ("input", "output"),
}
Part = TypeVar("Part", Seq2SeqEncoder, FeedForward)


class PlacedElmo(torch.nn.Module, FromParams):
    """
    ELMo at the input of a task RNN, at its output, at both or at none, with its own mix for each place
    over one pass of the biLM (paper, section 3.3).

    # Parameters

    options_file, weight_file : `str`
        See `Elmo`. One name is enough for both, such as `elmo_mini`; leave out the other. With the placement
        `none` no file is read.
    placement : `str`, optional (default = `"input"`)
        `input`, `output`, `both` or `none`.
    indexer : `str`, optional (default = `"elmo"`)
        The name of the `elmo_character_ids` indexer, or AllenNLP's `elmo_characters`, in the reader's
        `token_indexers`.
    dropout : `float` or `Dict[str, float]`, optional (default = `0.5`)
        Dropout on ELMo representations: one value, or one each for `input` and `output`. Use 0 if the next
        layer has dropout on its input, as a text encoder with `dropout` has: ELMo that is dropped twice by
        0.5 keeps a quarter of its units.
    serialization_dir : `str`, optional
        Set by AllenNLP, see `Elmo`.
    elmo
        The other arguments of `Elmo`, but `num_output_representations` and `keep_sentence_boundaries`, which
        follow from the placement, and `vocab_to_cache` and `module`.

    # Raises

    `ConfigurationError` for an unknown `placement`; for one of these four arguments; for an unknown key of
    the config, unless the placement is `none`; and for a dropout that is not between 0 and 1.
    """

    def __init__(
        self,
        options_file: Optional[str] = None,
        weight_file: Optional[str] = None,
        placement: str = "input",
        indexer: str = "elmo",
        dropout: Union[float, Dict[str, float]] = 0.5,
        serialization_dir: Optional[str] = None,
        **elmo: Any,
    ) -> None:
        super().__init__()
        check_choice("elmo.placement", placement, PLACES_OF)
        self.places = PLACES_OF[placement]
        self.dropout = _dropout_by_place(dropout)
        self.indexer = indexer
        self.elmo: Optional[Elmo] = None
        check_left_out(elmo, "vocab_to_cache")
        if self.places:
            files = (options_file, weight_file)
            # This class applies dropout, for each place.
            elmo = {**elmo, "dropout": 0.0, "serialization_dir": serialization_dir}
            self.elmo = Elmo(*files, num_output_representations=len(self.places), **elmo)

    def get_output_dim(self, place: str) -> int:
        """Width that ELMo adds to the vectors at `place`, which is `input` or `output`."""
        if self.elmo is None or place not in self.places:
            return 0
        return self.elmo.get_output_dim()

    def forward(self, tokens: TextFieldTensors) -> Tuple[Dict[str, Tensor], TextFieldTensors]:
        """
        Run the biLM once. Return the ELMo representation of each place, `(batch_size, timesteps, dim)`; and
        the text field without ELMo's characters, for the other embedders.
        """
        others = {name: tensors for name, tensors in tokens.items() if name != self.indexer}
        if self.elmo is None:
            return {}, others
        if "elmo_tokens" not in tokens.get(self.indexer, {}):
            found = ", ".join(f"{name} ({', '.join(tokens[name])})" for name in sorted(tokens))
            raise ConfigurationError(
                f"ELMo reads the indexer '{self.indexer}', expected of type 'elmo_character_ids', but the "
                f'reader has {found or "none"}. Put "{self.indexer}": {{"type": "elmo_character_ids"}} into '
                "dataset_reader.token_indexers."
            )
        representations = self.elmo(tokens[self.indexer]["elmo_tokens"])["elmo_representations"]
        return {
            place: torch.nn.functional.dropout(
                representation, self.dropout[place], training=self.training
            )
            for place, representation in zip(self.places, representations, strict=True)
        }, others


class EncodedText(NamedTuple):
    """
    The output of a `TextEncoder` for a batch.

    # Parameters

    contextualized : `Tensor`
        `(batch_size, timesteps, TextEncoder.get_output_dim())`. Output of the task RNN, followed by output
        ELMo if it is used.
    embedded : `Tensor`
        `(batch_size, timesteps, TextEncoder.get_input_dim())`. Input of the task RNN, before dropout.
    mask : `BoolTensor`
        `(batch_size, timesteps)`. `True` on real tokens.
    """

    contextualized: Tensor
    embedded: Tensor
    mask: BoolTensor


class TextEncoder(torch.nn.Module, FromParams):
    """
    Embed tokens, add input ELMo, features and dropout, run the task RNN, and add output ELMo: the input is
    `[x; ELMo]` and the output `[h; ELMo']`, each with ELMo if the config places it there (paper, section
    3.3).

    In a config `encoder` needs no `input_size`, which is derived from the embeddings. So one word moves ELMo.

    # Parameters

    encoder : `Seq2SeqEncoder`
        The task RNN.
    text_field_embedder : `TextFieldEmbedder`, optional
        Context-independent embeddings. It may also hold ELMo, as the embedder `elmo`. Can be `None` if `elmo`
        is at the input.
    elmo : `PlacedElmo`, optional
        ELMo in addition to the text field embedder, and its places.
    feature_dim : `int`, optional (default = `0`)
        Width of the extra features of each token, an argument of `forward`.
    dropout : `float`, optional (default = `0.0`)
        Dropout on the input of the task RNN.
    variational_dropout : `bool`, optional (default = `False`)
        Whether the same units are dropped at all timesteps of a sentence.

    # Raises

    `ConfigurationError` if the input width of the task RNN is not the width of the embeddings, or if there
    are no embeddings.
    """

    def __init__(
        self,
        encoder: Union[Lazy[Seq2SeqEncoder], Seq2SeqEncoder],
        text_field_embedder: Optional[TextFieldEmbedder] = None,
        elmo: Optional[PlacedElmo] = None,
        feature_dim: int = 0,
        dropout: float = 0.0,
        variational_dropout: bool = False,
    ) -> None:
        super().__init__()
        self.text_field_embedder = text_field_embedder
        embedder_dim = 0 if text_field_embedder is None else text_field_embedder.get_output_dim()
        elmo_dim = 0 if elmo is None else elmo.get_output_dim("input")
        if embedder_dim + elmo_dim == 0:
            raise ConfigurationError(
                "The task RNN has no input: there is no text_field_embedder, and no ELMo at the input. Give "
                "text_encoder.text_field_embedder, or set text_encoder.elmo.placement to input or both."
            )
        input_dim = embedder_dim + elmo_dim + feature_dim
        self.encoder = built(encoder, input_dim, "embedded text", "task RNN")
        self.elmo = elmo
        self.feature_dim = feature_dim
        dropout_class = InputVariationalDropout if variational_dropout else torch.nn.Dropout
        self.dropout: torch.nn.Module = dropout_class(dropout)

    def get_input_dim(self) -> int:
        """Width of the input of the task RNN."""
        return self.encoder.get_input_dim()

    def get_output_dim(self) -> int:
        """Width of the contextual vectors."""
        output_elmo_dim = 0 if self.elmo is None else self.elmo.get_output_dim("output")
        return self.encoder.get_output_dim() + output_elmo_dim

    def forward(
        self,
        tokens: TextFieldTensors,
        features: Optional[Tensor] = None,
        mask: Optional[BoolTensor] = None,
    ) -> EncodedText:
        """
        Encode a batch of text.

        # Parameters

        tokens : `TextFieldTensors`
            One text field, `(batch_size, timesteps)`.
        features : `Tensor`, optional
            `(batch_size, timesteps, feature_dim)`. Required if `feature_dim` is not 0.
        mask : `BoolTensor`, optional
            `(batch_size, timesteps)`. Derived from `tokens` if not given.

        # Raises

        `ConfigurationError` if `tokens` does not hold ELMo's characters, and without the features.
        """
        if mask is None:
            mask = get_text_field_mask(tokens)
        elmo_at: Dict[str, Tensor] = {}
        if self.elmo is not None:
            elmo_at, tokens = self.elmo(tokens)
        pieces = []
        if self.text_field_embedder is not None:
            pieces.append(self.text_field_embedder(tokens))
        if "input" in elmo_at:
            pieces.append(elmo_at["input"])
        if (features is None) != (self.feature_dim == 0):
            given = "no features" if features is None else f"features of width {features.size(-1)}"
            raise ConfigurationError(
                f"text_encoder.feature_dim is {self.feature_dim}, but the model gives {given}. Set it to "
                "their width, or leave it out if there are none."
            )
        if features is not None:
            pieces.append(features)
        embedded = torch.cat(pieces, dim=-1)  # (batch_size, timesteps, input_dim)
        contextualized = self.encoder(self.dropout(embedded), mask)
        if "output" in elmo_at:
            contextualized = torch.cat([contextualized, elmo_at["output"]], dim=-1)
        return EncodedText(contextualized, embedded, mask)


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

    `ConfigurationError` if there is no encoder, and if the input width of one is not the output width of the
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
            part = built(encoder, input_size, given_name, name)
            self._stack.append(part)
            input_size, given_name = part.get_output_dim(), f"output of {name}"
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


def _dropout_by_place(dropout: Union[float, Dict[str, float]]) -> Dict[str, float]:
    places = PLACES_OF["both"]
    by_place = dropout if isinstance(dropout, dict) else dict.fromkeys(places, dropout)
    if set(by_place) != set(places) or not all(map(is_probability, by_place.values())):
        raise ConfigurationError(
            f"elmo.dropout is {dropout!r}, expected a number from 0 to 1, or one for each place, such as "
            '{"input": 0.0, "output": 0.5}.'
        )
    return by_place
