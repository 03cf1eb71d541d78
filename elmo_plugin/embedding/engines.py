"""Embed blocks of sentences and write a part for each: in this process, or in workers of Ray."""

import logging
import math
import warnings
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Callable, Generator, Iterator, List, Optional, Tuple

import numpy
import torch

from elmo_plugin.arguments import Options, option
from elmo_plugin.cpus import usable_cpus
from elmo_plugin.embedding.formats import OutputFormat
from elmo_plugin.embedding.layers import LayerChoice
from elmo_plugin.embedding.parts import Block, PartsFolder
from elmo_plugin.errors import ConfigurationError, needing

if TYPE_CHECKING:
    from elmo_plugin.embedding.elmo_embedder import ElmoEmbedder

LOCAL, RAY = ENGINES = ("local", "ray")

# One block is embedded while another one waits. With more, some workers would run out of blocks before
# others.
BLOCKS_PER_WORKER = 2
# How often a block is tried again after its worker died.
MAX_RETRIES = 5


@dataclass(frozen=True)
class EngineOptions(Options):
    """The processes that embed."""

    engine: str = option("local: this process; ray: workers of Ray", LOCAL, choices=ENGINES)
    num_workers: Optional[int] = option(
        "number of workers, which share the cores equally (default: 1)",
        None,
        metavar="N",
        positive=True,
    )
    ray_address: Optional[str] = option(
        "of a Ray cluster, or auto on its nodes (default: start Ray here)",
        None,
        metavar="ADDRESS",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, value in asdict(self).items():
            if not self.is_ray and name != "engine" and value is not None:
                raise ConfigurationError(
                    f"--{name.replace('_', '-')} is {value}, but the engine is {LOCAL}. Give --engine {RAY}, "
                    "or leave it out."
                )

    @property
    def is_ray(self) -> bool:
        """Whether workers of Ray are used."""
        return self.engine == RAY


@dataclass(frozen=True)
class PartWriter:
    """Embed blocks and write a part for each. Can be pickled, to be sent to workers."""

    layers: LayerChoice
    batch_size: int
    format: OutputFormat
    folder: PartsFolder

    def write(self, embedder: "ElmoEmbedder", block: Block) -> Iterator[int]:
        """
        Embed a block and write its part. Yield 1 after each sentence, the number of new ones. Raise
        `ConfigurationError` for a vector that is too large for the data type; `OSError` if writing fails.
        """
        tokens = (sentence.tokens for sentence in block.sentences)
        all_layers = embedder.embed_sentences(tokens, self.batch_size)
        vectors = []
        for sentence, layers in zip(block.sentences, all_layers):
            where = f"{block.part.source}, line {sentence.line_index + 1}"
            vectors.append(_cast_checked(self.layers(layers), self.format.options.dtype, where))
            yield 1
        self.folder.write(block, vectors, self.format)


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


class LocalEngine:
    """Embed in this process."""

    def __init__(self, embedder: "ElmoEmbedder") -> None:
        self._embedder = embedder

    def map(self, function: Callable[[Any], Any], items: List[Any]) -> List[Any]:
        return list(map(function, items))

    def write_parts(
        self, writer: PartWriter, blocks: Iterator[Block]
    ) -> Generator[int, None, None]:
        """Embed blocks and write their parts. Yield numbers of newly embedded sentences."""
        for block in blocks:
            yield from writer.write(self._embedder, block)


class RayEngine:
    """Embed in workers of the Ray cluster that this process is connected to."""

    def __init__(self, embedder: "ElmoEmbedder", num_workers: int) -> None:
        self._embedder = shared_embedder(embedder)
        self._num_workers = num_workers

    def map(self, function: Callable[[Any], Any], items: List[Any]) -> List[Any]:
        """Return the result of a function for each item. The calls run on all cores."""
        ray = import_ray()
        remote = ray.remote(function)
        return list(ray.get([remote.remote(item) for item in items]))

    def write_parts(
        self, writer: PartWriter, blocks: Iterator[Block]
    ) -> Generator[int, None, None]:
        """
        Hand each block to the next idle worker, which embeds it and writes its part. Yield the number of
        sentences of each part that is done.

        A worker that dies is started again, and its blocks are embedded again. The name of a part follows
        from its sentences, so a part that is written twice exists once.
        """
        ray = import_ray()
        from ray.util import ActorPool

        num_cpus = cores_of_worker(self._num_workers)
        worker_class = ray.remote(num_cpus=num_cpus, max_restarts=-1, max_task_retries=MAX_RETRIES)(
            _Worker
        )
        workers = [
            worker_class.remote(self._embedder, num_cpus, writer) for _ in range(self._num_workers)
        ]
        pool = ActorPool(workers * BLOCKS_PER_WORKER)
        try:
            for block in blocks:
                if not pool.has_free():
                    yield pool.get_next_unordered()
                pool.submit(lambda worker, block: worker.write.remote(block), block)
            while pool.has_next():
                yield pool.get_next_unordered()
        except ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, (ConfigurationError, OSError)):  # for the user
                raise error.cause from error
            raise
        finally:
            for worker in workers:
                ray.kill(worker)


