"""Embed with Ray: actors on this machine or a cluster embed blocks and write a part for each."""

import io
import logging
import math
import pickle
import warnings
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import (
    TYPE_CHECKING,
    Any,
    Dict,
    Iterable,
    Iterator,
    List,
    NamedTuple,
    Optional,
    Sequence,
    Union,
)

import numpy
import torch

from elmo_plugin.arguments import check_choices, option
from elmo_plugin.embedding.formats import OutputFormat
from elmo_plugin.embedding.local_engine import PartWriter, Progress
from elmo_plugin.embedding.parts import Block, Content, Part, content_of
from elmo_plugin.embedding.sentences import SentenceSource
from elmo_plugin.errors import ConfigurationError, needing

if TYPE_CHECKING:  # `ElmoEmbedder.embed_file` makes a run: the class stands above this module
    from elmo_plugin.embedding.elmo_embedder import ElmoEmbedder

LOCAL, RAY = ENGINES = ("local", "ray")

# Size of the object store without the weights: for text sent to workers. Vectors are not sent.
STORE_BYTES = 2**29
# One block is embedded while another one waits. With more, some workers would run out of blocks before
# others.
BLOCKS_PER_WORKER = 2
# How often a block is tried again after its worker died.
MAX_RETRIES = 5
MAX_ERRORS_SHOWN = 10
# Ray makes only a worker's own GPUs visible to it.
FIRST_GPU = "cuda:0"

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class EngineOptions:
    """The processes that embed."""

    engine: str = option("local: this process; ray: workers of Ray", LOCAL, choices=ENGINES)
    num_workers: Optional[int] = option(
        "number of workers, which share the cores (default: 1)", None, metavar="N"
    )
    num_cpus_per_worker: Optional[float] = option(
        "cores and threads of each (default: an equal share)", None, metavar="N"
    )
    num_gpus_per_worker: Optional[float] = option(
        "GPUs of each; a fraction to share one (default: 0)", None, metavar="N"
    )
    ray_address: Optional[str] = option(
        "of a cluster; auto on its nodes (default: start Ray here)", None, metavar="ADDRESS"
    )

    def __post_init__(self) -> None:
        check_choices(self)
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


class RayWorkers(NamedTuple):
    """Workers of equal size: the cores (as Ray counts them) and GPUs of each, which may be fractions."""

    number: int
    num_cpus: float
    num_gpus: float

    @property
    def num_threads(self) -> int:
        """Number of threads of each worker."""
        return max(1, int(self.num_cpus))

    @classmethod
    def on_cluster(
        cls, number: int, num_cpus: Optional[float] = None, num_gpus: float = 0
    ) -> "RayWorkers":
        """
        Return workers for the cluster that this process is connected to. By default the workers of a node
        share its cores equally.

        # Raises

        `ConfigurationError` for numbers that are not positive, and if the cluster has too few GPUs.
        """
        if number < 1 or num_gpus < 0 or (num_cpus is not None and num_cpus <= 0):
            raise ConfigurationError(
                f"num_workers is {number}, num_cpus_per_worker is {num_cpus} and num_gpus_per_worker is "
                f"{num_gpus}, expected at least one worker, a positive number of cores, and no negative "
                "number of GPUs."
            )
        nodes = [node["Resources"] for node in import_ray().nodes() if node["Alive"]]
        gpus_per_node = [node.get("GPU", 0) for node in nodes]
        # Fractions such as 0.1 do not add up exactly.
        if num_gpus and sum(int(gpus / num_gpus + 1e-9) for gpus in gpus_per_node) < number:
            raise ConfigurationError(
                f"--num-gpus-per-worker is {num_gpus} for {number} workers, but Ray finds "
                f"{sum(gpus_per_node):g} GPUs. Give fewer workers, or a fraction to share a GPU, or leave it "
                "out to run on CPUs."
            )
        cores = [node.get("CPU", 0) for node in nodes if not num_gpus or node.get("GPU", 0)]
        if num_cpus is None:
            share = min(cores, default=1) / math.ceil(number / max(len(cores), 1))
            num_cpus = int(share) if share >= 1 else rounded_cpus(share)
        return cls(number, num_cpus, num_gpus)


def rounded_cpus(number: float) -> float:
    """Round down to ten-thousandths of a core, the smallest unit of Ray."""
    return math.floor(number * 10_000) / 10_000


