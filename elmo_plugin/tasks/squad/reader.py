"""Read questions about passages."""

import logging
from bisect import bisect_left, bisect_right
from collections import Counter
from os import PathLike
from typing import Any, Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Tuple, Union

from allennlp.data import DatasetReader, Instance
from allennlp.data.fields import Field, IndexField, MetadataField, TextField
from allennlp.data.tokenizers import Token, Tokenizer

from elmo_plugin.errors import ConfigurationError
from elmo_plugin.files.json_input import TEXT, is_text, shown_json
from elmo_plugin.files.text import parse_json
from elmo_plugin.tasks.checks import check_positive
from elmo_plugin.tasks.reading import RuleBasedTokenizer, TaskReader, checked_words, data_file

logger = logging.getLogger(__name__)

_SHAPE = (
    'SQuAD 1.1: {"data": [{"paragraphs": [{"context": "...", "qas": [{"id": "...", "question": "...", '
    '"answers": [{"text": "...", "answer_start": 0}]}]}]}]}'
)
_ADVICE = 'Correct the file, or give the reader "skip_invalid": true.'


class Answer(NamedTuple):
    """A part of a passage: its text, and the character of the passage at which it starts."""

    text: str
    start: int

    @property
    def characters(self) -> Tuple[int, int]:
        """Return start and end (exclusive) of the answer's characters."""
        return self.start, self.start + len(self.text)


class SquadQuestion(NamedTuple):
    """A valid question about a passage: each answer is at its place in the passage."""

    place: str
    id: str
    question: str
    passage: str
    answers: List[Answer]


class SquadRecord(NamedTuple):
    """
    The content of a question in a file, not yet validated.

    # Parameters

    place : `str`
        File, position in the file, and id if there is one, for errors.
    passage : `Any`
        `context` of the paragraph.
    question : `Any`
        The member of `qas`.
    fault : `str`, optional
        The fault of a value that contains no questions because it has the wrong form.
    """

    place: str
    passage: Any = None
    question: Any = None
    fault: Optional[str] = None

    def checked(self, require_answers: bool) -> SquadQuestion:
        """
        Return the question, or raise `ConfigurationError` if it is invalid, or has no answers though they are
        required.
        """
        if self.fault is not None:
            raise self._error(self.fault)
        record = self.question
        if not isinstance(record, dict):
            raise self._error(f"found {shown_json(record)}, expected an object with a question")
        self._check_text("the paragraph's 'context'", self.passage)
        self._check_text("'id'", record.get("id"))
        self._check_text("'question'", record.get("question"))
        if record.get("is_impossible"):
            raise self._error(
                "found 'is_impossible': true, as in SQuAD 2.0, expected a question that the passage answers"
            )
        answers = [] if record.get("answers") is None else record["answers"]
        if not isinstance(answers, list):
            raise self._error(f"'answers' is {shown_json(answers)}, expected a list")
        if not answers and require_answers:
            raise self._error(
                "found no answers, expected at least one to learn from or to measure with (for questions "
                'to predict from, give the reader "require_answers": false)'
            )
        checked_answers = [
            self._checked_answer(answer, f"answers[{index}]")
            for index, answer in enumerate(answers)
        ]
        return SquadQuestion(
            self.place, record["id"], record["question"], self.passage, checked_answers
        )

    def _checked_answer(self, answer: Any, key: str) -> Answer:
        if not isinstance(answer, dict):
            raise self._error(f"'{key}' is {shown_json(answer)}, expected an object")
        text, start = answer.get("text"), answer.get("answer_start")
        text = self._check_text(f"'{key}.text'", text)
        if type(start) is not int:  # as True and False are
            raise self._error(
                f"'{key}.answer_start' is {shown_json(start)}, expected the number of a character"
            )
        found = self.passage[start : start + len(text)] if start >= 0 else ""
        if found == text:
            return Answer(text, start)
        if 0 <= start < len(self.passage):
            wrong = f"where the passage has {shown_json(found)}"
        else:
            wrong = f"outside of the passage of {len(self.passage)} characters"
        elsewhere = self.passage.find(text)
        hint = f" (the text is at {elsewhere})" if elsewhere >= 0 else ""
        raise self._error(
            f"'{key}' is {shown_json(text)} with 'answer_start' {start}, {wrong}; expected the character of "
            f"the passage, counted from 0, at which the text starts{hint}"
        )

    def _check_text(self, name: str, value: Any) -> str:
        if not is_text(value):
            raise self._error(f"{name} is {shown_json(value)}, expected {TEXT}")
        return value

    def _error(self, found_and_expected: str) -> ConfigurationError:
        return ConfigurationError(f"{self.place}: {found_and_expected}. {_ADVICE}")


