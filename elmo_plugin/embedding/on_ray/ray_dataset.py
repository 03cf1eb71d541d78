"""Embedding the sentences of a Ray dataset."""

from typing import Any, Iterator, List, Optional, Sequence, Union

import numpy
from allennlp.common.checks import ConfigurationError

from elmo_plugin.bilm import BiLM
from elmo_plugin.embedding.checked_sentences import Sentence, tokenizer_of
from elmo_plugin.embedding.elmo_embedder import BATCHES_AHEAD
from elmo_plugin.embedding.embed_file import DEFAULT_BATCH_SIZE
from elmo_plugin.embedding.layer_choice import LayerChoice, layer_choice
from elmo_plugin.embedding.on_ray.ray_workers import RayWorkers
from elmo_plugin.embedding.on_ray.shared_bilm import SharedBiLM
from elmo_plugin.embedding.on_ray.worker_embedder import (
    WorkerEmbedder,
    WorkerSettings,
    check_embedding,
)
from elmo_plugin.embedding.output.arrow_table import embedding_table
from elmo_plugin.embedding.parquet_sentences import holds_tokens
from elmo_plugin.embedding.sentence_checks import checked_tokens

TOKENS = "tokens"

# Of vectors, in a table that a worker gives on.
BYTES_PER_TABLE = 2**26

# Ray starts a worker again whenever its process dies, and gives it its block again. But where one dies
# before it is ready, Ray Data ends the job, unless it is told how many of those to bear.
MAX_DEATHS_AT_START = 3


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
    batch_size: Optional[int] = DEFAULT_BATCH_SIZE,
    batch_tokens: Optional[int] = None,
) -> Any:
    """
    Add the vectors of its sentences to a Ray dataset:
    `embed_dataset(ray.data.read_parquet("texts/"), BiLM.from_files("elmo_mini")).write_parquet("vectors/")`.

    Nothing is computed before the dataset is used. The biLM is sent to each node once, see `SharedBiLM`;
    each worker is a process with one biLM, which sorts the sentences of a block by length. Blocks come in
    the order in which they are done, unless Ray's `preserve_order` is set.

    A worker whose process dies is started again, and what it was working on is embedded again: no row is
    lost or doubled.

    # Parameters

    dataset : `ray.data.Dataset`
        Any, with a column of sentences.
    bilm : `BiLM`
        Not a stateful one: sentences have no order here. Workers have its `precision` and `kernel`.
    layers : `str` or `LayerChoice`, optional (default = `"average"`)
        `all`, `top`, `average`, or the mix of a task model, see `learnt_mix`.
    column : `str`, optional (default = `"sentence"`)
        Holds text, or lists of tokens.
    tokenizer : `str`, optional (default = `"whitespace"`)
        For text: a key of `TOKENIZERS`.
    dtype : `str`, optional (default = `"float32"`)
        Of the vectors: `float32` or `float16`.
    num_workers : `int`, optional (default = `1`)
        How many biLMs run at the same time.
    num_cpus_per_worker : `float`, optional (default = an equal share of a node's cores)
        Cores of each worker, which runs as many threads.
    num_gpus_per_worker : `float`, optional (default = `0`)
        GPUs of each worker; with 0 it runs on its cores. A fraction lets workers share a GPU.
    batch_size, batch_tokens
        See `ElmoEmbedder.embed_sentences`.

    # Returns

    `ray.data.Dataset`: the rows with all of their columns; with `tokens`, lists of strings, if the column
    held text; and with `vectors`, for each row a list of vectors, one for each token, or for `all` with
    `layer_0`, `layer_1` and so on. A sentence without tokens has an empty list.

    # Raises

    `ConfigurationError` if Ray is not installed, for arguments that cannot be, and for a column that is not
    there, if the dataset knows its columns. When the dataset is used, Ray's errors, whose cause is that of
    the worker: `ConfigurationError` for a column that is not there, is of another type or would be written
    twice; `ValueError` for null in place of text.
    """
    layers = layer_choice(layers) if isinstance(layers, str) else layers
    check_embedding(bilm, dtype)
    tokenizer_of(tokenizer)
    columns = dataset.columns(fetch_if_missing=False)
    if columns is not None:
        _check_has(column, columns)
    workers = RayWorkers.on_cluster(num_workers, num_cpus_per_worker, num_gpus_per_worker)
    settings = WorkerSettings(SharedBiLM(bilm), layers, dtype, batch_size, batch_tokens, workers)
    # As many as are sorted together. Of a larger block, one worker would do what several could.
    rows_per_block = BATCHES_AHEAD * (batch_size or DEFAULT_BATCH_SIZE)
    if dataset.context.max_consecutive_actor_init_deaths == 0:
        dataset.context.max_consecutive_actor_init_deaths = MAX_DEATHS_AT_START
    return dataset.repartition(target_num_rows_per_block=rows_per_block).map_batches(
        _RowEmbedder,
        batch_size=rows_per_block,
        batch_format="pyarrow",
        fn_constructor_args=(settings, column, tokenizer),
        udf_modifying_row_count=False,
        **workers.map_arguments(),
    )