@contextmanager
def ray_engine(embedder: "ElmoEmbedder", options: EngineOptions) -> Iterator["RayEngine"]:
    """
    Connect to Ray within the context, and give an engine whose workers run copies of the embedder.

    # Raises

    `ConfigurationError` if workers are to have GPUs and the embedder's biLM is packed for CPUs, and as
    `ray_session`.
    """
    shared = _Pickled(embedder)
    with ray_session(options.ray_address, shared.num_bytes):
        workers = RayWorkers.on_cluster(
            1 if options.num_workers is None else options.num_workers,
            options.num_cpus_per_worker,
            options.num_gpus_per_worker or 0,
        )
        if workers.num_gpus and embedder.elmo_bilm.kernel != "reference":
            raise ConfigurationError(
                f"--num-gpus-per-worker is {workers.num_gpus:g}, but the biLM is packed for the kernel "
                f"{embedder.elmo_bilm.kernel}. Add --kernel reference, whose weights go to GPUs."
            )
        yield RayEngine(shared.put(), workers)


class RayEngine:
    """Embed in workers of the Ray cluster that this process is connected to."""

    def __init__(self, shared: "SharedEmbedder", workers: RayWorkers) -> None:
        self._shared = shared
        self._workers = workers

    def contents(
        self, sources: Sequence[SentenceSource], parts: Sequence[List[Part]], format: OutputFormat
    ) -> List[Content]:
        """
        See `LocalEngine.contents`. Sources are read in parallel, and one error lists those of all sources.
        """
        ray = import_ray()
        read = ray.remote(_content_or_error)
        found = ray.get(
            [read.remote(source, own_parts, format) for source, own_parts in zip(sources, parts)]
        )
        errors = [content for content in found if isinstance(content, str)]
        if errors:
            more = len(errors) - MAX_ERRORS_SHOWN
            shown = errors[:MAX_ERRORS_SHOWN] + [f"... and {more:,} more files"] * (more > 0)
            raise ConfigurationError("\n".join(shown))
        return list(found)

    def write_parts(self, blocks: Iterable[Block], writer: PartWriter, progress: Progress) -> None:
        """
        See `LocalEngine.write_parts`.

        A worker that dies is started again, and its blocks are embedded again. The name of a part follows
        from its sentences, so a part that is written twice exists once.
        """
        ray = import_ray()
        worker_class = ray.remote(
            num_cpus=self._workers.num_cpus,
            num_gpus=self._workers.num_gpus,
            max_restarts=-1,
            max_task_retries=MAX_RETRIES,
        )(_Worker)
        workers = [
            worker_class.remote(self._shared, self._workers, writer)
            for _ in range(self._workers.number)
        ]
        idle = workers * BLOCKS_PER_WORKER
        worker_of: Dict[Any, Any] = {}  # from the reference of a part to the worker that writes it

        def collect() -> None:
            (done,), _ = ray.wait(list(worker_of), num_returns=1)
            try:
                part = Part(*ray.get(done))
            except ray.exceptions.RayTaskError as error:
                if isinstance(error.cause, (ConfigurationError, OSError)):  # for the user
                    raise error.cause from error
                raise
            idle.append(worker_of.pop(done))
            progress.update(part.num_sentences)
            progress.add_tokens(part.num_tokens)

        try:
            for block in blocks:
                if not idle:
                    collect()
                worker = idle.pop(0)
                worker_of[worker.write.remote(block)] = worker
            while worker_of:
                collect()
        finally:
            for worker in workers:
                ray.kill(worker)


class _Worker:
    """The actor that runs in a worker process."""

    def __init__(self, shared: "SharedEmbedder", workers: RayWorkers, writer: PartWriter) -> None:
        torch.set_num_threads(workers.num_threads)
        self._embedder = shared.embedder(FIRST_GPU if workers.num_gpus else "cpu")
        self._writer = writer

    def write(self, block: Block) -> Part:
        """Embed a block, and write its part."""
        (part,) = self._writer.write_parts(self._embedder, [block])
        return part


