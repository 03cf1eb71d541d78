"""One vector for each span of a document."""

import torch
from allennlp.modules import TimeDistributed
from allennlp.modules.span_extractors import EndpointSpanExtractor
from allennlp.nn.util import masked_softmax, weighted_sum
from torch import Tensor


class SpanRepresentation(torch.nn.Module):
    """
    The contextual vectors of a span's first and last token, an embedding of its width, and the
    attention-weighted sum of its embedded tokens, in which its head should stand out (Lee et al. 2017,
    section 4).

    # Parameters

    contextualized_dim : `int`
        Width of contextual vectors.
    embedded_dim : `int`
        Width of the embedded tokens that are summed.
    max_width : `int`
        Tokens of the longest span.
    width_dim : `int`
        Width of the embedding of span widths.
    dropout : `float`, optional (default = `0.0`)
        On the embedding of span widths.
    scores_contextualized : `bool`, optional (default = `True`)
        Whether a token's attention is scored from its contextual vector, as in Lee et al., or from its
        embedding, as AllenNLP's model does.
    """

    def __init__(
        self,
        contextualized_dim: int,
        embedded_dim: int,
        max_width: int,
        width_dim: int,
        dropout: float = 0.0,
        scores_contextualized: bool = True,
    ) -> None:
        super().__init__()
        self.endpoints = EndpointSpanExtractor(
            contextualized_dim,
            combination="x,y",
            num_width_embeddings=max_width,
            span_width_embedding_dim=width_dim,
        )
        self.attended = HeadAttention(contextualized_dim if scores_contextualized else embedded_dim)
        self.scores_contextualized = scores_contextualized
        self.dropout = torch.nn.Dropout(dropout)
        self._part_dims = [2 * contextualized_dim, width_dim]
        self._output_dim = 2 * contextualized_dim + width_dim + embedded_dim

    def get_output_dim(self) -> int:
        return self._output_dim

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
        # Only the text around the spans: something is computed for all text that is given.
        first, last = int(spans[:, 0].min()), int(spans[:, 1].max())
        contextualized, embedded, spans = (
            contextualized[first:last],
            embedded[first:last],
            spans - first,
        )
        # AllenNLP's extractor takes inclusive ends, and batches.
        bounds = (spans - torch.tensor([0, 1], device=spans.device)).unsqueeze(0)
        ends_and_width = self.endpoints(contextualized.unsqueeze(0), bounds).squeeze(0)
        ends, width = ends_and_width.split(self._part_dims, dim=-1)
        scored = contextualized if self.scores_contextualized else embedded
        return torch.cat(
            [ends, self.dropout(width), self.attended(scored, embedded, spans)], dim=-1
        )


class HeadAttention(torch.nn.Module):
    """
    The sum of a span's embedded tokens, weighted by a softmax over one linear score of each token. (In the
    paper's text a feed-forward network scores; the authors' code has this linear layer.)

    # Parameters

    scored_dim : `int`
        Width of the vectors that scores are computed from.
    """

    def __init__(self, scored_dim: int) -> None:
        super().__init__()
        # The names of AllenNLP's SelfAttentiveSpanExtractor, which archives have.
        self._global_attention = TimeDistributed(torch.nn.Linear(scored_dim, 1))

    def forward(self, scored: Tensor, embedded: Tensor, spans: Tensor) -> Tensor:
        """To `(num_spans, embedded_dim)`; `scored` is `(num_words, scored_dim)`, the others as above."""
        scores = self._global_attention(scored.unsqueeze(0)).flatten()  # (num_words)
        longest = int((spans[:, 1] - spans[:, 0]).max())
        words = spans[:, :1] + torch.arange(longest, device=spans.device)  # (num_spans, longest)
        is_inside = words < spans[:, 1:]
        words = words.clamp(max=len(embedded) - 1)
        weights = masked_softmax(scores[words], is_inside, memory_efficient=True)
        return weighted_sum(embedded[words], weights)