class _RowEmbedder:
    """What a worker makes of a block of a dataset."""

    def __init__(self, settings: WorkerSettings, column: str, tokenizer: str) -> None:
        self._embedder = WorkerEmbedder(settings)
        self._column = column
        self._tokenize = tokenizer_of(tokenizer)

    def __call__(self, block: Any) -> Iterator[Any]:
        """The rows of a `pyarrow.Table` with vectors, in tables of bounded size."""
        _check_has(self._column, block.column_names)
        column_holds_tokens = self._holds_tokens(block.schema)
        new_columns = list(self._embedder.vector_columns)
        if not column_holds_tokens:
            new_columns.insert(0, TOKENS)
        _check_has_not(new_columns, block.column_names)
        sentences = [
            Sentence(row, "", self._tokens(value, row))
            for row, value in enumerate(block.column(self._column).to_pylist())
        ]
        vectors: List[numpy.ndarray] = []
        first = num_bytes = 0
        for row, row_vectors in enumerate(self._embedder.embed(sentences)):
            vectors.append(row_vectors)
            num_bytes += row_vectors.nbytes
            if num_bytes >= BYTES_PER_TABLE or row + 1 == len(sentences):
                rows = sentences[first : row + 1]
                new = embedding_table([""] * len(rows), rows, vectors, self._embedder.schema)
                table = block.slice(first, len(rows))
                for name in new_columns:
                    table = table.append_column(new.schema.field(name), new.column(name))
                yield table
                vectors = []
                first, num_bytes = row + 1, 0

    def _holds_tokens(self, schema: Any) -> bool:
        column_type = schema.field(self._column).type
        answer = holds_tokens(column_type)
        if answer is None:
            raise ConfigurationError(
                f"The column '{self._column}' is of type {column_type}, expected string, or list<string> for "
                "tokens. Give the name of another one (column=...)."
            )
        return answer

    def _tokens(self, value: Union[str, Sequence[str], None], row: int) -> List[str]:
        if value is None:
            raise ValueError(
                f"Row {row} of a block has null in column '{self._column}', expected a sentence. Leave such "
                "rows out (dataset.filter) first."
            )
        return self._tokenize(value) if isinstance(value, str) else checked_tokens(value, row)


def _check_has(column: str, names: Sequence[str]) -> None:
    if column not in names:
        raise ConfigurationError(
            f"The dataset has no column '{column}', expected one that holds sentences. It has "
            f"{', '.join(names)}; give the name of one of them (column=...)."
        )


def _check_has_not(new_names: Sequence[str], names: Sequence[str]) -> None:
    taken = [name for name in new_names if name in names]
    if taken:
        raise ConfigurationError(
            f"The dataset has a column '{taken[0]}' already, expected none of that name, which what is added "
            "gets. Rename it (dataset.rename_columns); or, if it holds the tokens of the sentences, give it "
            "as their column (column=...)."
        )
