"""Score each mention with each of the mentions before it."""

from typing import List, NamedTuple, Optional

import torch
from allennlp.common import FromParams
from allennlp.modules import FeedForward
from allennlp.nn import Activation
from allennlp.nn.util import bucket_values
from torch import Tensor
from torch.nn.functional import linear
from torch.utils.checkpoint import checkpoint

_NUM_DISTANCE_BUCKETS = 10  # 1, 2, 3, 4, 5-7, 8-15, 16-31, 32-63, 64 and more; 0 does not occur
# Mentions that are scored at once, which affects only time and memory.
_MENTIONS_PER_BLOCK = 16
# Numbers that are stored from the forward to the backward pass; each takes about 4 bytes in several tensors.
_MAX_HELD = 2**25
_UNKNOWN_SPEAKER, _OTHER_SPEAKER, _SAME_SPEAKER = range(3)


class AntecedentScorer(torch.nn.Module, FromParams):
    """
    A feed-forward network over pairs of mentions, `[g_i; g_j; g_i * g_j; features]` (Lee et al. 2017, section
    4). The features are the distance in mentions, in buckets; whether the speakers are the same, different,
    or unknown; and the genre of the document.

    The vectors of pairs are never made: the weight matrix of the first layer is split, so that the part for
    one mention is computed once. Pairs are scored in blocks of mentions. In training, if all blocks together
    would take too much memory until the backward pass, that pass computes them again.

    # Parameters

    span_dim, num_genres, unknown_genre : `int`
        Width of the vectors of mentions; number of genre ids; the id of genres that are not in the training
        data, whose embedding is zeros. Derived, and not set in configs.
    hidden_dims : `List[int]`, optional (default = `[150, 150]`)
        Widths of the hidden layers, at least one.
    feature_dim : `int`, optional (default = `20`)
        Width of the embedding of each feature.
    activation : `Activation`, optional (default = `relu`)
        After each hidden layer.
    dropout : `float`, optional (default = `0.0`)
        After each hidden layer, and on the embeddings of features.
    max_antecedents : `int`, optional (default = `250`)
        Number of preceding mentions, the nearest ones, that are scored for each mention.
    """

    def __init__(
        self,
        span_dim: int,
        num_genres: int,
        unknown_genre: int,
        hidden_dims: Optional[List[int]] = None,
        feature_dim: int = 20,
        activation: Optional[Activation] = None,
        dropout: float = 0.0,
        max_antecedents: int = 250,
    ) -> None:
        super().__init__()
        hidden_dims = hidden_dims or [150, 150]
        self.max_antecedents = max_antecedents
        self.unknown_genre = unknown_genre
        self.activation = activation or torch.nn.ReLU()
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
                hidden_dims[0], len(hidden_dims) - 1, hidden_dims[1:], self.activation, dropout
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

        # Parameters

        mention_scores : `Tensor`
            `(num_mentions)`. Scores for being a mention. A pair's score is the sum of both of these and the
            network's.
        speakers : `LongTensor`
            `(num_mentions)`. Ids of speakers, 0 if unknown.
        genre : `LongTensor`
            `()`. The id of the document's genre.

        # Returns

        `(num_mentions, max_antecedents)`. Column 0 is the mention just before, column 1 the one before that;
        `-inf` where there is none.
        """
        document = self._project(mentions, mention_scores, speakers, genre)
        num_mentions = len(mentions)
        # At least one column, so that a document with one mention is no special case.
        max_antecedents = max(1, min(self.max_antecedents, num_mentions - 1))
        hidden_dim, span_dim = document.product_weight.shape
        # For each mention a block holds weights and the hidden vectors of its pairs.
        held = num_mentions * hidden_dim * (span_dim + max_antecedents + _MENTIONS_PER_BLOCK)
        computed_again = torch.is_grad_enabled() and held > _MAX_HELD
        blocks = []
        for first in range(0, num_mentions, _MENTIONS_PER_BLOCK):
            block = (document, first, min(first + _MENTIONS_PER_BLOCK, num_mentions))
            if computed_again:
                scores = checkpoint(self._score_block, *block, max_antecedents, use_reentrant=False)
            else:
                scores = self._score_block(*block, max_antecedents)
            blocks.append(scores)
        return torch.cat(blocks)  # (num_mentions, max_antecedents)

    def _project(
        self, mentions: Tensor, mention_scores: Tensor, speakers: Tensor, genre: Tensor
    ) -> "_ProjectedDocument":
        """Compute the parts of the first layer's output that depend on one mention or one feature."""
        by_mention, by_antecedent, by_product, by_distance, by_speaker, by_genre = (
            self.first_layer.weight.split(self._part_dims, dim=-1)
        )
        # Genres that training did not see, with ids that the vocabulary got later, are unknown.
        known = genre < self.genre_embedding.num_embeddings
        genre = torch.where(known, genre, self.unknown_genre)
        genre_part = linear(self.dropout(self.genre_embedding(genre)), by_genre)  # (hidden_dim)
        return _ProjectedDocument(
            mentions,
            mention_scores,
            speakers,
            product_weight=by_product,
            mention_part=linear(mentions, by_mention, self.first_layer.bias) + genre_part,
            antecedent_part=linear(mentions, by_antecedent),
            # The same units are dropped for all pairs of a bucket.
            distance_part=linear(self.dropout(self.distance_embedding.weight), by_distance),
            speaker_part=linear(self.dropout(self.speaker_embedding.weight), by_speaker),
        )

    def _score_block(
        self, document: "_ProjectedDocument", first: int, last: int, max_antecedents: int
    ) -> Tensor:
        """Score the mentions from `first` to `last` (exclusive), `(last - first, max_antecedents)`."""
        # Adjacent mentions have the same antecedents, except at the ends.
        earliest = max(0, first - max_antecedents)
        mentions = document.mentions[first:last]
        antecedents = document.mentions[earliest:last]  # (num_antecedents, span_dim)
        indices = torch.arange(first, last, device=mentions.device).unsqueeze(-1)
        # W (g_i * g_j) = (W * g_i) g_j: one product of matrices for all pairs.
        # (mentions of the block, hidden_dim, span_dim)
        scaled = mentions.unsqueeze(1) * document.product_weight
        # (num_antecedents, mentions of the block, hidden_dim)
        products = linear(antecedents, scaled.flatten(0, 1)).unflatten(1, (last - first, -1))
        distances = indices - torch.arange(earliest, last, device=mentions.device)
        same_speaker = _compare_speakers(
            document.speakers[first:last], document.speakers[earliest:last]
        )
        hidden = (
            products.transpose(0, 1)  # (mentions of the block, num_antecedents, hidden_dim)
            + document.distance_part[bucket_values(distances.clamp(min=1))]
            + document.speaker_part[same_speaker]
            + document.mention_part[first:last].unsqueeze(1)
            + document.antecedent_part[earliest:last]
        )
        hidden = self.further_layers(self.dropout(self.activation(hidden)))
        # (mentions of the block, num_antecedents)
        scores = self.score(hidden).squeeze(-1)
        scores = scores + document.mention_scores[first:last].unsqueeze(-1)
        scores = scores + document.mention_scores[earliest:last]
        # From all pairs to the max_antecedents nearest, the nearest first.
        nearest = indices - torch.arange(1, max_antecedents + 1, device=mentions.device)
        scores = scores.gather(1, (nearest - earliest).clamp(min=0))
        return scores.masked_fill(nearest < 0, -torch.inf)


class _ProjectedDocument(NamedTuple):
    """
    The mentions of a document, and the parts of the first layer's output that depend on one mention or one
    feature.
    """

    mentions: Tensor  # (num_mentions, span_dim)
    mention_scores: Tensor  # (num_mentions)
    speakers: Tensor  # (num_mentions)
    product_weight: Tensor  # (hidden_dim, span_dim), of g_i * g_j
    mention_part: Tensor  # (num_mentions, hidden_dim), with the bias and the genre
    antecedent_part: Tensor  # (num_mentions, hidden_dim)
    distance_part: Tensor  # (num_buckets, hidden_dim)
    speaker_part: Tensor  # (3, hidden_dim)


def _compare_speakers(speakers: Tensor, antecedent_speakers: Tensor) -> Tensor:
    """Return `(num_mentions, num_antecedents)` features of `(num_mentions)` and `(num_antecedents)` ids."""
    speakers = speakers.unsqueeze(-1)
    is_same = torch.where(speakers == antecedent_speakers, _SAME_SPEAKER, _OTHER_SPEAKER)
    is_unknown = (speakers == 0) | (antecedent_speakers == 0)
    return is_same.masked_fill(is_unknown, _UNKNOWN_SPEAKER)
