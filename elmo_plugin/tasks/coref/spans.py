"""The spans of a document: enumeration, vectors, the choice of the best, scores of pairs, and clusters."""

from typing import Dict, List, Optional, Sequence, Tuple

import torch
from allennlp.common import FromParams
from allennlp.modules import FeedForward, TimeDistributed
from allennlp.modules.span_extractors import EndpointSpanExtractor
from allennlp.nn.util import bucket_values
from scipy.cluster.hierarchy import DisjointSet
from torch import Tensor
from torch.nn.functional import linear
from torch.utils.checkpoint import checkpoint

from elmo_plugin.errors import ConfigurationError, check_positive
from elmo_plugin.tasks.models import attend

Span = Tuple[int, int]
"""The tokens of a document from the first to the second number, exclusive."""
Cluster = List[Span]


def link_clusters(spans: Sequence[Span], antecedents: Sequence[Optional[int]]) -> List[Cluster]:
    """
    Return the clusters of linked mentions: two mentions are in one cluster if a chain of links joins them.
    Mentions without links are in no cluster. `antecedents` holds, for each span, the index of the earlier
    span that it is linked to, or `None`.
    """
    linked = DisjointSet(spans)
    for span, antecedent in zip(spans, antecedents):
        if antecedent is not None:
            linked.merge(span, spans[antecedent])
    return sorted(sorted(cluster) for cluster in linked.subsets() if len(cluster) > 1)


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
        return attend(scores[words], embedded[words], is_inside)


_NUM_DISTANCE_BUCKETS = 10  # 1, 2, 3, 4, 5-7, 8-15, 16-31, 32-63, 64 and more; 0 does not occur
# Mentions that are scored at once, which affects only time and memory.
_MENTIONS_PER_BLOCK = 16
_UNKNOWN_SPEAKER, _OTHER_SPEAKER, _SAME_SPEAKER = range(3)


