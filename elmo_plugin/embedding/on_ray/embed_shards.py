"""From text of any size to a folder of Parquet files, on the workers of one machine or of a cluster."""

import time
from os import PathLike
from pathlib import Path
from typing import Any, Dict, Iterable, Iterator, List, Optional, Sequence, Tuple, Union

import numpy
from allennlp.common.checks import ConfigurationError
from allennlp.common.tqdm import Tqdm

from elmo_plugin.bilm import BiLM
from elmo_plugin.embedding.checked_sentences import Sentence, tokenizer_of
from elmo_plugin.embedding.embed_file import DEFAULT_BATCH_SIZE, EmbeddedFile
from elmo_plugin.embedding.layer_choice import LayerChoice
from elmo_plugin.embedding.on_ray.ray_dataset import MAX_DEATHS_AT_START
from elmo_plugin.embedding.on_ray.ray_session import import_ray, original_errors, ray_session
from elmo_plugin.embedding.on_ray.ray_workers import RayWorkers
from elmo_plugin.embedding.on_ray.shard_input import (
    Shard,
    ShardContent,
    ShardReader,
    find_shards,
    is_parquet,
)
from elmo_plugin.embedding.on_ray.shard_output import ShardOutput
from elmo_plugin.embedding.on_ray.shard_parts import Part, PartWriter, lines_by_shard
from elmo_plugin.embedding.on_ray.shared_bilm import SharedBiLM
from elmo_plugin.embedding.on_ray.worker_embedder import WorkerSettings, check_embedding
from elmo_plugin.embedding.output.arrow_table import import_pyarrow
from elmo_plugin.embedding.output.embedding_settings import bilm_digest
from elmo_plugin.embedding.output.output_formats import check_output
from elmo_plugin.files.output_file import check_free_space

# Limits of a part, which is one block that a worker embeds and has in memory.
SENTENCES_PER_PART = 2048
BYTES_PER_PART = 2**27  # of vectors

# One process reads for so many that embed.
WORKERS_PER_READER = 8

MAX_ERRORS_SHOWN = 10


