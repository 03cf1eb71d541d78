"""Embedding blocks of sentences in this process, and writing a part for each."""

import sys
import time
from dataclasses import dataclass
from itertools import chain, islice, tee
from pathlib import Path
from typing import Any, Iterable, Iterator, List, Optional, Sequence, Tuple

import numpy
from tqdm import tqdm

from elmo_plugin.arguments import option
from elmo_plugin.embedding.elmo_embedder import DEFAULT_BATCH_SIZE, ElmoEmbedder
from elmo_plugin.embedding.formats import OutputFormat
from elmo_plugin.embedding.layers import LayerChoice
from elmo_plugin.embedding.partial_output import write_errors
from elmo_plugin.embedding.parts import Block, Check, Part, content_of
from elmo_plugin.embedding.sentences import Content, SentenceSource
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.files.replaced_file import replaced_file

_SECONDS_BETWEEN_LINES = 10


@dataclass(frozen=True)
class BatchOptions:
    """What batches are made of, see `ElmoEmbedder.embed_sentences`."""

    batch_size: Optional[int] = option(
        "sentences in a batch",
        DEFAULT_BATCH_SIZE,
    )
    batch_tokens: Optional[int] = option(
        "at most N tokens in a batch, padding included, so that long sentences take no more memory than "
        "short ones (default: as many as have vectors of 256 MiB)",
        None,
        metavar="N",
    )


@dataclass(frozen=True)
class PartSettings:
    """
    How blocks become parts.

    # Parameters

    layers : `LayerChoice`
        What of a sentence's layers is written.
    batches : `BatchOptions`
        Of the biLM.
    format : `OutputFormat`
        Of the parts.
    folder : `Path`
        Where they are written.
    """

    layers: LayerChoice
    batches: BatchOptions
    format: OutputFormat
    folder: Path


class Progress:
    """
    A progress bar of sentences, with tokens per second.

    # Parameters

    total : `int`, optional
        Number of sentences, if it is known.
    num_done : `int`
        Those of them that a previous run has done.
    in_lines : `bool`
        Write each state in a line of its own, and fewer of them, for logs in files.
    """

    def __init__(self, total: Optional[int], num_done: int, in_lines: bool) -> None:
        self._bar = tqdm(
            total=total,
            initial=num_done,
            unit=" sentences",
            desc="embedding",
            file=_LineWriter() if in_lines else None,
            mininterval=_SECONDS_BETWEEN_LINES if in_lines else 0.1,
        )
        self._start = time.monotonic()
        self._num_tokens = 0

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *exception: object) -> None:
        self._bar.close()

    def add_sentences(self, number: int) -> None:
        """Count sentences."""
        self._bar.update(number)

    def add_tokens(self, number: int) -> None:
        """Count tokens."""
        self._num_tokens += number
        speed = self._num_tokens / max(time.monotonic() - self._start, 1e-9)
        self._bar.set_postfix_str(f"{speed:,.0f} tokens/s", refresh=False)


class LocalEngine:
    """
    Embeds in this process.

    # Parameters

    embedder : `ElmoEmbedder`
        What runs the biLM.
    """

    def __init__(self, embedder: ElmoEmbedder) -> None:
        self._embedder = embedder

    def __enter__(self) -> "LocalEngine":
        return self

    def __exit__(self, *exception: object) -> None:
        pass

    def check(
        self, sources: Sequence[SentenceSource], parts: Sequence[List[Part]], check: Check
    ) -> List[Content]:
        """
        Read all sources once, so that the run fails before any work.

        # Parameters

        sources : `Sequence[SentenceSource]`
            Of the run.
        parts : `Sequence[List[Part]]`
            Of each source, those that are there.
        check : `Check`
            Is given each sentence.

        # Raises

        `ConfigurationError` as `content_of` does.
        """
        return [content_of(source, own_parts, check) for source, own_parts in zip(sources, parts)]

    def write_parts(
        self, blocks: Iterable[Block], settings: PartSettings, progress: Progress
    ) -> None:
        """
        Embed blocks, and write a part for each.

        # Raises

        `ConfigurationError` for vectors that the type cannot hold; `WriteError` if a part cannot be written.
        """
        for _ in embed_blocks(self._embedder, blocks, settings, progress):
            pass


def embed_blocks(
    embedder: ElmoEmbedder,
    blocks: Iterable[Block],
    settings: PartSettings,
    progress: Optional[Progress] = None,
) -> Iterator[Part]:
    """Embed blocks, write a part for each, and give what was written."""
    for block, all_layers in _layers_of(embedder, blocks, settings.batches):
        vectors = []
        for sentence, layers in zip(block.sentences, all_layers):
            where = f"{block.source}, line {sentence.line_index + 1}"
            vectors.append(cast_checked(settings.layers(layers), settings.format.dtype, where))
            if progress is not None:
                progress.add_sentences(1)
        part = block.part
        path = settings.folder / part.file_name(settings.format.part_ending)
        with write_errors(), replaced_file(path) as new_path, open(new_path, "wb") as file:
            settings.format.write_part(file, part, block.sentences, vectors)
        if progress is not None:
            progress.add_tokens(part.num_tokens)
        yield part


def cast_checked(vectors: numpy.ndarray, dtype: str, where: str) -> numpy.ndarray:
    """
    Cast vectors to the type of the output.

    # Raises

    `ConfigurationError` naming the place, if one of their numbers is too large for the type.
    """
    if vectors.dtype == dtype:
        return vectors
    limit = numpy.finfo(dtype).max
    largest = numpy.abs(vectors).max(initial=0.0)
    if largest > limit:
        raise ConfigurationError(
            f"{where}: a vector holds {largest:g}, and {dtype} ends at {limit:g}. Write float32."
        )
    return vectors.astype(dtype)


def _layers_of(
    embedder: ElmoEmbedder, blocks: Iterable[Block], batches: BatchOptions
) -> Iterator[Tuple[Block, Iterator[numpy.ndarray]]]:
    """Each block with the layers of its sentences, `(num_layers, num_tokens, dim)`."""
    limits = (batches.batch_size, batches.batch_tokens)
    if not embedder.elmo_bilm.stateful:
        for block in blocks:
            tokens = (sentence.tokens for sentence in block.sentences)
            yield block, embedder.embed_sentences(tokens, *limits)
        return
    # Batches go on across blocks: states are carried by the place in a batch, which is always full.
    read, embedded = tee(blocks)
    sentences = chain.from_iterable(block.sentences for block in read)
    all_layers = embedder.embed_sentences((sentence.tokens for sentence in sentences), *limits)
    for block in embedded:
        yield block, islice(all_layers, len(block.sentences))


class _LineWriter:
    """Gives each state of a progress bar a line of its own."""

    def write(self, text: str) -> Any:
        text = text.replace("\r", "").strip()
        return sys.stderr.write(f"{text}\n") if text else 0

    def flush(self) -> None:
        sys.stderr.flush()
