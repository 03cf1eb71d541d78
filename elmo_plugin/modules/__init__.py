"""
ELMo for task models: `ScalarMix` and `Elmo`. Modules that need AllenNLP must be imported by their own names:
`elmo_token_embedder`, `text_encoder`.
"""

from elmo_plugin.modules.elmo import Elmo
from elmo_plugin.modules.scalar_mix import ScalarMix

__all__ = ["Elmo", "ScalarMix"]