class _Worker:
    """The actor that runs in a worker process."""

    def __init__(self, embedder: Any, num_cpus: float, writer: PartWriter) -> None:
        # Ray does not know of all quotas.
        torch.set_num_threads(max(1, min(int(num_cpus), usable_cpus())))
        self._embedder = embedder
        self._writer = writer

    def write(self, block: Block) -> int:
        """Embed a block, and write its part. Return the number of sentences."""
        return sum(self._writer.write(self._embedder, block))


def cores_of_worker(num_workers: int) -> float:
    """
    Return the number of cores for each worker, as Ray counts them, of the cluster that this process is
    connected to. The workers of a node share its cores equally.
    """
    # Nodes without cores run no worker.
    counts = [node["Resources"].get("CPU", 0) for node in import_ray().nodes() if node["Alive"]]
    cores = [count for count in counts if count > 0]
    share = min(cores, default=1) / math.ceil(num_workers / max(len(cores), 1))
    # Whole cores, or ten-thousandths of one, the smallest unit of Ray.
    return int(share) if share >= 1 else math.floor(share * 10_000) / 10_000


def shared_embedder(embedder: Any) -> Any:
    """
    Put an embedder into Ray's object store, and return Ray's reference of it.

    The weights are sent to a node once, when its first process needs them, and the tensors in all processes
    of the node are read-only views of this memory: Ray shares arrays, so tensors are stored as arrays.
    """
    ray = import_ray()
    classes = (torch.Tensor, torch.nn.Parameter)
    for one in classes:
        ray.util.register_serializer(one, serializer=_array_of, deserializer=_tensor_of)
    try:
        return ray.put(embedder)
    finally:
        for one in classes:
            ray.util.deregister_serializer(one)


def _array_of(tensor: torch.Tensor) -> Tuple[numpy.ndarray, torch.dtype, bool]:
    stored = tensor.detach().cpu()
    if stored.dtype == torch.bfloat16:  # which numpy does not have
        stored = stored.view(torch.int16)
    return stored.numpy(), tensor.dtype, isinstance(tensor, torch.nn.Parameter)


def _tensor_of(stored: Tuple[numpy.ndarray, torch.dtype, bool]) -> torch.Tensor:
    array, dtype, is_parameter = stored
    with warnings.catch_warnings():
        # Weights are never written to.
        warnings.filterwarnings("ignore", "The given NumPy array is not writable", UserWarning)
        tensor = torch.from_numpy(array).view(dtype)
    return torch.nn.Parameter(tensor, requires_grad=False) if is_parameter else tensor


def import_ray() -> Any:
    with needing("Embedding on several workers needs Ray", "elmo-plugin[ray]"):
        import ray
    return ray


Engine = LocalEngine | RayEngine


@contextmanager
def make_engine(embedder: "ElmoEmbedder", options: EngineOptions) -> Iterator[Engine]:
    """
    Give an engine that runs the embedder, or copies of it in workers of Ray. Within the context this process
    is connected to Ray. A connection that it has already is used and kept.

    Without an address Ray is started on this machine, with its GPUs and all cores that this process may use,
    and stopped at the end.
    The address is that of a cluster's head node, such as `10.0.0.1:6379`, or `auto` on a node of the cluster.

    # Raises

    `ConfigurationError` if Ray cannot start, no cluster answers at the address, or this process is connected
    already.
    """
    if not options.is_ray:
        yield LocalEngine(embedder)
        return
    ray, address = import_ray(), options.ray_address
    num_workers = options.num_workers or 1
    if address is None and ray.is_initialized():
        yield RayEngine(embedder, num_workers)
        return
    try:
        ray.init(
            address=address or "local",
            num_cpus=None if address else usable_cpus(),
            include_dashboard=None if address else False,
            logging_level=logging.ERROR,
            log_to_driver=False,
        )
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise ConfigurationError(
            f"--engine ray: Ray cannot start here ({error}). Leave out --engine to run in this process."
            if address is None
            else f"--ray-address: cannot connect to a Ray cluster at {address} ({error}). Start one with "
            "`ray start --head`, or leave out the address to run on this machine."
        ) from error
    try:
        yield RayEngine(embedder, num_workers)
    finally:
        ray.shutdown()
