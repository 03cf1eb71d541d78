"""What the readers of all tasks have in common."""

import logging
from collections import Counter
from os import PathLike
from typing import Any, Dict, Iterable, Iterator, Optional, Union

from allennlp.common.checks import ConfigurationError
from allennlp.data import DatasetReader, Instance
from allennlp.data.fields import TextField
from allennlp.data.token_indexers import SingleIdTokenIndexer, TokenIndexer
from allennlp.data.tokenizers import Tokenizer

logger = logging.getLogger(__name__)


class TaskReader(DatasetReader):
    """
    Reads the units of a file, such as its sentences or documents, each of which is judged on its own: a bad
    one stops reading with an error that names it, or is left out. Units are shared out among the workers of a
    data loader, and of distributed training, before they are made into instances.

    A task gives `_units`, `_instances` and `text_to_instance`; and `tokenizer`, if its files hold text that
    is not split into tokens.

    # Parameters

    token_indexers : `Dict[str, TokenIndexer]`, optional (default = `{"tokens": SingleIdTokenIndexer()}`)
        How the tokens of every text field are represented. ELMo needs an `elmo_character_ids` indexer.
    skip_invalid : `bool`, optional (default = `False`)
        Leave out bad units with a warning for each, and say at the end how many there were.

    # Raises

    While reading: `ConfigurationError` for a bad unit, unless `skip_invalid`; and in any case for a file that
    cannot be read, or of which (read by one process alone) nothing is left.
    """

    tokenizer: Optional[Tokenizer] = None

    def __init__(
        self,
        token_indexers: Optional[Dict[str, TokenIndexer]] = None,
        skip_invalid: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            manual_distributed_sharding=True, manual_multiprocess_sharding=True, **kwargs
        )
        self._token_indexers = token_indexers or {"tokens": SingleIdTokenIndexer()}
        self._skip_invalid = skip_invalid

    def apply_token_indexers(self, instance: Instance) -> None:
        for field in instance.fields.values():
            if isinstance(field, TextField):
                field.token_indexers = self._token_indexers

    def _read(self, file_path: Union[str, PathLike]) -> Iterable[Instance]:
        left_out: Counter = Counter()
        num_units, num_instances = 0, 0
        for unit in self.shard_iterable(self._units(file_path)):
            num_units += 1
            try:
                # All of a unit's instances or none.
                instances = list(self._instances(unit, left_out))
            except ConfigurationError as error:
                self._raise_unless_skipped(error)
                left_out["invalid"] += 1
                continue
            num_instances += len(instances)
            yield from instances
        for reason, count in left_out.items():
            logger.warning(
                "%s: left out: %d %s (%d units read)", file_path, count, reason, num_units
            )
        # One of several workers may well have none.
        is_alone = self.get_worker_info() is None and self.get_distributed_info() is None
        if is_alone and num_units and not num_instances:
            reasons = ", ".join(f"{count} {reason}" for reason, count in left_out.items())
            raise ConfigurationError(
                f"{file_path}: nothing to learn from is left of {num_units} read"
                f"{f' ({reasons})' if reasons else ''}, expected at least one. Give another file."
            )

    def _raise_unless_skipped(self, error: ConfigurationError) -> None:
        if not self._skip_invalid:
            raise error
        logger.warning("Left out (skip_invalid): %s", error)

    def _units(self, file_path: Union[str, PathLike]) -> Iterator[Any]:
        """
        The parts of a file, none of them judged yet. Raises `ConfigurationError` if the file is missing, is
        not UTF-8, is of another kind, or holds none.
        """
        raise NotImplementedError

    def _instances(self, unit: Any, left_out: Counter) -> Iterable[Instance]:
        """
        What there is to learn from a unit; none, if `left_out` is made to say why. Raises
        `ConfigurationError`, naming file, line and field, if the unit is bad.
        """
        raise NotImplementedError
