"""Batches for validation, of which all workers of distributed training have the same number."""

import itertools
import math
from typing import Iterable, List, Sequence

import torch.distributed
from allennlp.common.util import is_distributed
from allennlp.data import Instance
from allennlp.data.samplers import BatchSampler, BucketBatchSampler
from allennlp.nn.util import dist_reduce

from elmo_plugin.errors import ConfigurationError


@BatchSampler.register("elmo_even")
class EvenBatchSampler(BucketBatchSampler):
    """
    Cut instances into batches of similar length, the shortest first, as AllenNLP's `bucket` does without
    `shuffle`. In distributed training all workers have the same number of batches.

    Workers share the records of a file, but some have more instances than others. AllenNLP's trainer stops
    all workers as soon as one has no batch left, and drops the remaining batches of the others, which here
    are their longest texts. So workers with fewer instances make smaller batches. Only if a worker has fewer
    instances than another one has batches, the batches of that one are larger than `batch_size`.

    All instances must be in memory: a loader with `max_instances_in_memory` cuts them into several parts, of
    which each worker may have another number.

    # Raises

    `ConfigurationError`, at the first batch, if a worker has no instances.
    """

    def __init__(self, batch_size: int, sorting_keys: List[str]) -> None:
        super().__init__(batch_size, sorting_keys, shuffle=False)

    def get_batch_indices(self, instances: Sequence[Instance]) -> Iterable[List[int]]:
        if not is_distributed():
            yield from super().get_batch_indices(instances)
            return
        fewest_instances = dist_reduce(len(instances), torch.distributed.ReduceOp.MIN)
        if fewest_instances == 0:
            raise ConfigurationError(
                "A worker of distributed training has no validation data, expected at least one instance for "
                "each. Give more data, or fewer devices in distributed.cuda_devices."
            )
        num_needed = math.ceil(len(instances) / self.batch_size)
        most_batches = dist_reduce(num_needed, torch.distributed.ReduceOp.MAX)
        num_batches = min(most_batches, fewest_instances)
        indices, _ = self._argsort_by_padding(instances)
        bounds = [number * len(indices) // num_batches for number in range(num_batches + 1)]
        for start, end in itertools.pairwise(bounds):
            yield indices[start:end]
