"""Embed the sentences of a Ray dataset."""

from typing import Any, Iterator, List, Optional, Sequence, Union

import numpy

from elmo_plugin.bilm import BiLM
from elmo_plugin.embedding.arrow import (
    embedding_schema,
    embedding_table,
    holds_tokens,
    vector_columns,
)
from elmo_plugin.embedding.elmo_embedder import BATCHES_AHEAD, checked_tokens
from elmo_plugin.embedding.layers import LayerChoice, layer_choice
from elmo_plugin.embedding.local_engine import cast_checked
from elmo_plugin.embedding.ray_engine import RayWorkers, SharedBiLM, import_ray, rounded_cpus
from elmo_plugin.embedding.run import OutputOptions
from elmo_plugin.embedding.sentence_batches import DEFAULT_BATCH_SIZE, BatchOptions
from elmo_plugin.embedding.sentences import InputOptions, Sentence, tokenizer_of
from elmo_plugin.errors import ConfigurationError

TOKENS = "tokens"

# Size of the vectors in a table that a worker yields.
BYTES_PER_TABLE = 2**26
# Ray starts a worker again whenever its process dies. But if a worker dies before it is ready, Ray Data ends
# the job, unless this limit is set.
MAX_DEATHS_AT_START = 3
# One of this number of cores is left for the other stages of a dataset, such as reading.
CORES_FOR_ONE_SPARE = 16


def embed_dataset(
    dataset: Any,
    bilm: BiLM,
    layers: Union[str, LayerChoice] = "average",
    column: str = "sentence",
    tokenizer: str = "whitespace",
    dtype: str = "float32",
    num_workers: int = 1,
    num_cpus_per_worker: Optional[float] = None,
    num_gpus_per_worker: float = 0,
    batches: BatchOptions = BatchOptions(),
) -> Any:
    """
    Add the vectors of its sentences to a Ray dataset:
    `embed_dataset(ray.data.read_parquet("texts/"), BiLM.from_files("elmo_mini")).write_parquet("vectors/")`.

    Nothing is computed before the dataset is used. The biLM is sent to each node once, see `SharedBiLM`. Each
    worker is a process with one biLM, and sorts the sentences of a block by length. Blocks are returned in
    the order in which they are finished, unless Ray's `preserve_order` is set.

    If a worker dies, it is started again and its block is embedded again: no row is lost or duplicated.

    # Parameters

    dataset : `ray.data.Dataset`
        The sentences, one in each row.
    bilm : `BiLM`
        Must be stateless, since workers do not embed sentences in order. Workers use its `precision` and
        `kernel`.
    layers : `str` or `LayerChoice`, optional (default = `"average"`)
        `all`, `top`, `average`, or the mix of a task model, see `learnt_mix`; `layer_choice("top", "mean")`
        for one vector for each sentence.
    column : `str`, optional (default = `"sentence"`)
        The column of sentences: text, or lists of tokens.
    tokenizer, dtype, batches
        See `InputOptions`, `OutputOptions` and `BatchOptions`.
    num_workers, num_cpus_per_worker, num_gpus_per_worker
        See `EngineOptions`.

    # Returns

    `ray.data.Dataset`: the rows with their columns, and these columns added:
    - `tokens`, lists of strings, if the column held text;
    - `vectors`, for each row a list with a vector for each token; with `all`, `layer_0`, `layer_1` and so on
      instead. A sentence without tokens has an empty list. Pooled vectors are in `vector` (or `layer_0`
      ...), not in lists; a sentence without tokens has zeros.

    # Raises

    `ConfigurationError` if Ray is not installed, for invalid arguments, and for a missing column, if the
    columns of the dataset are known. When the dataset is used, Ray's errors, with the error of the worker as
    their cause: `ConfigurationError` for a column that is missing, has another type or exists already;
    `ValueError` for null in place of text.
    """
    if bilm.stateful:
        raise ConfigurationError(
            "The biLM is stateful, but workers do not embed sentences in order. Make it with stateful=False."
        )
    layers = layer_choice(layers) if isinstance(layers, str) else layers
    InputOptions(tokenizer=tokenizer)
    OutputOptions(dtype=dtype)
    columns = dataset.columns(fetch_if_missing=False)
    if columns is not None:
        _check_has(column, columns)
    workers = RayWorkers.on_cluster(num_workers, num_cpus_per_worker, num_gpus_per_worker)
    # As many as are sorted together. A larger block could not be shared by several workers.
    rows_per_block = BATCHES_AHEAD * (batches.batch_size or DEFAULT_BATCH_SIZE)
    if dataset.context.max_consecutive_actor_init_deaths == 0:
        dataset.context.max_consecutive_actor_init_deaths = MAX_DEATHS_AT_START
    return dataset.repartition(target_num_rows_per_block=rows_per_block).map_batches(
        RowEmbedder,
        batch_size=rows_per_block,
        batch_format="pyarrow",
        fn_constructor_args=(SharedBiLM(bilm), workers, layers, column, tokenizer, dtype, batches),
        udf_modifying_row_count=False,
        # With more blocks in flight, some workers would run out of blocks before others.
        compute=import_ray().data.ActorPoolStrategy(
            size=workers.number, max_tasks_in_flight_per_actor=2
        ),
        num_cpus=_cpus_beside_other_stages(workers),
        num_gpus=workers.num_gpus or None,
    )


