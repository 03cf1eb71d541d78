"""Find mentions of entities, and cluster the mentions of the same entity."""

from functools import partial
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

import torch
from allennlp.common import Lazy
from allennlp.data import TextFieldTensors, Vocabulary
from allennlp.data.vocabulary import DEFAULT_OOV_TOKEN
from allennlp.models import Model
from allennlp.modules import FeedForward
from allennlp.nn import InitializerApplicator
from allennlp.nn.util import get_text_field_mask
from torch import Tensor

from elmo_plugin.errors import ConfigurationError, check_positive
from elmo_plugin.modules.text_encoder import TextEncoder, built
from elmo_plugin.tasks.coref.metrics import CoreferenceScores
from elmo_plugin.tasks.coref.reader import GENRE_NAMESPACE
from elmo_plugin.tasks.coref.spans import (
    AntecedentScorer,
    Cluster,
    Span,
    SpanRepresentation,
    best_spans,
    enumerate_spans,
    link_clusters,
)
from elmo_plugin.tasks.metrics import Counts

# Numbers of spans that are scored, and of sentences that are encoded, at once. They affect only time and
# memory, unless ELMo normalizes layers over the sentences of a block.
_SPANS_PER_BLOCK = 1024
_SENTENCES_PER_BLOCK = 64


class Document(NamedTuple):
    """One document of a batch, without padding."""

    sentences: TextFieldTensors  # (num_sentences, timesteps, ...)
    mask: Tensor  # (num_sentences, timesteps)
    speakers: Tensor  # (num_words)
    genre: Tensor  # ()
    gold_clusters: Optional[List[Cluster]]


