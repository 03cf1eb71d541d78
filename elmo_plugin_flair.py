"""
ELMo in the models of flair: embeddings of tokens.

Outside the package, because AllenNLP's `--include-package` imports all of its modules, and flair is optional.
"""

from typing import Any, Callable, Dict, List, Optional

import flair
import torch
from flair.data import Sentence
from flair.embeddings import TokenEmbeddings
from flair.embeddings.base import register_embeddings
from torch import Tensor

from elmo_plugin.embedding.elmo_embedder import DEFAULT_BATCH_SIZE
from elmo_plugin.embedding.trained_mix import FrozenLayers, TrainedMix
from elmo_plugin.errors import ConfigurationError

MIX, ALL = "mix", "all"
# From layers, `(num_layers, num_tokens, dim)`, to vectors. None is a view, which would keep all layers.
FIXED: Dict[str, Callable[[Tensor], Tensor]] = {
    "top": lambda layers: layers[-1].clone(),
    "average": lambda layers: layers.mean(dim=0),
    ALL: lambda layers: torch.cat(list(layers), dim=1),
}


# Under a name of its own: flair has an ELMoEmbeddings, which needs AllenNLP 0.9.
@register_embeddings("elmo_plugin.ElmoEmbeddings")
class ElmoEmbeddings(TokenEmbeddings):
    """
    The vectors of a frozen biLM as embeddings of flair: `SequenceTagger(embeddings=ElmoEmbeddings(), ...)`.
    They can be stacked with others. The biLM runs on `flair.device`.

    A saved model of flair holds the mix, not the biLM: that is loaded from the files named here. To load such
    a model, import this module first.

    # Parameters

    options_file, weight_file : `str`, optional
        See `BiLM.from_files`; one is enough where it stands for both.
    layers : `str`, optional (default = `"mix"`)
        `mix`, a weighted sum of the layers that is trained with the model; or, fixed, `top` for the last
        layer, `average` for their mean, `all` for all of them side by side.
    batch_size : `int`, optional (default = `64`)
        Of sentences in the biLM.
    precision, kernel
        See `BiLM`.

    # Raises

    `ConfigurationError` for invalid arguments, and as `BiLM.from_files`; when a model is loaded, if its mix
    was trained with another biLM.
    """

    def __init__(
        self,
        options_file: Optional[str] = "elmo_mini",
        weight_file: Optional[str] = None,
        layers: str = MIX,
        batch_size: int = DEFAULT_BATCH_SIZE,
        precision: str = "float32",
        kernel: str = "auto",
    ) -> None:
        super().__init__()
        if layers not in (MIX, *FIXED):
            raise ConfigurationError(
                f"layers is '{layers}', expected one of {', '.join((MIX, *FIXED))}."
            )
        self._arguments = {
            "options_file": options_file,
            "weight_file": weight_file,
            "layers": layers,
            "batch_size": batch_size,
            "precision": precision,
            "kernel": kernel,
        }
        self.name = f"elmo {options_file or weight_file} {layers}"
        # Flair keeps the vectors of sentences that do not change.
        self.static_embeddings = layers != MIX
        self._layers = layers
        self._frozen_layers = FrozenLayers(
            options_file, weight_file, batch_size, precision, kernel, flair.device
        )
        self.mix = TrainedMix(self._frozen_layers) if layers == MIX else None

    @property
    def embedding_length(self) -> int:
        """Width of the vector of a token."""
        embedder = self._frozen_layers.embedder
        num_layers = embedder.num_layers if self._arguments["layers"] == "all" else 1
        return num_layers * embedder.get_output_dim()

    def to_params(self) -> Dict[str, Any]:
        """Return the arguments, for a saved model."""
        return dict(self._arguments)

    @classmethod
    def from_params(cls, params: Dict[str, Any]) -> "ElmoEmbeddings":
        """Make embeddings from the arguments of a saved model."""
        return cls(**params)

    def _add_embeddings_internal(self, sentences: List[Sentence]) -> None:
        # (num_layers, num_tokens, dim)
        layers = self._frozen_layers([token.text for token in sentence] for sentence in sentences)
        # (num_tokens, embedding_length)
        vectors = self.mix(layers) if self.mix is not None else FIXED[self._layers](layers)
        rows = iter(vectors)
        for sentence in sentences:
            for token in sentence:
                token.set_embedding(self.name, next(rows))
