"""A trained task model, as the server holds it."""

import json
from os import PathLike
from pathlib import Path
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Union

from allennlp.common.util import JsonDict
from allennlp.predictors import Predictor

from elmo_plugin.bilm.model_files import archive_path
from elmo_plugin.compat.archives import opened_archive
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.files.model_card import front_matter
from elmo_plugin.modules.model_mixes import mixes_in
from elmo_plugin.serving.highlights import Span, marked, stacked
from elmo_plugin.serving.limits import TextTooLongError
from elmo_plugin.tasks.predicting import TaskPredictor


class _Task(NamedTuple):
    """
    # Parameters

    title : `str`
        What the model finds.
    highlights : `Callable[[JsonDict, JsonDict], List[str]]`
        HTML of an input and its answer.
    """

    title: str
    highlights: Callable[[JsonDict, JsonDict], List[str]]


class ServedModel:
    """
    A model and its predictor.

    # Parameters

    name : `str`
        Its name in addresses.
    archive_file : `str` or `PathLike`
        An archive, its folder, or the name of a task model of this package.
    max_tokens : `int`
        Tokens that the text of a request may have.
    cuda_device : `int`, optional (default = `-1`)
        Index of the GPU to run on; -1 for the CPU.

    # Raises

    `ConfigurationError` if the archive cannot be loaded, and if its model is not of one of the six tasks.
    """

    def __init__(
        self,
        name: str,
        archive_file: Union[str, PathLike],
        max_tokens: int,
        cuda_device: int = -1,
    ) -> None:
        archive = opened_archive(archive_file, cuda_device=cuda_device)
        self.task = str(archive.config["model"].get("type"))
        if self.task not in _TASKS:
            raise ConfigurationError(
                f"{archive_file}: the model is of type {self.task}, expected one of {', '.join(_TASKS)}. "
                "Give the archive of a task model of this package."
            )
        predictor = Predictor.from_archive(archive, self.task)
        assert isinstance(predictor, TaskPredictor)
        self.name = name
        self._predictor = predictor
        self._max_tokens = max_tokens
        # Of a folder: a model.tar.gz has none.
        self._card = Path(archive_path(archive_file)) / "README.md"

    def description(self) -> JsonDict:
        """Return what clients should know: task, an example, the layers that the model uses, and its card."""
        # The first of those that errors show.
        example, _ = json.JSONDecoder().raw_decode(self._predictor.example)
        model = self._predictor._model
        return {
            "name": self.name,
            "task": self.task,
            "title": _TASKS[self.task].title,
            "example": example,
            # Of semantic roles: other models need the indices of the predicates.
            "finds_predicates": getattr(model, "predicate_finder", None) is not None,
            "mixes": [
                {
                    "place": found.place,
                    "shares": found.mix.normalized_weights.tolist(),
                    "gamma": found.mix.gamma.item(),
                }
                for found in mixes_in(model)
            ],
            "summary": front_matter(self._card).get("summary"),
            "card": self._card.read_text("utf-8") if self._card.exists() else None,
        }

    def answers(self, batch: Sequence[JsonDict]) -> List[Union[JsonDict, Exception]]:
        """
        Return the answer to each input, predicted together, or what is wrong with it: `TextTooLongError` or
        `ConfigurationError`.
        """
        results: List[Any] = [self._length_error(inputs) for inputs in batch]
        short = [inputs for inputs, error in zip(batch, results) if error is None]
        answers = iter(self._predictor.answers_or_errors(short))
        return [next(answers) if error is None else error for error in results]

    def highlights(self, inputs: JsonDict, answer: JsonDict) -> List[str]:
        """Return HTML that marks in the text what was found: a piece for each predicate, none for classes."""
        return _TASKS[self.task].highlights(inputs, answer)

    def _length_error(self, inputs: JsonDict) -> Optional[TextTooLongError]:
        for key, value in inputs.items():
            num_tokens = self._num_tokens(value)
            if num_tokens > self._max_tokens:
                return TextTooLongError(f"'{key}'", num_tokens, self._max_tokens)
        return None

    def _num_tokens(self, value: Any) -> int:
        if isinstance(value, list):
            return sum(self._num_tokens(item) if isinstance(item, list) else 1 for item in value)
        # A token has a character: short texts need no count.
        if isinstance(value, str) and len(value) > self._max_tokens:
            return len(self._predictor.tokenizer.tokenize(value))
        return 0


def _entities(inputs: JsonDict, answer: JsonDict) -> List[str]:
    spans = [Span(span["start"], span["end"], span["label"]) for span in answer["spans"]]
    return [marked(answer["words"], spans, answer.get("sentence"))]


def _roles(inputs: JsonDict, answer: JsonDict) -> List[str]:
    return [
        marked(
            answer["words"],
            [Span(role["start"], role["end"], role["role"]) for role in predicate["arguments"]],
            answer.get("sentence"),
        )
        for predicate in answer["predicates"]
    ]


def _mentions(inputs: JsonDict, answer: JsonDict) -> List[str]:
    spans = [
        Span(mention["start"], mention["end"], str(mention["cluster"]))
        for mention in answer["mentions"]
    ]
    return [stacked(answer["words"], spans, answer.get("document"))]


def _answer_in_passage(inputs: JsonDict, answer: JsonDict) -> List[str]:
    span = Span(answer["start"], answer["end"], "answer")
    return [marked(answer["passage_words"], [span], inputs["passage"])]


def _nothing(inputs: JsonDict, answer: JsonDict) -> List[str]:
    return []


_TASKS: Dict[str, _Task] = {
    "elmo_ner": _Task("Named entities", _entities),
    "elmo_srl": _Task("Semantic roles", _roles),
    "elmo_coref": _Task("Coreference", _mentions),
    "elmo_squad": _Task("Question answering", _answer_in_passage),
    "elmo_snli": _Task("Entailment", _nothing),
    "elmo_sst": _Task("Sentiment", _nothing),
}