@Model.register("elmo_coref")
class CoreferenceResolver(Model):
    """
    The span-ranking model of Lee et al. (2017): every span up to a maximal width gets a vector and a score
    for being a mention; the best spans are kept; each of these is linked to the best of the kept spans before
    it, or to none, whose score is 0. Links join mentions into clusters, so every cluster has at least two
    mentions.

    Differences from Lee et al.: the text encoder is AllenNLP's, in the configs an LSTM with separate input
    and forget gates and an initial state of zeros; theirs couples the gates, learns the initial state and has
    recurrent dropout. Lexical dropout drops different units for the spans than for the LSTM.

    The loss of a document is the negative log-likelihood of its gold antecedents, summed over kept spans (all
    gold antecedents among the kept spans count together; spans without any have no antecedent). The loss of a
    batch is the mean over its documents. The choice of kept spans is not trained directly: as in the paper,
    it improves as the scores of kept spans do.

    Documents of any length are processed one at a time, in blocks of bounded size. Only one vector for each
    word and each kept span, and a few numbers for each span and each pair, grow with the document.

    In a config, `mention_feedforward`, which comes before the linear mention score, has no `input_dim`.

    # Parameters

    max_span_width : `int`, optional (default = `10`)
        Tokens of the longest span that may be a mention. Gold mentions that are longer count as missed.
    spans_per_word : `float`, optional (default = `0.4`)
        Number of spans that are kept per word of a document (the paper's lambda).
    max_training_sentences : `int`, optional
        In training, a document with more sentences is cropped to this number of consecutive sentences, at a
        new random place each time. Evaluation uses whole documents. By default, training does too.
    lexical_dropout : `float`, optional (default = `0.0`)
        On the embedded tokens that spans attend to; the text encoder has its own.
    dropout : `float`, optional (default = `0.0`)
        On the output of the text encoder, and on the embedding of span widths.
    """

    default_predictor = "elmo_coref"

    def __init__(
        self,
        vocab: Vocabulary,
        text_encoder: TextEncoder,
        mention_feedforward: Lazy[FeedForward],
        antecedent_scorer: Lazy[AntecedentScorer],
        max_span_width: int = 10,
        spans_per_word: float = 0.4,
        max_training_sentences: Optional[int] = None,
        width_dim: int = 20,
        lexical_dropout: float = 0.0,
        dropout: float = 0.0,
        initializer: InitializerApplicator = InitializerApplicator(),
        **kwargs: Any,
    ) -> None:
        super().__init__(vocab, **kwargs)
        check_positive("max_span_width", max_span_width)
        check_positive("max_training_sentences", max_training_sentences)
        if spans_per_word <= 0:
            raise ConfigurationError(
                f"spans_per_word is {spans_per_word}, expected a positive number."
            )
        self.text_encoder = text_encoder
        self.max_span_width = max_span_width
        self.spans_per_word = spans_per_word
        self.max_training_sentences = max_training_sentences
        self.lexical_dropout = torch.nn.Dropout(lexical_dropout)
        self.dropout = torch.nn.Dropout(dropout)
        self.span_representation = SpanRepresentation(
            text_encoder.get_output_dim(),
            text_encoder.get_input_dim(),
            max_span_width,
            width_dim,
            dropout,
        )
        span_dim = self.span_representation.get_output_dim()
        self.mention_feedforward = built(
            mention_feedforward, span_dim, "span representation", "mention_feedforward"
        )
        self.mention_score = torch.nn.Linear(self.mention_feedforward.get_output_dim(), 1)
        self.antecedent_scorer = antecedent_scorer.construct(
            span_dim=span_dim,
            num_genres=vocab.get_vocab_size(GENRE_NAMESPACE),
            unknown_genre=vocab.get_token_index(DEFAULT_OOV_TOKEN, GENRE_NAMESPACE),
        )
        self._scores = CoreferenceScores()
        initializer(self)

    def forward(
        self,
        sentences: TextFieldTensors,
        speakers: Tensor,
        genre: Tensor,
        mentions: Optional[Tensor] = None,
        metadata: Optional[List[Dict[str, Any]]] = None,
    ) -> Dict[str, Any]:
        """
        Find the entities of documents.

        `sentences` are `(batch_size, num_sentences, timesteps, ...)`; `speakers` `(batch_size, num_words)`,
        numbers within each document, 0 if unknown; `genre` `(batch_size)`; and gold `mentions` `(batch_size,
        num_mentions, 3)`, start, end (exclusive) and cluster of each, padded with -1.

        # Returns

        For each document: `clusters`, lists of mentions `(start, end)`, `end` exclusive; `kept_spans`, the
        candidates for mentions; `words`, if metadata is given. And `loss`, if gold mentions are given.
        """
        # (batch_size, num_sentences, timesteps)
        mask = get_text_field_mask(sentences, num_wrapping_dims=1)
        losses, clusters, kept_spans = [], [], []
        for row in range(len(mask)):
            document = _document_of_batch(
                *(row, sentences, mask, speakers, genre, mentions),
                max_sentences=self.max_training_sentences if self.training else None,
            )
            spans, scores = self._score_mentions(document)
            kept_spans.append(spans)
            clusters.append(_best_clusters(spans, scores))
            if document.gold_clusters is not None:
                losses.append(_loss(spans, scores, document.gold_clusters))
                self._scores(clusters[-1], document.gold_clusters, spans)
        output: Dict[str, Any] = {"clusters": clusters, "kept_spans": kept_spans}
        if metadata is not None:
            output["words"] = [document["words"] for document in metadata]
        if mentions is not None:
            output["loss"] = torch.stack(losses).mean()
        return output

    def get_metrics(self, reset: bool = False) -> Dict[str, float]:
        """
        Return the metrics of `CoreferenceScores` since the last reset; in training, of cropped documents.
        """
        return self._scores.get_metric(reset)

    def counts(self) -> Dict[str, Counts]:
        """Return the counts of `coref_f1` since the last reset."""
        return {"coref_f1": self._scores.counts()}

    def _score_mentions(self, document: Document) -> Tuple[List[Span], Tensor]:
        """Return the kept spans of a document, in its order, and `AntecedentScorer`'s output for them."""
        # As in Lee et al. (2017), the vector of a word depends on its own sentence alone.
        encoded = [
            self.text_encoder(_at(document.sentences, rows), mask=document.mask[rows])
            for rows in torch.arange(len(document.mask)).split(_SENTENCES_PER_BLOCK)
        ]
        # (num_words, dim) each
        contextualized = torch.cat([block.contextualized[block.mask] for block in encoded])
        embedded = torch.cat([block.embedded[block.mask] for block in encoded])
        contextualized = self.dropout(contextualized)
        embedded = self.lexical_dropout(embedded)
        represented = partial(self.span_representation, contextualized, embedded)
        blocks = partial(torch.split, split_size_or_sections=_SPANS_PER_BLOCK)
        candidates = enumerate_spans(document.mask.sum(dim=-1), self.max_span_width)
        with torch.no_grad():
            # Only kept spans contribute to the loss, so the graph of all other scores is not needed.
            candidate_scores = torch.cat(
                [self._score_spans(represented(block)) for block in blocks(candidates)]
            )  # (num_candidates)
        max_spans = max(1, int(self.spans_per_word * len(contextualized)))
        spans = candidates[best_spans(candidates, candidate_scores, max_spans)]  # (num_kept, 2)
        vectors = torch.cat([represented(block) for block in blocks(spans)])  # (num_kept, span_dim)
        scores = self.antecedent_scorer(
            vectors,
            self._score_spans(vectors),
            # The speaker of a span is that of its first word.
            document.speakers[spans[:, 0]],
            document.genre,
        )
        return [(start, end) for start, end in spans.tolist()], scores

    def _score_spans(self, vectors: Tensor) -> Tensor:
        """Return `(num_spans)` scores of `(num_spans, span_dim)` vectors."""
        return self.mention_score(self.mention_feedforward(vectors)).squeeze(-1)