def squad_records(file_path: Union[str, PathLike]) -> Iterator[SquadRecord]:
    """
    Yield the questions of a file, in its order. Keys that SQuAD 1.1 does not have are ignored. Raise
    `ConfigurationError` if the file is not JSON, has another structure, or has no question.
    """
    places: Dict[str, str] = {}  # of the ids, without the file
    is_empty = True
    for index, article in enumerate(_data_of(file_path)):
        for record in _walk(f"data[{index}]", article, ["paragraphs", "qas"]):
            is_empty = False
            place, fault = record.place, record.fault
            id_ = record.question.get("id") if isinstance(record.question, dict) else None
            if isinstance(id_, str):
                if places.setdefault(id_, place) != place:
                    fault = f"found the id of {places[id_]} again, expected a unique id"
                place = f"{place} (id {id_})"
            yield record._replace(place=f"{file_path}: {place}", fault=fault)
    if is_empty:
        raise ConfigurationError(
            f"{file_path}: found no question, expected {_SHAPE}. Give the path of a file with data."
        )


def _data_of(file_path: Union[str, PathLike]) -> list:
    content = data_file(file_path).read_bytes()
    try:
        parsed = parse_json(content.decode("utf-8-sig"))
    except ValueError as error:
        raise ConfigurationError(
            f"{file_path}: found no JSON in UTF-8 ({error}), expected {_SHAPE}. Give the path of such a "
            "file, or get another copy of it."
        ) from error
    if not isinstance(parsed, dict) or not isinstance(parsed.get("data"), list):
        fault = _no_list_at("data", parsed)
        raise ConfigurationError(f"{file_path}: {fault}. Give the path of such a file.")
    return parsed["data"]


def _walk(place: str, value: Any, keys: List[str]) -> Iterator[SquadRecord]:
    """Yield the records below a JSON value, in nested lists at these keys."""
    key, *further_keys = keys
    items = value.get(key) if isinstance(value, dict) else None
    if not isinstance(items, list):
        yield SquadRecord(place, fault=_no_list_at(key, value))
        return
    for index, item in enumerate(items):
        item_place = f"{place}.{key}[{index}]"
        if further_keys:
            yield from _walk(item_place, item, further_keys)
        else:
            yield SquadRecord(item_place, value.get("context"), item)


def _no_list_at(key: str, found: Any) -> str:
    if isinstance(found, dict) and key in found:
        shown = f"'{key}' is {shown_json(found[key])}"
    elif isinstance(found, dict):
        shown = f"found the keys {shown_json(list(found))}"
    else:
        shown = f"found {shown_json(found)}"
    return f"{shown}, expected a list at the key '{key}', as in {_SHAPE}"


class TokenizedPassage(NamedTuple):
    """
    A text, the field of its tokens, which all questions about it share, and start and end (exclusive) of each
    token's characters in the text.
    """

    text: str
    field: TextField
    offsets: List[Tuple[int, int]]

    @classmethod
    def from_text(
        cls, text: str, tokenizer: Tokenizer, max_tokens: Optional[int] = None
    ) -> "TokenizedPassage":
        """
        Tokenize a text. The tokenizer must set character offsets. Tokens beyond `max_tokens` are dropped.
        """
        tokens = tokenizer.tokenize(text)
        offsets = []
        for token, word in zip(tokens, checked_words(tokens, "passage")):
            if token.idx is None:
                raise ConfigurationError(
                    f"The tokenizer {type(tokenizer).__name__} does not say where in the passage the token "
                    f"'{word}' stands, expected a character offset for each token: answers are cut "
                    "from the passage. Use another tokenizer, such as elmo_rule_based."
                )
            end = token.idx + len(word) if token.idx_end is None else token.idx_end
            offsets.append((token.idx, end))
        return cls(text, TextField(tokens[:max_tokens]), offsets[:max_tokens])

    def covering_tokens(self, start: int, end: int) -> Optional[Tuple[int, int]]:
        """
        Return the first and the last of the fewest tokens that cover the characters `start` to `end`
        (exclusive) without their white space; `None` if there are none.
        """
        first = bisect_right([token_end for _, token_end in self.offsets], start)
        last = bisect_left([token_start for token_start, _ in self.offsets], end) - 1
        covered = self.text[self.offsets[last][1] : end] if first <= last else self.text[start:end]
        # The remaining text follows the last token that was kept.
        return None if covered.strip() else (first, last)

    def characters_of(self, first: int, last: int) -> Tuple[int, int]:
        """Return start and end (exclusive) of the characters of a span of tokens."""
        return self.offsets[first][0], self.offsets[last][1]