class AntecedentScorer(torch.nn.Module, FromParams):
    """
    A network of ReLU layers over pairs of mentions, `[g_i; g_j; g_i * g_j; features]` (Lee et al. 2017,
    section 4). The features are the distance in mentions, in buckets; whether the speakers are the same,
    different, or unknown; and the genre of the document.

    The weight matrix of the first layer is split, so that the part for one mention is computed once. Pairs
    are scored in blocks of mentions, which the backward pass computes again: so training needs the memory of
    one block.

    In configs the first three parameters are derived. There is at least one hidden layer. Dropout is after
    each of them, and on the embeddings of features.

    # Parameters

    unknown_genre : `int`
        The id of genres that are not in the training data, whose embedding is zeros.
    feature_dim : `int`, optional (default = `20`)
        Width of the embedding of each feature.
    max_antecedents : `int`, optional (default = `250`)
        Number of preceding mentions, the nearest ones, that are scored for each mention.
    """

    def __init__(
        self,
        span_dim: int,
        num_genres: int,
        unknown_genre: int,
        hidden_dims: Sequence[int] = (150, 150),
        feature_dim: int = 20,
        dropout: float = 0.0,
        max_antecedents: int = 250,
    ) -> None:
        super().__init__()
        check_positive("antecedent_scorer.max_antecedents", max_antecedents)
        if not hidden_dims:
            raise ConfigurationError(
                "antecedent_scorer.hidden_dims is empty, expected at least one width."
            )
        self.max_antecedents = max_antecedents
        self.unknown_genre = unknown_genre
        self.dropout = torch.nn.Dropout(dropout)
        self.distance_embedding = torch.nn.Embedding(_NUM_DISTANCE_BUCKETS, feature_dim)
        self.speaker_embedding = torch.nn.Embedding(3, feature_dim)
        self.genre_embedding = torch.nn.Embedding(
            num_genres, feature_dim, padding_idx=unknown_genre
        )
        # The width of [g_i; g_j; g_i * g_j; distance; speaker; genre].
        self._part_dims = [span_dim] * 3 + [feature_dim] * 3
        self.first_layer = torch.nn.Linear(sum(self._part_dims), hidden_dims[0])
        self.further_layers = (
            FeedForward(
                hidden_dims[0],
                len(hidden_dims) - 1,
                list(hidden_dims[1:]),
                torch.nn.ReLU(),
                dropout,
            )
            if len(hidden_dims) > 1
            else torch.nn.Identity()
        )
        self.score = torch.nn.Linear(hidden_dims[-1], 1)

    def forward(
        self, mentions: Tensor, mention_scores: Tensor, speakers: Tensor, genre: Tensor
    ) -> Tensor:
        """
        Score the pairs of a document's mentions `(num_mentions, span_dim)`, in their order.

        A pair's score is the sum of the `mention_scores` of both, `(num_mentions)`, and of the network's.
        `speakers` are ids, `(num_mentions)`, 0 if unknown; `genre` is the id of the document's genre, `()`.

        The result is `(num_mentions, max_antecedents)`. Column 0 is the mention just before, column 1 the one
        before that; `-inf` where there is none.
        """
        by_mention, by_antecedent, by_product, by_distance, by_speaker, by_genre = (
            self.first_layer.weight.split(self._part_dims, dim=-1)
        )
        # Genres that training did not see, with ids that the vocabulary got later, are unknown.
        known = genre < self.genre_embedding.num_embeddings
        genre = torch.where(known, genre, self.unknown_genre)
        genre_part = linear(self.dropout(self.genre_embedding(genre)), by_genre)  # (hidden_dim)
        mention_part = linear(mentions, by_mention, self.first_layer.bias) + genre_part
        antecedent_part = linear(mentions, by_antecedent)
        # The same units are dropped for all pairs of a bucket.
        distance_part = linear(self.dropout(self.distance_embedding.weight), by_distance)
        speaker_part = linear(self.dropout(self.speaker_embedding.weight), by_speaker)
        # At least one column, so that a document with one mention is no special case.
        max_antecedents = max(1, min(self.max_antecedents, len(mentions) - 1))
        indices = torch.arange(len(mentions), device=mentions.device)
        nearest = indices.unsqueeze(-1) - 1 - torch.arange(max_antecedents, device=mentions.device)

        def score_block(first: int, last: int) -> Tensor:
            # Adjacent mentions have the same antecedents, except at the ends.
            earliest = max(0, first - max_antecedents)
            block, antecedents = slice(first, last), slice(earliest, last)
            # W (g_i * g_j) = (W * g_i) g_j: one product of matrices for all pairs.
            # (mentions of the block, hidden_dim, span_dim)
            scaled = mentions[block].unsqueeze(1) * by_product
            # (num_antecedents, mentions of the block, hidden_dim)
            products = linear(mentions[antecedents], scaled.flatten(0, 1)).unflatten(
                1, (last - first, -1)
            )
            distances = indices[block].unsqueeze(-1) - indices[antecedents]
            same_speaker = _compare_speakers(speakers[block], speakers[antecedents])
            hidden = (
                products.transpose(0, 1)  # (mentions of the block, num_antecedents, hidden_dim)
                + distance_part[bucket_values(distances.clamp(min=1))]
                + speaker_part[same_speaker]
                + mention_part[block].unsqueeze(1)
                + antecedent_part[antecedents]
            )
            hidden = self.further_layers(self.dropout(hidden.relu()))
            # (mentions of the block, num_antecedents)
            scores = self.score(hidden).squeeze(-1)
            scores = scores + mention_scores[block].unsqueeze(-1) + mention_scores[antecedents]
            return scores.gather(1, (nearest[block] - earliest).clamp(min=0))

        blocks = []
        for first in range(0, len(mentions), _MENTIONS_PER_BLOCK):
            bounds = (first, min(first + _MENTIONS_PER_BLOCK, len(mentions)))
            if torch.is_grad_enabled():
                blocks.append(checkpoint(score_block, *bounds, use_reentrant=False))
            else:
                blocks.append(score_block(*bounds))
        return torch.cat(blocks).masked_fill(nearest < 0, -torch.inf)


def _compare_speakers(speakers: Tensor, antecedent_speakers: Tensor) -> Tensor:
    """Return `(num_mentions, num_antecedents)` features of `(num_mentions)` and `(num_antecedents)` ids."""
    speakers = speakers.unsqueeze(-1)
    is_same = torch.where(speakers == antecedent_speakers, _SAME_SPEAKER, _OTHER_SPEAKER)
    is_unknown = (speakers == 0) | (antecedent_speakers == 0)
    return is_same.masked_fill(is_unknown, _UNKNOWN_SPEAKER)