def _at(text_field: TextFieldTensors, index: Any) -> TextFieldTensors:
    """Return the tensors of a text field at an index."""
    return {
        indexer: {name: tensor[index] for name, tensor in tensors.items()}
        for indexer, tensors in text_field.items()
    }


def _document_of_batch(
    row: int,
    sentences: TextFieldTensors,
    mask: Tensor,
    speakers: Tensor,
    genre: Tensor,
    mentions: Optional[Tensor],
    max_sentences: Optional[int],
) -> Document:
    """
    Return a document of a batch without padding. Crop a longer one to `max_sentences` consecutive sentences
    at a random place, and drop clusters with one remaining mention.
    """
    num_sentences = int(mask[row].any(dim=-1).sum())
    first_sentence = 0
    if max_sentences is not None and num_sentences > max_sentences:
        first_sentence = int(torch.randint(num_sentences - max_sentences + 1, ()))
        num_sentences = max_sentences
    chosen = slice(first_sentence, first_sentence + num_sentences)
    first_word = int(mask[row, :first_sentence].sum())
    last_word = first_word + int(mask[row, chosen].sum())  # exclusive
    gold_clusters = None
    if mentions is not None:
        parts: Dict[int, Cluster] = {}
        for start, end, cluster in mentions[row].tolist():
            if cluster >= 0 and first_word <= start and end <= last_word:  # no padding
                parts.setdefault(cluster, []).append((start - first_word, end - first_word))
        gold_clusters = [part for part in parts.values() if len(part) > 1]
    return Document(
        _at(sentences, (row, chosen)),
        mask[row, chosen],
        speakers[row, first_word:last_word],
        genre[row],
        gold_clusters,
    )


def _best_clusters(spans: List[Span], scores: Tensor) -> List[Cluster]:
    """Link each span to its best antecedent. `scores` are `(num_kept, max_antecedents)`."""
    best_scores, columns = (best.tolist() for best in scores.max(dim=1))
    antecedents = [
        index - 1 - column if score > 0 else None
        for index, (score, column) in enumerate(zip(best_scores, columns))
    ]
    return link_clusters(spans, antecedents)


def _loss(spans: List[Span], scores: Tensor, gold_clusters: List[Cluster]) -> Tensor:
    cluster_of = {
        mention: number for number, cluster in enumerate(gold_clusters) for mention in cluster
    }
    # (num_kept); -1 for spans that are not gold mentions.
    clusters = torch.tensor([cluster_of.get(span, -1) for span in spans], device=scores.device)
    num_kept, max_antecedents = scores.shape
    indices = torch.arange(num_kept, device=scores.device).unsqueeze(-1)
    antecedents = indices - 1 - torch.arange(max_antecedents, device=scores.device)
    # (num_kept, max_antecedents)
    is_gold = (
        (antecedents >= 0)
        & (clusters.unsqueeze(-1) >= 0)
        & (clusters.unsqueeze(-1) == clusters[antecedents.clamp(min=0)])
    )
    is_none = ~is_gold.any(dim=1, keepdim=True)  # (num_kept, 1)
    # No antecedent has the score 0. (num_kept, 1 + max_antecedents)
    all_scores = torch.cat([scores.new_zeros(num_kept, 1), scores], dim=1)
    is_right = torch.cat([is_none, is_gold], dim=1)
    right_scores = all_scores.masked_fill(~is_right, -torch.inf)
    return (all_scores.logsumexp(dim=1) - right_scores.logsumexp(dim=1)).sum()