@DatasetReader.register("elmo_squad")
class SquadReader(TaskReader):
    """
    Reads the JSON files of SQuAD 1.1. Of SQuAD 2.0, only questions with answers can be read, see
    `skip_invalid`. Errors name the question, as in `train.json: data[3].paragraphs[0].qas[2] (id
    5733be284776f41900661182)`.

    Every question is an instance with the fields `question`, `passage`, `span_start` and `span_end` (the
    first and the last token of the first answer) and `metadata` (`id`; `question` and `passage` as in the
    file; `token_offsets`, start and end (exclusive) of each passage token's characters; `answers`, the texts
    of all answers; `answer_is_whole_tokens`, whether the first answer starts and ends at token boundaries).

    The span consists of the fewest tokens that cover the answer. The number of answers that are not whole
    tokens is logged.

    # Parameters

    tokenizer : `Tokenizer`, optional (default = `RuleBasedTokenizer()`)
        A tokenizer that sets the character offsets of its tokens.
    max_passage_tokens : `int`, optional
        Number of tokens after which passages are cut. Questions whose first answer is not in the remaining
        part are left out and counted. For training: questions that are left out are not measured either, so
        validation needs a `validation_dataset_reader` without it.
    max_question_tokens : `int`, optional
        Number of tokens after which questions are cut.
    require_answers : `bool`, optional (default = `True`)
        Refuse questions without answers. Set it to `False` for files to predict from: instances then have no
        `span_start` and `span_end`, and answers, if a question has them, are measured but not learned from.
        Questions that are marked as impossible are always refused.

    The other parameters are those of `TaskReader`, whose records are questions here.
    """

    tokenizer: Tokenizer

    def __init__(
        self,
        tokenizer: Optional[Tokenizer] = None,
        max_passage_tokens: Optional[int] = None,
        max_question_tokens: Optional[int] = None,
        require_answers: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_positive(
            max_passage_tokens=max_passage_tokens, max_question_tokens=max_question_tokens
        )
        self.tokenizer = tokenizer or RuleBasedTokenizer()
        self._max_passage_tokens = max_passage_tokens
        self._max_question_tokens = max_question_tokens
        self._require_answers = require_answers
        self._latest_passage: Optional[TokenizedPassage] = None

    def text_to_instance(
        self,
        question: str,
        passage: str,
        answers: Optional[Sequence[Answer]] = None,
        question_id: Optional[str] = None,
        tokenizer: Optional[Tokenizer] = None,
    ) -> Instance:
        """
        Make an instance. `tokenizer` replaces the reader's own. Nothing is cut: the reader's limits are for
        files.
        """
        tokenizer = tokenizer or self.tokenizer
        tokens = tokenizer.tokenize(question)
        tokenized = TokenizedPassage.from_text(passage, tokenizer)
        answer_tokens = None
        if answers:
            answer_tokens = tokenized.covering_tokens(*answers[0].characters)
            if answer_tokens is None:
                raise _no_tokens("The passage", answers[0])
        return _instance(question, tokens, tokenized, answers or (), answer_tokens, question_id)

    def _read_file(self, file_path: Union[str, PathLike]) -> Iterable[Instance]:
        num_answers, num_in_tokens = 0, 0
        for instance in super()._read_file(file_path):
            if "span_start" in instance:
                num_answers += 1
                num_in_tokens += not instance["metadata"]["answer_is_whole_tokens"]
            yield instance
        logger.info(
            "%s: %d of %d answers start or end inside a token",
            *(file_path, num_in_tokens, num_answers),
        )

    def _records(self, file_path: Union[str, PathLike]) -> Iterator[SquadRecord]:
        return squad_records(file_path)

    def _instances(self, record: SquadRecord, left_out: Counter) -> Iterable[Instance]:
        place, id_, question, text, answers = record.checked(self._require_answers)
        # Questions about a passage are adjacent, and share its field: indexed characters are most of the
        # memory of instances.
        passage = self._latest_passage
        if passage is None or passage.text != text:
            passage = TokenizedPassage.from_text(text, self.tokenizer, self._max_passage_tokens)
            self._latest_passage = passage
        answer_tokens = None
        if self._require_answers:
            answer_tokens = passage.covering_tokens(*answers[0].characters)
            if answer_tokens is None and self._max_passage_tokens is None:
                raise _no_tokens(place, answers[0])
            if answer_tokens is None:
                maximum = f"max_passage_tokens, {self._max_passage_tokens}"
                left_out[f"questions with an answer beyond {maximum}"] += 1
                return
        question_tokens = self.tokenizer.tokenize(question)[: self._max_question_tokens]
        yield _instance(question, question_tokens, passage, answers, answer_tokens, id_)


def _instance(
    question: str,
    question_tokens: List[Token],
    passage: TokenizedPassage,
    answers: Sequence[Answer],
    answer_tokens: Optional[Tuple[int, int]],
    question_id: Optional[str],
) -> Instance:
    checked_words(question_tokens, "question")
    metadata: Dict[str, Any] = {
        "id": question_id,
        "question": question,
        "passage": passage.text,
        "token_offsets": passage.offsets,
        "answers": [answer.text for answer in answers],
    }
    fields: Dict[str, Field] = {
        "question": TextField(question_tokens),
        "passage": passage.field,
        "metadata": MetadataField(metadata),
    }
    if answer_tokens is not None:
        first, last = answer_tokens
        fields["span_start"] = IndexField(first, passage.field)
        fields["span_end"] = IndexField(last, passage.field)
        is_whole = passage.characters_of(first, last) == answers[0].characters
        metadata["answer_is_whole_tokens"] = is_whole
    return Instance(fields)


def _no_tokens(place: str, answer: Answer) -> ConfigurationError:
    return ConfigurationError(
        f"{place}: the tokenizer makes no token of the answer '{answer.text}', expected at least one. Use "
        "another tokenizer."
    )