class RowEmbedder:
    """Embed the blocks of a dataset in a worker. The arguments are those of `embed_dataset`."""

    def __init__(
        self,
        shared: SharedBiLM,
        workers: RayWorkers,
        layers: LayerChoice,
        column: str,
        tokenizer: str,
        dtype: str,
        batches: BatchOptions,
    ) -> None:
        self._embedder = shared.embedder(workers)
        self._layers = layers
        self._column = column
        self._tokenize = tokenizer_of(tokenizer)
        self._dtype = dtype
        self._batches = batches
        dims = self._embedder.num_layers, self._embedder.get_output_dim()
        self._vector_shape = layers.vector_shape(*dims)
        self._is_pooled = layers.pool is not None
        self._schema = embedding_schema(self._vector_shape, dtype, self._is_pooled)

    def __call__(self, block: Any) -> Iterator[Any]:
        """Yield the rows of a `pyarrow.Table` with their vectors, in tables of bounded size."""
        column = self._column
        _check_has(column, block.column_names)
        new_columns = vector_columns(self._vector_shape, self._is_pooled)
        if not self._has_tokens(block.schema):
            new_columns.insert(0, TOKENS)
        _check_has_not(new_columns, block.column_names)
        sentences = [
            Sentence(row, "", self._tokens(value, row))
            for row, value in enumerate(block.column(column).to_pylist())
        ]
        vectors: List[numpy.ndarray] = []
        first = num_bytes = 0
        for row, row_vectors in enumerate(self._vectors_of(sentences)):
            vectors.append(row_vectors)
            num_bytes += row_vectors.nbytes
            if num_bytes >= BYTES_PER_TABLE or row + 1 == len(sentences):
                rows = sentences[first : row + 1]
                new = embedding_table("", rows, vectors, self._schema)
                table = block.slice(first, len(rows))
                for name in new_columns:
                    table = table.append_column(new.schema.field(name), new.column(name))
                yield table
                vectors = []
                first, num_bytes = row + 1, 0

    def _vectors_of(self, sentences: List[Sentence]) -> Iterator[numpy.ndarray]:
        limits = (self._batches.batch_size, self._batches.batch_tokens)
        tokens = (sentence.tokens for sentence in sentences)
        for row, layers in enumerate(self._embedder.embed_sentences(tokens, *limits)):
            yield cast_checked(self._layers(layers), self._dtype, f"row {row} of a block")

    def _has_tokens(self, schema: Any) -> bool:
        column_type = schema.field(self._column).type
        answer = holds_tokens(column_type)
        if answer is None:
            raise ConfigurationError(
                f"The column '{self._column}' is of type {column_type}, expected string, or "
                "list<string> for tokens. Give the name of another column (column=...)."
            )
        return answer

    def _tokens(self, value: Union[str, Sequence[str], None], row: int) -> List[str]:
        if value is None:
            raise ValueError(
                f"Row {row} of a block has null in column '{self._column}', expected a sentence. "
                "Leave such rows out (dataset.filter) first."
            )
        return self._tokenize(value) if isinstance(value, str) else checked_tokens(value, row)


def _cpus_beside_other_stages(workers: RayWorkers) -> float:
    """
    Return the cores of a worker such that some cores are left for other stages of the dataset. If workers
    took all cores, they would wait for sentences, and reading would wait for a core.
    """
    num_cores = int(import_ray().cluster_resources().get("CPU", 0))
    num_free = num_cores - max(1, num_cores // CORES_FOR_ONE_SPARE)
    return rounded_cpus(min(workers.num_cpus, max(0, num_free) / workers.number))


def _check_has(column: str, names: Sequence[str]) -> None:
    if column not in names:
        raise ConfigurationError(
            f"The dataset has no column '{column}', expected a column of sentences. Its columns are "
            f"{', '.join(names)}; give the name of one of them (column=...)."
        )


def _check_has_not(new_names: Sequence[str], names: Sequence[str]) -> None:
    taken = [name for name in new_names if name in names]
    if taken:
        raise ConfigurationError(
            f"The dataset has a column '{taken[0]}' already, expected none: a column of this name is added. "
            "Rename the existing one (dataset.rename_columns); or, if it holds the tokens of the sentences, "
            "name it as the column of sentences (column=...)."
        )
