"""
ELMo: the language model, vectors of text, and a plugin for AllenNLP.

Importing this package loads neither torch nor AllenNLP: its names are loaded on first use. Import
`elmo_plugin.plugin` to register its classes with AllenNLP.
"""

import importlib
from typing import TYPE_CHECKING, Any, List

if TYPE_CHECKING:
    from elmo_plugin.bilm import BiLM, FrozenBiLM, batch_to_ids
    from elmo_plugin.embedding import ElmoEmbedder, SentenceScorer
    from elmo_plugin.modules import Elmo, ScalarMix
    from elmo_plugin.modules.elmo_token_embedder import ElmoTokenEmbedder
    from elmo_plugin.modules.text_encoder import TextEncoder
    from elmo_plugin.predictors import load_predictor

__version__ = "0.1.0"

_MODULE_OF = {
    "BiLM": "elmo_plugin.bilm",
    "Elmo": "elmo_plugin.modules.elmo",
    "ElmoEmbedder": "elmo_plugin.embedding",
    "ElmoTokenEmbedder": "elmo_plugin.plugin",
    "FrozenBiLM": "elmo_plugin.bilm",
    "ScalarMix": "elmo_plugin.modules.scalar_mix",
    "SentenceScorer": "elmo_plugin.embedding",
    "TextEncoder": "elmo_plugin.plugin",
    "batch_to_ids": "elmo_plugin.bilm",
    "load_predictor": "elmo_plugin.predictors",
}

__all__ = [
    "BiLM",
    "Elmo",
    "ElmoEmbedder",
    "ElmoTokenEmbedder",
    "FrozenBiLM",
    "ScalarMix",
    "SentenceScorer",
    "TextEncoder",
    "batch_to_ids",
    "load_predictor",
]


def __getattr__(name: str) -> Any:
    if name in _MODULE_OF:
        return getattr(importlib.import_module(_MODULE_OF[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> List[str]:
    return sorted({*globals(), *__all__})
