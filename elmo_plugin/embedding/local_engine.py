"""Embed blocks of sentences in this process, and write a part for each."""

import sys
from dataclasses import dataclass
from itertools import chain, islice, tee
from typing import TYPE_CHECKING, Any, Iterable, Iterator, List, Optional, Sequence, Tuple

import numpy
from tqdm import tqdm

from elmo_plugin.embedding.formats import OutputFormat
from elmo_plugin.embedding.layers import LayerChoice
from elmo_plugin.embedding.partial_output import PartsFolder
from elmo_plugin.embedding.parts import Block, Content, Part, content_of
from elmo_plugin.embedding.sentence_batches import BatchOptions
from elmo_plugin.embedding.sentences import SentenceSource
from elmo_plugin.errors import ConfigurationError

if TYPE_CHECKING:  # `ElmoEmbedder.embed_file` makes a run: the class stands above this module
    from elmo_plugin.embedding.elmo_embedder import ElmoEmbedder

_SECONDS_BETWEEN_LINES = 10


class Progress(tqdm):
    """
    A progress bar that counts sentences and shows tokens per second.

    # Parameters

    total : `int`, optional
        Number of sentences, if it is known.
    num_done : `int`
        Number of sentences that a previous run embedded.
    in_lines : `bool`
        For logs in files: write one line every ten seconds.
    """

    def __init__(self, total: Optional[int], num_done: int, in_lines: bool) -> None:
        super().__init__(
            total=total,
            initial=num_done,
            unit=" sentences",
            desc="embedding",
            file=_LineWriter() if in_lines else None,
            mininterval=_SECONDS_BETWEEN_LINES if in_lines else 0.1,
        )
        self._num_tokens = 0

    def add_tokens(self, number: int) -> None:
        """Add the tokens of embedded sentences."""
        self._num_tokens += number
        speed = self._num_tokens / max(self.format_dict["elapsed"], 1e-9)
        self.set_postfix_str(f"{speed:,.0f} tokens/s", refresh=False)


@dataclass(frozen=True)
class PartWriter:
    """
    Embed blocks and write a part for each. Can be pickled, to be sent to workers.

    # Parameters

    layers : `LayerChoice`
        Which vectors are written.
    batches : `BatchOptions`
        Limits of the batches that the biLM embeds.
    format : `OutputFormat`
        The format of the parts.
    folder : `PartsFolder`
        Where the parts are written.
    """

    layers: LayerChoice
    batches: BatchOptions
    format: OutputFormat
    folder: PartsFolder

    def write_parts(
        self,
        embedder: "ElmoEmbedder",
        blocks: Iterable[Block],
        progress: Optional[Progress] = None,
    ) -> Iterator[Part]:
        """
        Yield each part after it is written. `progress` is updated after each sentence.

        # Raises

        `ConfigurationError` for a vector that is too large for the data type; `WriteError` if a part cannot
        be written.
        """
        for block, all_layers in self._embedded(embedder, blocks):
            vectors = []
            for sentence, layers in zip(block.sentences, all_layers):
                where = f"{block.source}, line {sentence.line_index + 1}"
                vectors.append(cast_checked(self.layers(layers), self.format.dtype, where))
                if progress is not None:
                    progress.update()
            yield self.folder.write(block, vectors, self.format)

    def _embedded(
        self, embedder: "ElmoEmbedder", blocks: Iterable[Block]
    ) -> Iterator[Tuple[Block, Iterator[numpy.ndarray]]]:
        """Yield each block with the layers of its sentences, `(num_layers, num_tokens, dim)`."""
        limits = (self.batches.batch_size, self.batches.batch_tokens)
        if not embedder.stateful:
            for block in blocks:
                tokens = (sentence.tokens for sentence in block.sentences)
                yield block, embedder.embed_sentences(tokens, *limits)
            return
        # States are carried by the position in a batch: batches of one size, across the ends of blocks.
        read, embedded = tee(blocks)
        sentences = chain.from_iterable(block.sentences for block in read)
        all_layers = embedder.embed_sentences((sentence.tokens for sentence in sentences), *limits)
        for block in embedded:
            yield block, islice(all_layers, len(block.sentences))


class LocalEngine:
    """Embed in this process."""

    def __init__(self, embedder: "ElmoEmbedder") -> None:
        self._embedder = embedder

    def contents(
        self, sources: Sequence[SentenceSource], parts: Sequence[List[Part]], format: OutputFormat
    ) -> List[Content]:
        """Read and check all sources, see `content_of`. `parts` are the finished ones of each source."""
        return [content_of(source, own_parts, format) for source, own_parts in zip(sources, parts)]

    def write_parts(self, blocks: Iterable[Block], writer: PartWriter, progress: Progress) -> None:
        """Embed blocks and write a part for each, see `PartWriter`."""
        for part in writer.write_parts(self._embedder, blocks, progress):
            progress.add_tokens(part.num_tokens)


def cast_checked(vectors: numpy.ndarray, dtype: str, where: str) -> numpy.ndarray:
    """
    Cast vectors to the data type of the output.

    # Raises

    `ConfigurationError` for a number that is too large for the type. It begins with `where`.
    """
    if vectors.dtype == dtype:
        return vectors
    limit = numpy.finfo(dtype).max
    largest = numpy.abs(vectors).max(initial=0.0)
    if largest > limit:
        raise ConfigurationError(
            f"{where}: a vector holds {largest:g}, but the largest {dtype} is {limit:g}. Write float32."
        )
    return vectors.astype(dtype)


class _LineWriter:
    """Write each update of a progress bar as a line."""

    def write(self, text: str) -> Any:
        text = text.replace("\r", "").strip()
        return sys.stderr.write(f"{text}\n") if text else 0

    def flush(self) -> None:
        sys.stderr.flush()