class SharedEmbedder(NamedTuple):
    """
    An embedder whose weights are shared by the processes of a cluster.

    The weights are in Ray's object store. They are sent to a node once, when its first process needs them,
    and the tensors in all processes of the node are read-only views of this memory.
    """

    state: bytes  # the embedder, pickled without its tensors
    arrays: Any  # Ray's reference of its tensors, as arrays

    def embedder(self, device: str = "cpu") -> "ElmoEmbedder":
        """Return a copy of the embedder that uses the shared weights, or copies of them on a GPU."""
        arrays = import_ray().get(self.arrays)
        pickled = _UnpicklerOfTensors(io.BytesIO(self.state), arrays, device)
        embedder: ElmoEmbedder = pickled.load()
        embedder.elmo_bilm.device = torch.device(device)
        return embedder


class _Pickled:
    """An embedder, pickled without its tensors, and these as arrays."""

    def __init__(self, embedder: "ElmoEmbedder") -> None:
        file = io.BytesIO()
        pickler = _PicklerOfTensors(file)
        pickler.dump(embedder)
        self._state, self._arrays = file.getvalue(), pickler.arrays

    @property
    def num_bytes(self) -> int:
        """Size of the arrays."""
        return sum(array.nbytes for array in self._arrays)

    def put(self) -> SharedEmbedder:
        """Put the arrays into Ray's object store."""
        return SharedEmbedder(self._state, import_ray().put(self._arrays))


class _PicklerOfTensors(pickle.Pickler):
    """Pickle an object without the tensors in it, which are collected in `arrays`."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self.arrays: List[numpy.ndarray] = []
        self._positions: Dict[int, int] = {}  # in `arrays`, by the id of the tensor

    def persistent_id(self, value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return None
        if id(value) not in self._positions:
            self._positions[id(value)] = len(self.arrays)
            tensor = value.detach().cpu()
            if tensor.dtype == torch.bfloat16:  # which numpy does not have
                tensor = tensor.view(torch.int16)
            self.arrays.append(tensor.numpy())
        return self._positions[id(value)], value.dtype, isinstance(value, torch.nn.Parameter)


class _UnpicklerOfTensors(pickle.Unpickler):
    """Load what `_PicklerOfTensors` has written. On a CPU, tensors are views of the arrays."""

    def __init__(self, file: io.BytesIO, arrays: Sequence[numpy.ndarray], device: str) -> None:
        super().__init__(file)
        self._arrays = arrays
        self._device = device

    def persistent_load(self, identity: Any) -> torch.Tensor:
        position, dtype, is_parameter = identity
        with warnings.catch_warnings():
            # Weights are never written to.
            warnings.filterwarnings("ignore", "The given NumPy array is not writable", UserWarning)
            tensor = torch.from_numpy(self._arrays[position]).view(dtype).to(self._device)
        return torch.nn.Parameter(tensor, requires_grad=False) if is_parameter else tensor


def _content_or_error(
    source: SentenceSource, parts: List[Part], format: OutputFormat
) -> Union[Content, str]:
    try:
        return content_of(source, parts, format)
    except ConfigurationError as error:
        return error.message


def import_ray() -> Any:
    """Return the module `ray`, or raise `ConfigurationError` if the extra is not installed."""
    with needing("Embedding on several workers needs Ray", "elmo-plugin[ray]"):
        import ray
    return ray


@contextmanager
def ray_session(address: Optional[str] = None, shared_bytes: int = 0) -> Iterator[None]:
    """
    Connect to Ray within the context. If this process is connected already, that connection is used and kept.

    # Parameters

    address : `str`, optional
        The address of a cluster's head node, such as `10.0.0.1:6379`, or `auto` on a node of the cluster. By
        default Ray is started on this machine, with all of its cores and GPUs, and stopped at the end.
    shared_bytes : `int`, optional (default = `0`)
        Size of the weights that will be put into the object store of this machine.

    # Raises

    `ConfigurationError` if no cluster answers at the address.
    """
    ray = import_ray()
    if ray.is_initialized():
        if address is not None:
            raise ConfigurationError(
                f"--ray-address is {address}, but this process is connected to Ray already. Leave it out to "
                "use this connection, or call ray.shutdown() first."
            )
        yield
        return
    quiet = {"logging_level": logging.ERROR, "log_to_driver": False}
    if address is None:
        ray.init(include_dashboard=False, object_store_memory=shared_bytes + STORE_BYTES, **quiet)
    else:
        try:
            ray.init(address=address, **quiet)
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise ConfigurationError(
                f"--ray-address: no Ray cluster answers at {address} ({error}). Start one with `ray start "
                "--head`, or leave out the address to run on this machine."
            ) from error
    try:
        yield
    finally:
        ray.shutdown()
