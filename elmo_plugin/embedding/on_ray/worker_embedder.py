"""What each worker on Ray runs."""

from dataclasses import dataclass
from typing import Iterator, List, Optional

import numpy
import torch
from allennlp.common.checks import ConfigurationError

from elmo_plugin.bilm import BiLM
from elmo_plugin.embedding.checked_sentences import Sentence
from elmo_plugin.embedding.elmo_embedder import ElmoEmbedder
from elmo_plugin.embedding.embed_file import check_arguments, lowered
from elmo_plugin.embedding.layer_choice import LayerChoice
from elmo_plugin.embedding.on_ray.ray_workers import RayWorkers
from elmo_plugin.embedding.on_ray.shared_bilm import SharedBiLM
from elmo_plugin.embedding.output.arrow_table import embedding_schema, vector_columns


@dataclass(frozen=True, eq=False)
class WorkerSettings:
    """
    With what workers embed.

    # Parameters

    shared : `SharedBiLM`
        The biLM.
    layers : `LayerChoice`
        What of its layers is wanted.
    dtype : `str`
        Of the vectors.
    batch_size, batch_tokens : `int`, optional
        See `ElmoEmbedder.embed_sentences`.
    workers : `RayWorkers`
        All of them.

    # Raises

    `ConfigurationError` for limits of a batch that cannot be.
    """

    shared: SharedBiLM
    layers: LayerChoice
    dtype: str
    batch_size: Optional[int]
    batch_tokens: Optional[int]
    workers: RayWorkers

    def __post_init__(self) -> None:
        # Checks them at once, and embeds nothing.
        embedder = ElmoEmbedder.from_bilm(self.shared.bilm())
        embedder.embed_sentences([], self.batch_size, self.batch_tokens)


class WorkerEmbedder:
    """
    The biLM of one worker.

    # Parameters

    settings : `WorkerSettings`
        With what it embeds. The process gets the number of threads that they say.

    # Attributes

    schema : `pyarrow.Schema`
        Of tables that hold what is embedded, see `embedding_schema`.
    vector_columns : `List[str]`
        Which of its columns are vectors.
    """

    def __init__(self, settings: WorkerSettings) -> None:
        torch.set_num_threads(settings.workers.num_threads)
        # Of a machine's GPUs, Ray shows a worker its own.
        cuda_device = 0 if settings.workers.num_gpus else -1
        self._embedder = ElmoEmbedder.from_bilm(settings.shared.bilm(), cuda_device)
        self._settings = settings
        vector_shape = settings.layers.vector_shape(
            self._embedder.num_layers, self._embedder.get_output_dim()
        )
        self.schema = embedding_schema(vector_shape, settings.dtype)
        self.vector_columns = vector_columns(vector_shape)

    def embed(self, sentences: List[Sentence]) -> Iterator[numpy.ndarray]:
        """
        The vectors of each sentence, `(num_tokens, dim)` or `(num_layers, num_tokens, dim)`, in order.

        # Raises

        `ConfigurationError` naming the line, for vectors that the type cannot hold.
        """
        settings = self._settings
        all_layers = self._embedder.embed_sentences(
            (sentence.tokens for sentence in sentences), settings.batch_size, settings.batch_tokens
        )
        for sentence, layers in zip(sentences, all_layers):
            yield lowered(settings.layers(layers), settings.dtype, sentence.line_index)


def check_embedding(bilm: BiLM, dtype: str, overwrite: bool = False, resume: bool = False) -> None:
    """
    # Raises

    `ConfigurationError` for a biLM that is stateful, and as `check_arguments` does.
    """
    if bilm.stateful:
        raise ConfigurationError(
            "The biLM is stateful, but workers embed sentences in no order. Make it with stateful=False "
            "(leave out --stateful)."
        )
    check_arguments(dtype, overwrite, resume, stateful=False)
