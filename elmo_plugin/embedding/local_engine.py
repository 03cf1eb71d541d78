"""Embed blocks of sentences in this process, and write a part for each."""

import sys
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Callable, Iterable, Iterator, List, Optional, Protocol, TypeVar

import numpy
from tqdm import tqdm

from elmo_plugin.bilm import FrozenBiLM
from elmo_plugin.embedding.formats import OutputFormat
from elmo_plugin.embedding.layers import LayerChoice
from elmo_plugin.embedding.parts import Block, PartsFolder
from elmo_plugin.embedding.sentence_batches import BatchOptions
from elmo_plugin.errors import ConfigurationError

# For a terminal, and for a log in a file.
_SECONDS_BETWEEN_UPDATES = {True: 0.1, False: 10}

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")


class Embedder(Protocol):
    """What embeds the sentences of a run: an `ElmoEmbedder`."""

    elmo_bilm: FrozenBiLM
    stateful: bool

    def embed_sentences(
        self,
        sentences: Iterable[List[str]],
        batch_size: Optional[int],
        batch_tokens: Optional[int],
    ) -> Iterator[numpy.ndarray]:
        """Yield the layers of each sentence, `(num_layers, num_tokens, dim)`."""


class Progress(tqdm):
    """
    A progress bar that counts sentences and shows tokens per second.

    # Parameters

    total : `int`, optional
        Number of sentences, if it is known.
    """

    def __init__(self, total: Optional[int]) -> None:
        interval = _SECONDS_BETWEEN_UPDATES[sys.stderr.isatty()]
        super().__init__(total=total, unit=" sentences", desc="embedding", mininterval=interval)
        self._num_tokens = 0

    def skip(self, num_sentences: int) -> None:
        """Count sentences that a previous run has embedded."""
        self.initial += num_sentences
        self.n += num_sentences
        self.last_print_n += num_sentences

    def add_tokens(self, number: int) -> None:
        """Add the tokens of embedded sentences."""
        self._num_tokens += number
        speed = self._num_tokens / max(self.format_dict["elapsed"], 1e-9)
        self.set_postfix_str(f"{speed:,.0f} tokens/s", refresh=False)


@dataclass(frozen=True)
class PartWriter:
    """
    Embed blocks and write a part for each. Can be pickled, to be sent to workers. The layers are those to
    write, the batches those that the biLM runs.
    """

    layers: LayerChoice
    batches: BatchOptions
    format: OutputFormat
    folder: PartsFolder

    def write(self, embedder: Embedder, block: Block, progress: Optional[Progress] = None) -> None:
        """
        Embed a block and write its part. `progress` is updated after each sentence.

        # Raises

        `ConfigurationError` for a vector that is too large for the data type; `OSError` if the part cannot be
        written.
        """
        tokens = (sentence.tokens for sentence in block.sentences)
        limits = (self.batches.batch_size, self.batches.batch_tokens)
        vectors = []
        for sentence, layers in zip(block.sentences, embedder.embed_sentences(tokens, *limits)):
            where = f"{block.part.source}, line {sentence.line_index + 1}"
            vectors.append(_cast_checked(self.layers(layers), self.format.dtype, where))
            if progress is not None:
                progress.update()
        self.folder.write(block, vectors, self.format)


class LocalEngine:
    """Embed in this process."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder

    def map(self, function: Callable[[ItemT], ResultT], items: Iterable[ItemT]) -> List[ResultT]:
        """Return the result of a function for each item."""
        return [function(item) for item in items]

    @contextmanager
    def writing(self, writer: PartWriter, progress: Progress) -> Iterator[Callable[[Block], Any]]:
        """Give a function that embeds a block and writes its part."""

        def write(block: Block) -> None:
            writer.write(self._embedder, block, progress)
            progress.add_tokens(block.part.num_tokens)

        yield write


def _cast_checked(vectors: numpy.ndarray, dtype: str, where: str) -> numpy.ndarray:
    """Cast vectors to the data type of the output, if no number is too large for it."""
    if vectors.dtype == dtype:
        return vectors
    limit = numpy.finfo(dtype).max
    largest = numpy.abs(vectors).max(initial=0.0)
    if largest > limit:
        raise ConfigurationError(
            f"{where}: a vector holds {largest:g}, but the largest {dtype} is {limit:g}. Write float32."
        )
    return vectors.astype(dtype)