def embed_shards(
    inputs: Union[str, PathLike, Iterable[Union[str, PathLike]]],
    output: Union[str, PathLike],
    bilm: BiLM,
    layers: LayerChoice,
    column: str = "sentence",
    tokenizer: str = "whitespace",
    skip_blank: bool = False,
    dtype: str = "float32",
    batch_size: Optional[int] = DEFAULT_BATCH_SIZE,
    batch_tokens: Optional[int] = None,
    num_workers: int = 1,
    num_cpus_per_worker: Optional[float] = None,
    num_gpus_per_worker: float = 0,
    ray_address: Optional[str] = None,
    overwrite: bool = False,
    resume: bool = False,
    sentences_per_part: int = SENTENCES_PER_PART,
) -> EmbeddedFile:
    """
    Embed the sentences of files on several workers, and write them as Parquet.

    `output` becomes a folder of Parquet files with the columns of `embedding_schema`, and `_embedding.json`,
    which says how they were made. Each file, a part, holds sentences of one input file, by ascending lines;
    sorted by name, parts are in the order of the input. Until all are there they are kept in
    `OUTPUT.partial`, whatever happens to workers or to the whole run.

    Every input file is read by one process, as a stream: for many workers there should be many files, of
    some 100 MB to 10 GB. Inputs and `output` must have the same paths on all nodes of a cluster.

    # Parameters

    inputs : `str` or `PathLike`, or several
        Files, folders or patterns, see `find_shards`: those that end in `.parquet`, and text, which may be
        packed as `.gz`.
    output : `str` or `PathLike`
        The folder to make.
    bilm : `BiLM`
        Not a stateful one. Workers have its `precision` and `kernel`.
    layers : `LayerChoice`
        What of the layers is written, see `layer_choice` and `learnt_mix`.
    column : `str`, optional (default = `"sentence"`)
        Of Parquet files, see `ParquetSentences`.
    tokenizer, skip_blank
        See `SentenceFile`.
    dtype : `str`, optional (default = `"float32"`)
        Of the vectors: `float32` or `float16`.
    batch_size, batch_tokens
        See `ElmoEmbedder.embed_sentences`.
    num_workers, num_cpus_per_worker, num_gpus_per_worker
        See `embed_dataset`.
    ray_address : `str`, optional
        Of a Ray cluster. By default this process's connection to one; without one, Ray is started on this
        machine for the time being.
    overwrite : `bool`, optional (default = `False`)
        Replace `output` if it is there, and what an interrupted run has left.
    resume : `bool`, optional (default = `False`)
        Go on with an interrupted run, if there was one. Its settings and its input must be the same, but
        for batches, parts and workers. If `output` is complete, nothing is done.
    sentences_per_part : `int`, optional (default = 2048)
        At most so many are in a part, and as many as have vectors of 128 MiB.

    # Returns

    What the output holds, that of former runs included.

    # Raises

    `ConfigurationError`, before any sentence is embedded, if Ray is not installed, an argument is out of
    range, the output cannot be written there, the run to go on with is another one, or a sentence of any
    file is not as it should be; later, if files changed in between. `WriteError`, an `OSError`, if writing
    fails. `output` is then as it was before.
    """
    import_ray()
    if sentences_per_part < 1:
        raise ConfigurationError(
            f"sentences_per_part is {sentences_per_part}, expected at least 1."
        )
    check_embedding(bilm, dtype, overwrite, resume)
    tokenizer_of(tokenizer)
    check_output(output, "parquet", overwrite, resume)
    shards = find_shards(inputs)
    reader = ShardReader(column, tokenizer, skip_blank)
    settings = {
        "engine": "ray",
        "format": "parquet",
        "layers": layers.name,
        "dtype": dtype,
        "precision": bilm.precision,
        "tokenizer": tokenizer,
        "skip_blank": skip_blank,
        **({"column": column} if any(is_parquet(shard.path) for shard in shards) else {}),
        "biLM": bilm_digest(bilm),
    }
    written = ShardOutput(output, settings)
    former = written.look_for_former(overwrite, resume)
    vector_shape = layers.vector_shape(bilm.num_layers, bilm.get_output_dim())
    bytes_per_token = int(numpy.prod(vector_shape)) * numpy.dtype(dtype).itemsize
    weight_bytes = sum(parameter.nbytes for parameter in bilm.parameters())

    with ray_session(ray_address, weight_bytes):
        workers = RayWorkers.on_cluster(num_workers, num_cpus_per_worker, num_gpus_per_worker)
        worker_settings = WorkerSettings(
            SharedBiLM(bilm), layers, dtype, batch_size, batch_tokens, workers
        )
        contents = _check_shards(shards, reader)
        if former is None and resume and Path(output).exists():
            return written.complete(contents)
        with written.open(contents):
            num_tokens = sum(content.num_tokens for content in contents)
            check_free_space(
                output,
                (num_tokens - written.num_tokens) * bytes_per_token,
                "write less: --top or --average for --all, float16 for float32",
            )
            max_tokens = max(1, BYTES_PER_PART // bytes_per_token)
            limits = {"max_sentences": sentences_per_part, "max_tokens": max_tokens}
            blocks = _blocks(shards, reader, written.parts, limits, workers)
            parts = _parts(blocks, worker_settings, written.folder)
            for part in _shown(parts, contents, written):
                written.add(part)
    return EmbeddedFile(written.num_sentences, written.num_tokens)


# Workers get and give rows of Arrow tables, each of which is a block of its own: a shard to be checked or
# read, the sentences of a part, and what is known of a part that was written.
#
# Vectors stay where they are made: the worker that embeds a part writes it. `Dataset.write_parquet`, as of
# Ray 2.60, would do for a job that is never interrupted: a write task that is done again overwrites the file
# that it wrote before. But it writes that file in place, so that one which was cut short stands under its
# final name; it names it by a number drawn for the job, so that another run cannot tell what is in it; and
# its tasks get vectors from the object store, which are copied there and, on a cluster, sent to another
# node. Here a part is named by its sentences and moved to its place when all of it is on the disk: it may be
# written twice, by whom and when does not matter.


def _check_shards(shards: List[Shard], reader: ShardReader) -> List[ShardContent]:
    """
    What the shards hold, read by all cores.

    # Raises

    `ConfigurationError` that says what is wrong with each.
    """
    dataset = _dataset([shard._asdict() for shard in shards])
    checked = dataset.map_batches(
        _checked, batch_size=1, batch_format="pyarrow", fn_kwargs={"reader": reader}
    )
    found = {row["number"]: row for row in _rows(checked)}
    errors = [found[number]["error"] for number in sorted(found) if found[number]["error"]]
    if errors:
        more = len(errors) - MAX_ERRORS_SHOWN
        shown = errors[:MAX_ERRORS_SHOWN] + [f"... and {more:,} more files"] * (more > 0)
        raise ConfigurationError("\n".join(shown))
    return [
        ShardContent(**{name: found[number][name] for name in ShardContent._fields})
        for number in range(len(shards))
    ]


def _blocks(
    shards: List[Shard],
    reader: ShardReader,
    parts: Sequence[Part],
    limits: Dict[str, int],
    workers: RayWorkers,
) -> Any:
    """A dataset of blocks of sentences that are not in `parts`."""
    ray = import_ray()
    done = lines_by_shard(parts)
    dataset = _dataset(
        [{**shard._asdict(), "done": _flat(done.get(shard.number, []))} for shard in shards]
    )
    num_readers = -(-workers.number // WORKERS_PER_READER)
    return dataset.map_batches(
        _read,
        batch_size=1,
        batch_format="pyarrow",
        fn_kwargs={"reader": reader, "limits": limits},
        compute=ray.data.TaskPoolStrategy(size=num_readers),
        # By Ray's count: a reader mostly waits for workers, and its core is better theirs.
        num_cpus=0,
    )


def _parts(blocks: Any, settings: WorkerSettings, folder: Path) -> Iterator[Part]:
    """Embed blocks and write a part for each; gives the parts as they come."""
    parts = blocks.map_batches(
        _BlockWriter,
        batch_size=1,
        batch_format="pyarrow",
        fn_constructor_args=(settings, folder),
        # One part is written while another is embedded.
        **settings.workers.map_arguments(num_calls=2),
    )
    for row in _rows(parts):
        yield Part(**row)


def _shown(
    parts: Iterable[Part], contents: List[ShardContent], written: ShardOutput
) -> Iterator[Part]:
    """The parts, with a progress bar of sentences, and tokens per second."""
    num_sentences = sum(content.num_sentences for content in contents)
    num_former_tokens = written.num_tokens
    start = time.monotonic()
    with Tqdm.tqdm(
        total=num_sentences, initial=written.num_sentences, unit=" sentences", desc="embedding"
    ) as progress:
        for part in parts:
            yield part
            speed = (written.num_tokens - num_former_tokens) / (time.monotonic() - start)
            progress.set_postfix_str(f"{speed:,.0f} tokens/s", refresh=False)
            progress.update(part.num_sentences)


def _dataset(rows: List[Dict[str, Any]]) -> Any:
    """A Ray dataset of these rows, each of them a block of its own, as are those made of them."""
    data = import_ray().data
    context = data.DataContext.get_current().copy()
    context.target_max_block_size = 1
    context.max_consecutive_actor_init_deaths = MAX_DEATHS_AT_START
    context.raise_original_map_exception = True
    context.enable_progress_bars = False
    context.print_on_execution_start = False
    with data.DataContext.current(context):
        return data.from_items(rows, override_num_blocks=len(rows))


def _rows(dataset: Any) -> Iterator[Dict[str, Any]]:
    with original_errors():
        yield from dataset.iter_rows()


def _checked(rows: Any, reader: ShardReader) -> Any:
    """Of a shard its content, or what is wrong with it."""
    (row,) = rows.to_pylist()
    shard = Shard(**row)
    content = ShardContent(shard.name, 0, 0, "")
    error = ""
    try:
        content = reader.check(shard)
    except ConfigurationError as found:
        error = found.message
    result = {"number": shard.number, "error": error, **content._asdict()}
    return import_pyarrow().Table.from_pylist([result])


def _read(rows: Any, reader: ShardReader, limits: Dict[str, int]) -> Iterator[Any]:
    """The blocks of a shard."""
    (row,) = rows.to_pylist()
    flat = row.pop("done")
    done = list(zip(flat[::2], flat[1::2]))
    shard = Shard(**row)
    for block in reader.blocks(shard, done, **limits):
        lines, sentences, tokens = zip(*block)
        yield import_pyarrow().Table.from_pylist(
            [{**shard._asdict(), "lines": lines, "sentences": sentences, "tokens": tokens}]
        )


class _BlockWriter(PartWriter):
    """A `PartWriter` for Ray."""

    def __call__(self, blocks: Any) -> Any:
        (row,) = blocks.to_pylist()
        sentences = [
            Sentence(*values) for values in zip(row["lines"], row["sentences"], row["tokens"])
        ]
        shard = Shard(row["number"], row["name"], row["path"])
        part = self.write(shard, sentences)
        return import_pyarrow().Table.from_pylist([part._asdict()])


def _flat(pairs: List[Tuple[int, int]]) -> List[int]:
    return [number for pair in pairs for number in pair]
