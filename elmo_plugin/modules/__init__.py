"""ELMo for task models: the mix, the embedder, and the way from tokens to contextual vectors."""

from elmo_plugin.modules.elmo import Elmo
from elmo_plugin.modules.elmo_token_embedder import ElmoCharacterIdsIndexer, ElmoTokenEmbedder
from elmo_plugin.modules.encoder_stack import EncoderStack
from elmo_plugin.modules.placed_elmo import PlacedElmo
from elmo_plugin.modules.scalar_mix import ScalarMix
from elmo_plugin.modules.text_encoder import EncodedText, TextEncoder

__all__ = [
    "Elmo",
    "ElmoCharacterIdsIndexer",
    "ElmoTokenEmbedder",
    "EncodedText",
    "EncoderStack",
    "PlacedElmo",
    "ScalarMix",
    "TextEncoder",
]
