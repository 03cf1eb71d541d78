"""The questions in a file of SQuAD 1.1."""

import json
from os import PathLike
from typing import Any, Dict, Iterator, NamedTuple, Optional, Tuple, Union

from allennlp.common.checks import ConfigurationError

from elmo_plugin.tasks.data_files import data_file

_SHAPE = (
    'SQuAD 1.1: {"data": [{"paragraphs": [{"context": "...", "qas": [{"id": "...", "question": "...", '
    '"answers": [{"text": "...", "answer_start": 0}]}]}]}]}'
)
_ADVICE = 'Correct the file, or give the reader "skip_invalid": true.'
_TEXT = "a text that is not empty (nor half of a surrogate pair)"
_MAX_SHOWN = 80  # characters of a wrong value that an error repeats


class Answer(NamedTuple):
    """A part of a passage: its text, and the character of the passage at which it starts."""

    text: str
    start: int

    @property
    def end(self) -> int:
        """The character after the last."""
        return self.start + len(self.text)


class SquadQuestion(NamedTuple):
    """A question about a passage, checked: each answer stands in the passage where it says."""

    place: str
    id: str
    question: str
    passage: str
    answers: Tuple[Answer, ...]


class SquadRecord(NamedTuple):
    """
    What stands in a file at the place of a question, not judged yet.

    # Parameters

    place : `str`
        File, position in it, and id if there is one, as errors name it.
    passage : `Any`
        `context` of the paragraph.
    question : `Any`
        The member of `qas`.
    fault : `str`, optional
        Why there is no question at all: something around it has the wrong form.
    """

    place: str
    passage: Any = None
    question: Any = None
    fault: Optional[str] = None

    def checked(self, require_answers: bool) -> SquadQuestion:
        """
        # Parameters

        require_answers : `bool`
            Whether a question without answers is bad.

        # Raises

        `ConfigurationError`, naming the place, for what is bad about the question.
        """
        if self.fault is not None:
            raise self._error(self.fault)
        if not isinstance(self.question, dict):
            raise self._error(f"found {_shown(self.question)}, expected an object with a question")
        if not _is_text(self.passage):
            raise self._error(
                f"the paragraph's 'context' is {_shown(self.passage)}, expected {_TEXT}"
            )
        for key in ("id", "question"):
            if not _is_text(self.question.get(key)):
                raise self._error(f"'{key}' is {_shown(self.question.get(key))}, expected {_TEXT}")
        if self.question.get("is_impossible"):
            raise self._error(
                "found 'is_impossible': true, as in SQuAD 2.0, expected a question that the passage answers"
            )
        answers = self.question.get("answers")
        if answers is None:
            answers = []
        if not isinstance(answers, list):
            raise self._error(f"'answers' is {_shown(answers)}, expected a list")
        if not answers and require_answers:
            raise self._error(
                "found no answers, expected at least one to learn from or to measure with (for questions "
                'to predict from, give the reader "require_answers": false)'
            )
        checked_answers = tuple(
            self._checked_answer(answer, f"answers[{index}]")
            for index, answer in enumerate(answers)
        )
        return SquadQuestion(
            self.place,
            self.question["id"],
            self.question["question"],
            self.passage,
            checked_answers,
        )

    def _checked_answer(self, answer: Any, key: str) -> Answer:
        if not isinstance(answer, dict):
            raise self._error(f"'{key}' is {_shown(answer)}, expected an object")
        text, start = answer.get("text"), answer.get("answer_start")
        if not isinstance(text, str) or not _is_text(text):
            raise self._error(f"'{key}.text' is {_shown(text)}, expected {_TEXT}")
        if not isinstance(start, int) or isinstance(start, bool):
            raise self._error(
                f"'{key}.answer_start' is {_shown(start)}, expected the number of a character"
            )
        found = self.passage[start : start + len(text)] if start >= 0 else ""
        if found == text:
            return Answer(text, start)
        if 0 <= start < len(self.passage):
            wrong = f"where {_shown(found)} stands"
        else:
            wrong = f"outside of the passage of {len(self.passage)} characters"
        elsewhere = self.passage.find(text)
        hint = f" (the text stands at {elsewhere})" if elsewhere >= 0 else ""
        raise self._error(
            f"'{key}' is {_shown(text)} with 'answer_start' {start}, {wrong}; expected the character of the "
            f"passage, counted from 0, at which the text starts{hint}"
        )

    def _error(self, found_and_expected: str) -> ConfigurationError:
        return ConfigurationError(f"{self.place}: {found_and_expected}. {_ADVICE}")


