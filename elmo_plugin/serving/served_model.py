"""A trained task model, as the server holds it."""

import json
from os import PathLike
from typing import Any, Dict, List, Optional, Sequence, Union

from allennlp.common.util import JsonDict
from allennlp.predictors import Predictor
from pydantic import BaseModel, Field

from elmo_plugin.compat.archives import keep_only_snapshots, opened_archive
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.serving.options import Limits
from elmo_plugin.serving.request_checks import RequestError, check_length
from elmo_plugin.tasks.predicting import TaskPredictor

TASKS = ("elmo_ner", "elmo_srl", "elmo_coref", "elmo_squad", "elmo_snli", "elmo_sst")


class ModelDescription(BaseModel):
    """A task model, and what it expects."""

    name: str
    task: str
    example: Dict[str, Any] = Field(description="a valid input")
    finds_predicates: bool = Field(
        description="semantic roles only: whether an input can omit the indices of its predicates"
    )


class ServedModel:
    """
    A model and its predictor, which has a name in addresses. The arguments are those of `opened_archive`.

    # Raises

    `ConfigurationError` if the archive cannot be loaded, and if its model is not of one of the six tasks.
    """

    def __init__(
        self,
        name: str,
        archive_file: Union[str, PathLike],
        limits: Limits,
        cuda_device: int = -1,
    ) -> None:
        archive = opened_archive(archive_file, cuda_device=cuda_device)
        self.task = str(archive.config["model"].get("type"))
        if self.task not in TASKS:
            raise ConfigurationError(
                f"{archive_file}: the model is of type {self.task}, expected one of {', '.join(TASKS)}. "
                "Give the archive of a task model of this package."
            )
        keep_only_snapshots(archive.model)
        predictor = Predictor.from_archive(archive, self.task)
        assert isinstance(predictor, TaskPredictor)
        self.name = name
        self._predictor = predictor
        self._limits = limits

    @property
    def example(self) -> str:
        """Valid inputs, as errors show them."""
        return self._predictor.example

    def description(self) -> ModelDescription:
        """Describe the model to clients."""
        first_example, _ = json.JSONDecoder().raw_decode(self.example)
        return ModelDescription(
            name=self.name,
            task=self.task,
            example=first_example,
            finds_predicates=getattr(self._predictor._model, "predicate_finder", None) is not None,
        )

    def answers(self, batch: Sequence[JsonDict]) -> List[Union[JsonDict, Exception]]:
        """
        Return the answer to each input, predicted together, or the error that says why it is too long or
        invalid.
        """
        errors = [self._length_error(inputs) for inputs in batch]
        accepted = [inputs for inputs, error in zip(batch, errors) if error is None]
        answers = iter(self._predictor.answers_or_errors(accepted))
        return [next(answers) if error is None else error for error in errors]

    def _length_error(self, inputs: JsonDict) -> Optional[RequestError]:
        try:
            for key, value in inputs.items():
                check_length(f"'{key}'", value, self._predictor.tokenizer.tokenize, self._limits)
        except RequestError as error:
            return error
        return None
