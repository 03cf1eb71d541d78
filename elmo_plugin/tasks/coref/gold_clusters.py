"""The gold clusters of a document of CoNLL-2012."""

import logging
from typing import Dict, List, Sequence

from elmo_plugin.tasks.conll_2012 import Conll2012Sentence
from elmo_plugin.tasks.coref.clusters import Cluster, Span
from elmo_plugin.tasks.coref.mention_column import read_mentions

logger = logging.getLogger(__name__)


def read_clusters(sentences: Sequence[Conll2012Sentence], document_name: str) -> List[Cluster]:
    """
    The mentions of each entity, counted in tokens of the document, ends exclusive, in the order of the
    document.

    A mention is in one cluster, once: one that is marked twice for an entity counts once, and entities that
    share a mention are taken as one. Either is logged with its line.

    # Raises

    `ConfigurationError` naming line and document, if a coreference column is wrong.
    """
    entity_of: Dict[Span, str] = {}
    merged_into: Dict[str, str] = {}

    def merged(entity: str) -> str:
        while entity in merged_into:
            entity = merged_into[entity]
        return entity

    num_words = 0
    for sentence in sentences:
        for mention in read_mentions(sentence.coreference, sentence.place, document_name):
            span = (num_words + mention.start, num_words + mention.end)
            if span not in entity_of:
                entity_of[span] = mention.entity
                continue
            place = f"{sentence.place.of_token(mention.start)}, document {document_name}"
            text = " ".join(sentence.words[mention.start : mention.end])
            entity, other = mention.entity, entity_of[span]
            if entity == other:
                logger.warning("%s: '%s' is marked twice as %s, counts once", place, text, entity)
                continue
            logger.warning(
                "%s: '%s' is marked as %s and %s, taken as one", place, text, other, entity
            )
            if merged(entity) != merged(other):
                merged_into[merged(entity)] = merged(other)
        num_words += len(sentence.words)
    mentions_of: Dict[str, Cluster] = {}
    for span, entity in entity_of.items():
        mentions_of.setdefault(merged(entity), []).append(span)
    return sorted(sorted(cluster) for cluster in mentions_of.values())