def squad_records(file_path: Union[str, PathLike]) -> Iterator[SquadRecord]:
    """
    Walk over data, paragraphs and questions of a file, in its order. Keys that SQuAD 1.1 does not have may
    stand anywhere.

    # Raises

    `ConfigurationError` if there is no such file, if it is not UTF-8, no JSON (line and column are named), or
    JSON of another kind, or if there is no question in it.
    """
    places: Dict[str, str] = {}  # of the ids
    is_empty = True
    for record in _walk(file_path, _data_of(file_path)):
        is_empty = False
        id_ = record.question.get("id") if isinstance(record.question, dict) else None
        if isinstance(id_, str):
            # Without the file, which is the same.
            short_place = record.place.removeprefix(f"{file_path}: ")
            record = record._replace(place=f"{record.place} (id {id_})")
            if places.setdefault(id_, short_place) != short_place:
                record = record._replace(
                    fault=f"found the id of {places[id_]} again, expected an id of its own"
                )
        yield record
    if is_empty:
        raise ConfigurationError(
            f"{file_path}: found no question, expected {_SHAPE}. Give the path of a file with data."
        )


def _data_of(file_path: Union[str, PathLike]) -> list:
    content = data_file(file_path).read_bytes()
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line_number = content.count(b"\n", 0, error.start) + 1
        raise ConfigurationError(
            f"{file_path}, line {line_number}: found the bytes {content[error.start : error.end]!r}, "
            "expected UTF-8. Convert the file, for instance with iconv; if it is compressed, unpack it."
        ) from error
    try:
        parsed = json.loads(text)
    except json.JSONDecodeError as error:
        found = "lines of JSON" if error.msg == "Extra data" else "no JSON"
        raise ConfigurationError(
            f"{file_path}, line {error.lineno}, column {error.colno}: found {found} ({error.msg}), expected "
            f"{_SHAPE}. Give the path of such a file, or get another copy of it."
        ) from error
    except RecursionError as error:
        raise ConfigurationError(
            f"{file_path}: found JSON nested too deeply to be read, expected {_SHAPE}. Give the path of such "
            "a file."
        ) from error
    if not isinstance(parsed, dict) or not isinstance(parsed.get("data"), list):
        found = f"the keys {_shown(list(parsed))}" if isinstance(parsed, dict) else _shown(parsed)
        raise ConfigurationError(
            f"{file_path}: found {found}, expected a list at the key 'data', as in {_SHAPE}. Give the path "
            "of such a file."
        )
    return parsed["data"]


def _walk(file_path: Union[str, PathLike], data: list) -> Iterator[SquadRecord]:
    for article_index, article in enumerate(data):
        article_place = f"{file_path}: data[{article_index}]"
        paragraphs = article.get("paragraphs") if isinstance(article, dict) else None
        if not isinstance(paragraphs, list):
            yield _misshapen(article_place, article, "paragraphs")
            continue
        for paragraph_index, paragraph in enumerate(paragraphs):
            paragraph_place = f"{article_place}.paragraphs[{paragraph_index}]"
            questions = paragraph.get("qas") if isinstance(paragraph, dict) else None
            if not isinstance(questions, list):
                yield _misshapen(paragraph_place, paragraph, "qas")
                continue
            for question_index, question in enumerate(questions):
                place = f"{paragraph_place}.qas[{question_index}]"
                yield SquadRecord(place, paragraph.get("context"), question)


def _misshapen(place: str, found: Any, key: str) -> SquadRecord:
    if isinstance(found, dict) and key in found:
        shown = f"'{key}' is {_shown(found[key])}"
    elif isinstance(found, dict):
        shown = f"found the keys {_shown(list(found))}"
    else:
        shown = f"found {_shown(found)}"
    return SquadRecord(place, fault=f"{shown}, expected a list at the key '{key}', as in {_SHAPE}")


def _is_text(value: Any) -> bool:
    if not isinstance(value, str) or not value.strip():
        return False
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _shown(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= _MAX_SHOWN else text[:_MAX_SHOWN] + "..."
