"""Parquet files that each hold a block of embedded sentences."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock
from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple

from allennlp.common.checks import ConfigurationError

from elmo_plugin.embedding.checked_sentences import Sentence
from elmo_plugin.embedding.on_ray.shard_input import Shard, ShardContent
from elmo_plugin.embedding.on_ray.worker_embedder import WorkerEmbedder, WorkerSettings
from elmo_plugin.embedding.output.arrow_table import embedding_table, import_pyarrow
from elmo_plugin.embedding.output.parquet_folder import write_part
from elmo_plugin.files.replaced_file import replaced_file

# In the metadata of a file: its `Part`, as JSON.
METADATA_KEY = b"elmo_part"

# Footers that are read at the same time: disks of clusters answer late.
NUM_THREADS = 16


class Part(NamedTuple):
    """
    The sentences of a shard that stand in one file: all those from its first line to its last.

    # Parameters

    shard : `int`
        Number of the shard.
    first_line, last_line : `int`
        Zero-based, both included.
    num_sentences, num_tokens : `int`
        How many are in it.
    """

    shard: int
    first_line: int
    last_line: int
    num_sentences: int
    num_tokens: int

    @property
    def file_name(self) -> str:
        """The same whenever the same block is written, so that a second time replaces the first."""
        return f"part-{self.shard:05d}-{self.first_line:010d}.parquet"


class PartWriter:
    """
    What a worker does: it embeds blocks of sentences, and writes a file for each.

    Two threads may call it: one writes while the other embeds.

    # Parameters

    settings : `WorkerSettings`
        With what it embeds.
    folder : `Path`
        Where files are written, the same for all workers.
    """

    def __init__(self, settings: WorkerSettings, folder: Path) -> None:
        self._embedder = WorkerEmbedder(settings)
        self._folder = folder
        self._embedding = Lock()
        self._writing = Lock()

    def write(self, shard: Shard, sentences: List[Sentence]) -> Part:
        """
        Embed and write a block. The file appears complete, or not at all.

        # Raises

        `ConfigurationError` naming shard and line, for vectors that the type cannot hold; `OSError` if it
        cannot be written.
        """
        part = Part(
            shard=shard.number,
            first_line=sentences[0].line_index,
            last_line=sentences[-1].line_index,
            num_sentences=len(sentences),
            num_tokens=sum(len(sentence.tokens) for sentence in sentences),
        )
        with self._embedding:
            try:
                vectors = list(self._embedder.embed(sentences))
            except ConfigurationError as error:
                raise ConfigurationError(f"{shard.name}, {error.message}") from error
            sources = [shard.name] * len(sentences)
            table = embedding_table(sources, sentences, vectors, self._embedder.schema)
        del vectors
        metadata = {METADATA_KEY: json.dumps(part._asdict())}
        with self._writing, replaced_file(self._folder / part.file_name) as path:
            write_part(table.replace_schema_metadata(metadata), path)
        return part


def complete_parts(folder: Path) -> List[Part]:
    """
    The parts in a folder, ordered by shard and line. Whatever else is there is removed: files that cannot be
    read to their end, and what workers that were killed have left.
    """
    paths = list(folder.iterdir())
    with ThreadPoolExecutor(NUM_THREADS) as threads:
        parts = list(threads.map(_complete_part, paths))
    for path, part in zip(paths, parts):
        if part is None:
            path.unlink()
    return sorted(part for part in parts if part is not None)


def lines_by_shard(parts: Sequence[Part]) -> Dict[int, List[Tuple[int, int]]]:
    """For each shard that has parts: the first and last lines of these, ascending."""
    lines: Dict[int, List[Tuple[int, int]]] = {}
    for part in sorted(parts):
        lines.setdefault(part.shard, []).append((part.first_line, part.last_line))
    return lines


def check_parts(parts: Sequence[Part], contents: Sequence[ShardContent]) -> None:
    """
    # Parameters

    parts : `Sequence[Part]`
        All that were written, in order.
    contents : `Sequence[ShardContent]`
        Of all shards: what was found in them before.

    # Raises

    `ConfigurationError` if a sentence is missing or stands there twice.
    """
    num_written = [0] * len(contents)
    for former, part in zip([None, *parts], parts):
        num_written[part.shard] += part.num_sentences
        if (
            former is not None
            and former.shard == part.shard
            and part.first_line <= former.last_line
        ):
            raise ConfigurationError(
                f"{contents[part.shard].name}: lines {part.first_line + 1} to {former.last_line + 1} were "
                f"written twice, to {former.file_name} and {part.file_name}. Start anew by --overwrite."
            )
    for content, number in zip(contents, num_written):
        if number != content.num_sentences:
            raise ConfigurationError(
                f"{content.name}: {content.num_sentences:,} sentences were found and {number:,} are written. "
                "The file was changed meanwhile, or files of the output were. Start anew by --overwrite."
            )


def _complete_part(path: Path) -> Optional[Part]:
    pyarrow = import_pyarrow()
    try:
        metadata = pyarrow.parquet.read_metadata(path)
        part = Part(**json.loads(metadata.metadata[METADATA_KEY]))
    except (OSError, pyarrow.ArrowException, KeyError, TypeError, ValueError):
        return None
    is_whole = path.name == part.file_name and metadata.num_rows == part.num_sentences
    return part if is_whole else None
