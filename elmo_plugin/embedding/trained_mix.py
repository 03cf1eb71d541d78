"""A frozen biLM and a mix of its layers that other libraries train."""

from typing import Any, Iterable, Optional, Sequence

import numpy
import torch
from torch import Tensor

from elmo_plugin.bilm import BiLM
from elmo_plugin.bilm.weights import weights_checksum
from elmo_plugin.embedding.elmo_embedder import ElmoEmbedder
from elmo_plugin.embedding.sentence_batches import BatchOptions
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.modules.scalar_mix import ScalarMix


class FrozenLayers:
    """
    The layers of a frozen biLM for sentences. Copies share the biLM.

    # Parameters

    options_file, weight_file, precision, kernel
        See `BiLM.from_files`.
    batch_size : `int`
        Number of sentences in a batch.
    device : `torch.device`
        Where the biLM runs.
    sentence_cache_mb : `float`, optional (default = 0)
        Memory for what training reads again in each epoch, see `BiLM`.

    # Raises

    `ConfigurationError` for an invalid batch size, and as `BiLM.from_files`.
    """

    def __init__(
        self,
        options_file: Optional[str],
        weight_file: Optional[str],
        batch_size: int,
        precision: str,
        kernel: str,
        device: torch.device,
        sentence_cache_mb: float = 0,
    ) -> None:
        BatchOptions(batch_size)
        bilm = BiLM.from_files(
            options_file,
            weight_file,
            precision=precision,
            kernel=kernel,
            sentence_cache_mb=sentence_cache_mb,
        )
        self.embedder = ElmoEmbedder.from_bilm(
            bilm, -1 if device.type == "cpu" else device.index or 0
        )
        self.batch_size = batch_size
        self.device = device

    def __deepcopy__(self, memo: Any) -> "FrozenLayers":
        return self

    def __call__(self, sentences: Iterable[Sequence[str]], is_training: bool = False) -> Tensor:
        """Return the layers of the tokens of all sentences, `(num_layers, num_tokens, dim)`."""
        self.embedder.elmo_bilm.train(is_training)
        shape = (self.embedder.num_layers, 0, self.embedder.get_output_dim())
        layers = [
            numpy.zeros(shape, dtype=numpy.float32),
            *self.embedder.embed_sentences(sentences, self.batch_size),
        ]
        return torch.from_numpy(numpy.concatenate(layers, axis=1)).to(self.device)


class TrainedMix(torch.nn.Module):
    """
    The mix of the layers of a frozen biLM, and a projection of it. Its state dict holds a checksum of the
    biLM in place of its weights.

    # Parameters

    frozen_layers : `FrozenLayers`
        The biLM.
    width : `int`, optional
        Of the projection; `None` for none.

    # Raises

    `ConfigurationError` if `width` is not positive; from `load_state_dict`, if the biLM is not the one that
    the mix was trained with.
    """

    def __init__(self, frozen_layers: FrozenLayers, width: Optional[int] = None) -> None:
        super().__init__()
        if width is not None and width < 1:
            raise ConfigurationError(
                f"width is {width}, expected at least 1, or null for no projection."
            )
        embedder = frozen_layers.embedder
        self.frozen_layers = frozen_layers
        self.width = width or embedder.get_output_dim()
        self.mix = ScalarMix(embedder.num_layers)
        self.projection: torch.nn.Module = torch.nn.Identity()
        if width is not None:
            self.projection = torch.nn.Linear(embedder.get_output_dim(), width)

    def forward(self, layers: Tensor) -> Tensor:
        """Mix `(num_layers, num_tokens, dim)` to `(num_tokens, width)`."""
        return self.projection(self.mix(list(layers)))

    def get_extra_state(self) -> str:
        """Return the checksum of the biLM, which torch puts into the state dict."""
        return weights_checksum(self.frozen_layers.embedder.elmo_bilm)

    def set_extra_state(self, state: str) -> None:
        """Compare the biLM with the checksum of a state dict."""
        found = self.get_extra_state()
        if found != state:
            raise ConfigurationError(
                "options_file and weight_file: found a biLM whose weights have the SHA-256 "
                f"{found}, expected {state}: the biLM that this model was trained with. Give its files."
            )
