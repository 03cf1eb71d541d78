"""Embedding text outside of task models: from sentences to arrays and files."""

from elmo_plugin.embedding.elmo_embedder import ElmoEmbedder
from elmo_plugin.embedding.layers import cosine_similarities
from elmo_plugin.embedding.scoring import SentenceScorer

__all__ = ["ElmoEmbedder", "SentenceScorer", "cosine_similarities"]
