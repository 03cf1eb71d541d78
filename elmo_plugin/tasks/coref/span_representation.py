"""One vector for each span of a document."""

import torch
from allennlp.modules.span_extractors import EndpointSpanExtractor, SelfAttentiveSpanExtractor
from torch import Tensor


class SpanRepresentation(torch.nn.Module):
    """
    The contextual vectors of a span's first and last token, the attention-weighted sum of its embedded
    tokens, in which its head should stand out, and an embedding of its width (Lee et al. 2017, section 4).

    # Parameters

    contextualized_dim : `int`
        Width of contextual vectors.
    embedded_dim : `int`
        Width of the embedded tokens that are attended over.
    max_width : `int`
        Tokens of the longest span.
    width_dim : `int`
        Width of the embedding of span widths.
    """

    def __init__(
        self, contextualized_dim: int, embedded_dim: int, max_width: int, width_dim: int
    ) -> None:
        super().__init__()
        self.endpoints = EndpointSpanExtractor(
            contextualized_dim,
            combination="x,y",
            num_width_embeddings=max_width,
            span_width_embedding_dim=width_dim,
        )
        self.attended = SelfAttentiveSpanExtractor(embedded_dim)

    def get_output_dim(self) -> int:
        return self.endpoints.get_output_dim() + self.attended.get_output_dim()

    def forward(self, contextualized: Tensor, embedded: Tensor, spans: Tensor) -> Tensor:
        """
        # Parameters

        contextualized : `Tensor`
            `(num_words, contextualized_dim)`. Of the tokens of a document.
        embedded : `Tensor`
            `(num_words, embedded_dim)`.
        spans : `LongTensor`
            `(num_spans, 2)`. Starts and ends (exclusive), at least one.

        # Returns

        `Tensor` of shape `(num_spans, get_output_dim())`.
        """
        # Only the text around the spans: the extractors compute something for all text that they get.
        first, last = int(spans[:, 0].min()), int(spans[:, 1].max())
        # The extractors count from the first token that they get, take inclusive ends, and want batches.
        bounds = (spans - torch.tensor([first, first + 1], device=spans.device)).unsqueeze(0)
        pieces = [
            self.endpoints(contextualized[first:last].unsqueeze(0), bounds),
            self.attended(embedded[first:last].unsqueeze(0), bounds),
        ]
        return torch.cat(pieces, dim=-1).squeeze(0)
