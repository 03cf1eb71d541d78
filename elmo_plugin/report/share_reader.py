"""A reader that keeps a random share of the instances of another reader."""

import logging
import math
from typing import Any, Iterator

import numpy
from allennlp.data import DatasetReader, Instance
from allennlp.data.dataset_readers.dataset_reader import DatasetReaderInput

from elmo_plugin.errors import ConfigurationError

logger = logging.getLogger(__name__)


@DatasetReader.register("elmo_share")
class ShareReader(DatasetReader):
    """
    Keep a random share of the instances of another reader, in their order: sentences, pairs, questions,
    predicates or documents. Shares with the same seed are nested: a smaller share is a part of every larger
    one. All instances are read into memory before the share is chosen.
    """

    def __init__(self, reader: DatasetReader, share: float, seed: int = 0, **kwargs: Any) -> None:
        # In distributed training the other reader knows its process when it is built, and divides the data.
        super().__init__(manual_distributed_sharding=True, **kwargs)
        check_share(share, "share")
        self.reader = reader
        self.share = share
        self.seed = seed

    @property
    def tokenizer(self) -> Any:
        """That of the other reader, for predictors; `None` if it has none."""
        return getattr(self.reader, "tokenizer", None)

    def text_to_instance(self, *inputs: Any, **named_inputs: Any) -> Instance:
        return self.reader.text_to_instance(*inputs, **named_inputs)

    def apply_token_indexers(self, instance: Instance) -> None:
        self.reader.apply_token_indexers(instance)

    def _read(self, file_path: DatasetReaderInput) -> Iterator[Instance]:
        # Not by its `read`, which adds token indexers: this reader's `read` does that, but not in a worker of
        # a data loader.
        instances = list(self.reader._multi_worker_islice(self.reader._read(file_path)))
        order = numpy.random.default_rng(self.seed).permutation(len(instances))
        kept = sorted(order[: share_size(len(instances), self.share)])
        logger.info(
            "%s: %d of %d instances are kept, a random share of %.3g. Change `share` to keep another.",
            file_path,
            len(kept),
            len(instances),
            self.share,
        )
        for index in kept:
            yield instances[index]


def share_size(num_instances: int, share: float) -> int:
    """Return the number of instances that `ShareReader` keeps: `share`, halves rounded up, at least one."""
    return min(num_instances, max(1, math.floor(share * num_instances + 0.5)))


def check_share(share: float, name: str) -> None:
    """Raise an error unless `share` is larger than 0 and at most 1."""
    if not 0.0 < share <= 1.0:
        raise ConfigurationError(
            f"{name}: found {share}, expected a share of the training data: larger than 0, at most 1, such "
            "as 0.1."
        )
