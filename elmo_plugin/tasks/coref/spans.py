"""The spans of a document: enumeration, vectors, the choice of the best, and clusters of linked spans."""

from typing import Dict, List, Optional, Sequence, Tuple

import torch
from allennlp.modules import TimeDistributed
from allennlp.modules.span_extractors import EndpointSpanExtractor
from allennlp.nn.util import masked_softmax, weighted_sum
from torch import Tensor

Span = Tuple[int, int]
"""The tokens of a document from the first to the second number, exclusive."""
Cluster = List[Span]


def link_clusters(spans: Sequence[Span], antecedents: Sequence[Optional[int]]) -> List[Cluster]:
    """
    Return the clusters of linked mentions: two mentions are in one cluster if a chain of links joins them.
    Mentions without links are in no cluster. `antecedents` holds, for each span, the index of the earlier
    span that it is linked to, or `None`.
    """
    cluster_of: Dict[int, Cluster] = {}
    clusters: List[Cluster] = []
    for index, antecedent in enumerate(antecedents):
        if antecedent is None:
            continue
        # Links point back, so the cluster of the antecedent is already known.
        if antecedent not in cluster_of:
            cluster_of[antecedent] = [spans[antecedent]]
            clusters.append(cluster_of[antecedent])
        cluster_of[index] = cluster_of[antecedent]
        cluster_of[index].append(spans[index])
    return sorted(sorted(cluster) for cluster in clusters)


def enumerate_spans(sentence_lengths: Tensor, max_width: int) -> Tensor:
    """
    Return all spans of 1 to `max_width` tokens within sentences of these lengths, sorted by start, then by
    end: `(num_spans, 2)`, start and end (exclusive), counted in tokens of the document.
    """
    sentence_ends = sentence_lengths.cumsum(0)  # (num_sentences)
    # (num_words, 1)
    last_ends = sentence_ends.repeat_interleave(sentence_lengths).unsqueeze(-1)
    starts = torch.arange(len(last_ends), device=last_ends.device).unsqueeze(-1)  # (num_words, 1)
    widths = torch.arange(1, max_width + 1, device=last_ends.device)  # (max_width)
    ends = starts + widths  # (num_words, max_width)
    spans = torch.stack([starts.expand_as(ends), ends], dim=-1)  # (num_words, max_width, 2)
    return spans[ends <= last_ends]


def best_spans(spans: Tensor, scores: Tensor, max_spans: int) -> Tensor:
    """
    Return the spans with the highest scores, without those that cross a better one (Lee et al. 2017, section
    5): spans may nest, but not overlap in part. From `spans` `(num_spans, 2)` and `scores` `(num_spans)` to
    the indices `(num_kept)` of at most `max_spans`, in the order of `spans`.
    """
    bounds = spans.tolist()
    longest_end: Dict[int, int] = {}  # of the spans kept so far that start at a token
    earliest_start: Dict[int, int] = {}  # of those that end at a token
    kept: List[int] = []
    for index in scores.argsort(descending=True, stable=True).tolist():
        if len(kept) == max_spans:
            break
        start, end = bounds[index]
        inside = range(start + 1, end)
        if any(longest_end.get(token, end) > end for token in inside) or any(
            earliest_start.get(token, start) < start for token in inside
        ):
            continue
        kept.append(index)
        longest_end[start] = max(end, longest_end.get(start, end))
        earliest_start[end] = min(start, earliest_start.get(end, start))
    return torch.tensor(sorted(kept), dtype=torch.long, device=spans.device)


class SpanRepresentation(torch.nn.Module):
    """
    The contextual vectors of a span's first and last token, an embedding of its width, with dropout, and the
    attention-weighted sum of its embedded tokens, in which its head should stand out (Lee et al. 2017,
    section 4). As in Lee et al., a token's attention is scored from its contextual vector; AllenNLP's model
    scores its embedding.
    """

    def __init__(
        self,
        contextualized_dim: int,
        embedded_dim: int,
        max_width: int,
        width_dim: int,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.endpoints = EndpointSpanExtractor(
            contextualized_dim,
            combination="x,y",
            num_width_embeddings=max_width,
            span_width_embedding_dim=width_dim,
        )
        self.attended = HeadAttention(contextualized_dim)
        self.dropout = torch.nn.Dropout(dropout)
        self._part_dims = [2 * contextualized_dim, width_dim]
        self._output_dim = 2 * contextualized_dim + width_dim + embedded_dim

    def get_output_dim(self) -> int:
        return self._output_dim

    def forward(self, contextualized: Tensor, embedded: Tensor, spans: Tensor) -> Tensor:
        """
        Return `(num_spans, get_output_dim())` vectors, from the vectors of a document's tokens, `(num_words,
        dim)` each, and at least one span, `(num_spans, 2)`.
        """
        # AllenNLP's extractor expects inclusive ends, and batches.
        bounds = (spans - torch.tensor([0, 1], device=spans.device)).unsqueeze(0)
        ends_and_width = self.endpoints(contextualized.unsqueeze(0), bounds).squeeze(0)
        ends, width = ends_and_width.split(self._part_dims, dim=-1)
        head = self.attended(contextualized, embedded, spans)
        return torch.cat([ends, self.dropout(width), head], dim=-1)


class HeadAttention(torch.nn.Module):
    """
    The sum of a span's embedded tokens, weighted by a softmax over a linear score of each token. (The paper
    describes a feed-forward network; the authors' code has this linear layer.)
    """

    def __init__(self, scored_dim: int) -> None:
        super().__init__()
        # The names of AllenNLP's SelfAttentiveSpanExtractor, which archives have.
        self._global_attention = TimeDistributed(torch.nn.Linear(scored_dim, 1))

    def forward(self, scored: Tensor, embedded: Tensor, spans: Tensor) -> Tensor:
        """
        Return `(num_spans, embedded_dim)` vectors. `scored` is `(num_words, scored_dim)`, the others as
        above.
        """
        scores = self._global_attention(scored.unsqueeze(0)).flatten()  # (num_words)
        longest = int((spans[:, 1] - spans[:, 0]).max())
        words = spans[:, :1] + torch.arange(longest, device=spans.device)  # (num_spans, longest)
        is_inside = words < spans[:, 1:]
        words = words.clamp(max=len(embedded) - 1)
        weights = masked_softmax(scores[words], is_inside, memory_efficient=True)
        return weighted_sum(embedded[words], weights)
