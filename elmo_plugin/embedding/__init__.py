"""Embedding text outside of task models: from sentences to arrays and files."""

from elmo_plugin.embedding.elmo_embedder import ElmoEmbedder

__all__ = ["ElmoEmbedder"]
