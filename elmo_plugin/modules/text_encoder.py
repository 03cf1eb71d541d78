"""The text encoder of all tasks: from tokens to contextual vectors."""

from typing import Dict, List, NamedTuple, Optional, Union

import torch
from allennlp.common import Lazy, Registrable
from allennlp.data import TextFieldTensors
from allennlp.modules import InputVariationalDropout, Seq2SeqEncoder, TextFieldEmbedder
from allennlp.nn.util import get_text_field_mask
from torch import BoolTensor, Tensor

from elmo_plugin.errors import ConfigurationError
from elmo_plugin.modules.elmo_token_embedder import ElmoTokenEmbedder
from elmo_plugin.modules.encoder_stack import built
from elmo_plugin.modules.placed_elmo import PlacedElmo, elmo_characters


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


class TextEncoder(torch.nn.Module, Registrable):
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

    default_implementation = "elmo_text_encoder"

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
        self._indexers_of_embedded_elmo = _indexers_of_elmo_in(text_field_embedder)
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

        `ConfigurationError` if `tokens` does not hold ELMo's characters; `ValueError` if features are missing
        or not of width `feature_dim`.
        """
        if mask is None:
            mask = get_text_field_mask(tokens)
        for indexer in self._indexers_of_embedded_elmo:
            elmo_characters(tokens, indexer)  # for its error, which is clearer than AllenNLP's
        elmo_at: Dict[str, Tensor] = {}
        if self.elmo is not None:
            elmo_at, others = self.elmo.split(tokens)
            # ELMo in the text field embedder may read the same characters.
            shared = {name: tokens[name] for name in self._indexers_of_embedded_elmo}
            tokens = {**others, **shared}

        pieces = []
        if self.text_field_embedder is not None:
            pieces.append(self.text_field_embedder(tokens))
        if "input" in elmo_at:
            pieces.append(elmo_at["input"])
        if self.feature_dim > 0:
            pieces.append(self._check_features(features))
        embedded = torch.cat(pieces, dim=-1)  # (batch_size, timesteps, input_dim)
        contextualized = self.encoder(self.dropout(embedded), mask)
        if "output" in elmo_at:
            contextualized = torch.cat([contextualized, elmo_at["output"]], dim=-1)
        return EncodedText(contextualized, embedded, mask)

    def _check_features(self, features: Optional[Tensor]) -> Tensor:
        if features is None or features.size(-1) != self.feature_dim:
            found = "no values" if features is None else f"width {features.size(-1)}"
            raise ValueError(f"The extra features have {found}, expected width {self.feature_dim}.")
        return features


TextEncoder.register("elmo_text_encoder")(TextEncoder)


def _indexers_of_elmo_in(text_field_embedder: Optional[TextFieldEmbedder]) -> List[str]:
    """Return the names of the embedders that are ELMo, which are also those of their indexers."""
    if text_field_embedder is None:
        return []
    return [
        name.removeprefix("token_embedder_")
        for name, embedder in text_field_embedder.named_children()
        if isinstance(embedder, ElmoTokenEmbedder) and name.startswith("token_embedder_")
    ]
