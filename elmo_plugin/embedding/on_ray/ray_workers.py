"""The processes that embed on Ray, and what each is given."""

import logging
import math
from typing import Any, Dict, List, NamedTuple, Optional

from allennlp.common.checks import ConfigurationError

from elmo_plugin.embedding.on_ray.ray_session import import_ray

logger = logging.getLogger(__name__)

# Of all cores, those that are left to the other stages of a dataset, such as reading: one of so many.
CORES_FOR_ONE_SPARE = 16


class RayWorkers(NamedTuple):
    """
    Workers of one size.

    # Parameters

    number : `int`
        How many.
    num_threads : `int`
        Threads of each.
    num_cpus : `float`
        Cores for each by Ray's count.
    num_gpus : `float`
        GPUs for each; a fraction if several are to share one.
    """

    number: int
    num_threads: int
    num_cpus: float
    num_gpus: float

    @classmethod
    def on_cluster(
        cls, number: int, num_cpus: Optional[float] = None, num_gpus: float = 0
    ) -> "RayWorkers":
        """
        Workers on the cluster that this process is connected to.

        # Parameters

        number : `int`
            How many.
        num_cpus : `float`, optional (default = an equal share of a node's cores, at least 1)
            Cores for each, which runs as many threads.
        num_gpus : `float`, optional (default = `0`)
            GPUs for each.

        # Raises

        `ConfigurationError` for numbers that cannot be.
        """
        if number < 1 or num_gpus < 0 or (num_cpus is not None and num_cpus <= 0):
            raise ConfigurationError(
                f"num_workers is {number}, num_cpus_per_worker is {num_cpus} and num_gpus_per_worker is "
                f"{num_gpus}, expected at least one worker, and positive numbers (of GPUs, also 0)."
            )
        nodes = [node["Resources"] for node in import_ray().nodes() if node["Alive"]]
        nodes = [node for node in nodes if node.get("GPU" if num_gpus else "CPU", 0) > 0]
        if num_cpus is None:
            num_cpus = _share_of_cores(nodes, number)
        # With all cores taken by workers that wait for sentences, Ray would wait for a core to read them.
        num_cores = int(sum(node.get("CPU", 0) for node in nodes))
        num_free = num_cores - max(1, num_cores // CORES_FOR_ONE_SPARE)
        workers = cls(
            number=number,
            num_threads=max(1, int(num_cpus)),
            # Ray counts in ten-thousandths.
            num_cpus=math.floor(min(num_cpus, max(0, num_free) / number) * 10_000) / 10_000,
            num_gpus=num_gpus,
        )
        workers._warn_of_lack(nodes)
        return workers

    def map_arguments(self, num_calls: int = 1) -> Dict[str, Any]:
        """
        The arguments of `Dataset.map_batches` for a class that these workers run.

        # Parameters

        num_calls : `int`, optional (default = `1`)
            How many calls of one worker may run at the same time.
        """
        strategy = import_ray().data.ActorPoolStrategy(
            size=self.number,
            # One block waits while another is worked on. (More would wait for one worker while others
            # have none.)
            max_tasks_in_flight_per_actor=2,
            max_concurrent_calls_per_actor=num_calls,
            enable_true_multi_threading=num_calls > 1,
        )
        return {"compute": strategy, "num_cpus": self.num_cpus, "num_gpus": self.num_gpus or None}

    def _warn_of_lack(self, nodes: List[Dict[str, float]]) -> None:
        """A cluster may grow, so it is no error."""
        room = sum(_room(node, self.num_threads, self.num_gpus) for node in nodes)
        if room < self.number:
            logger.warning(
                "%s workers of %s cores and %s GPUs are asked for, and %s have room now: more would share "
                "cores, or wait for GPUs.",
                self.number,
                self.num_threads,
                self.num_gpus,
                room,
            )


def _share_of_cores(nodes: List[Dict[str, float]], number: int) -> float:
    """Whole cores, so that all workers find room if nodes have that many."""
    if not nodes:
        return 1
    workers_per_node = math.ceil(number / len(nodes))
    return max(1, int(min(node.get("CPU", 0) for node in nodes)) // workers_per_node)


def _room(node: Dict[str, float], num_threads: int, num_gpus: float) -> int:
    rooms = [node.get("CPU", 0) / num_threads]
    if num_gpus:
        rooms.append(node.get("GPU", 0) / num_gpus)
    # Fractions such as 0.1 do not add up exactly.
    return int(min(rooms) + 1e-9)
