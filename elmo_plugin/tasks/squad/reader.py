"""Read questions about passages."""

from bisect import bisect_left, bisect_right
from collections import Counter
from os import PathLike
from typing import Any, Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Tuple, Union

from allennlp.data import DatasetReader, Instance
from allennlp.data.fields import Field, IndexField, MetadataField, TextField
from allennlp.data.tokenizers import Tokenizer

from elmo_plugin.errors import ConfigurationError
from elmo_plugin.files.json_input import TEXT, is_text, shown_json
from elmo_plugin.files.text import parse_json
from elmo_plugin.tasks.reading import RuleBasedTokenizer, TaskReader, checked_words, data_file

_SHAPE = (
    'SQuAD 1.1: {"data": [{"paragraphs": [{"context": "...", "qas": [{"id": "...", "question": "...", '
    '"answers": [{"text": "...", "answer_start": 0}]}]}]}]}'
)
_ADVICE = 'Correct the file, or give the reader "skip_invalid": true.'


class Answer(NamedTuple):
    """A part of a passage: its text, and the character of the passage at which it starts."""

    text: str
    start: int


class SquadQuestion(NamedTuple):
    """A valid question about a passage: each answer is at its place in the passage."""

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
    """

    place: str
    passage: Any
    question: Any

    def checked(self, require_answers: bool) -> SquadQuestion:
        """
        Return the question, or raise `ConfigurationError` if it is invalid, or has no answers though they are
        required.
        """
        record = self.question
        if not isinstance(record, dict):
            raise self._error(f"found {shown_json(record)}, expected an object with a question")
        self._check_text("the paragraph's 'context'", self.passage)
        self._check_text("'id'", record.get("id"))
        self._check_text("'question'", record.get("question"))
        answers = record.get("answers") or []
        if not isinstance(answers, list):
            raise self._error(f"'answers' is {shown_json(answers)}, expected a list")
        if not answers and require_answers:
            raise self._error(
                "found no answers, as in SQuAD 2.0, expected at least one to learn from or to measure with "
                '(for questions to predict from, give the reader "require_answers": false)'
            )
        checked_answers = [
            self._checked_answer(answer, f"answers[{index}]")
            for index, answer in enumerate(answers)
        ]
        return SquadQuestion(record["id"], record["question"], self.passage, checked_answers)

    def _checked_answer(self, answer: Any, key: str) -> Answer:
        if not isinstance(answer, dict):
            raise self._error(f"'{key}' is {shown_json(answer)}, expected an object")
        text, start = answer.get("text", ""), answer.get("answer_start")
        self._check_text(f"'{key}.text'", text)
        if type(start) is not int:  # as True and False are
            raise self._error(
                f"'{key}.answer_start' is {shown_json(start)}, expected the number of a character"
            )
        found = self.passage[start : start + len(text)] if start >= 0 else ""
        if found == text:
            return Answer(text, start)
        elsewhere = self.passage.find(text)
        hint = f" (the text is at {elsewhere})" if elsewhere >= 0 else ""
        raise self._error(
            f"'{key}' is {shown_json(text)} with 'answer_start' {start}, where the passage of "
            f"{len(self.passage)} characters has {shown_json(found)}; expected the character, counted from "
            f"0, at which the text starts{hint}"
        )

    def _check_text(self, name: str, value: Any) -> None:
        if not is_text(value):
            raise self._error(f"{name} is {shown_json(value)}, expected {TEXT}")

    def _error(self, found_and_expected: str) -> ConfigurationError:
        return ConfigurationError(f"{self.place}: {found_and_expected}. {_ADVICE}")


def squad_records(file_path: Union[str, PathLike]) -> Iterator[SquadRecord]:
    """
    Yield the questions of a file, in its order. Keys that SQuAD 1.1 does not have are ignored. Raise
    `ConfigurationError` if the file is not JSON, has another structure, or has no question.
    """
    data = data_file(file_path).read_bytes()
    try:
        content = parse_json(data.decode("utf-8-sig"))
    except ValueError as error:
        raise ConfigurationError(
            f"{file_path}: found no JSON in UTF-8 ({error}), expected {_SHAPE}. Give the path of such a "
            "file, or get another copy of it."
        ) from error
    is_empty = True
    for article_place, article in _members(str(file_path), content, "data"):
        for paragraph_place, paragraph in _members(article_place, article, "paragraphs"):
            for place, question in _members(paragraph_place, paragraph, "qas"):
                is_empty = False
                id_ = question.get("id") if isinstance(question, dict) else None
                if isinstance(id_, str):
                    place = f"{place} (id {id_})"
                yield SquadRecord(place, paragraph.get("context"), question)
    if is_empty:
        raise ConfigurationError(
            f"{file_path}: found no question, expected {_SHAPE}. Give the path of a file with data."
        )


def _members(place: str, value: Any, key: str) -> Iterator[Tuple[str, Any]]:
    """Yield the members of the list at a key of a JSON object, with their places."""
    members = value.get(key) if isinstance(value, dict) else None
    if not isinstance(members, list):
        raise ConfigurationError(
            f"{place}: found {shown_json(value)}, expected an object with a list at the key '{key}', as in "
            f"{_SHAPE}. Correct the file."
        )
    for index, member in enumerate(members):
        yield f"{place}, {key}[{index}]", member


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
                    f"The tokenizer {type(tokenizer).__name__} does not give the position of the token "
                    f"'{word}' in the passage, expected a character offset for each token: answers are cut "
                    "from the passage. Use another tokenizer, such as elmo_rule_based."
                )
            end = token.idx + len(word) if token.idx_end is None else token.idx_end
            offsets.append((token.idx, end))
        return cls(text, TextField(tokens[:max_tokens]), offsets[:max_tokens])

    def covering_tokens(self, answer: Answer) -> Optional[Tuple[int, int]]:
        """
        Return the first and the last of the fewest tokens that cover an answer without its white space;
        `None` if there are none.
        """
        start, end = answer.start, answer.start + len(answer.text)
        first = bisect_right([token_end for _, token_end in self.offsets], start)
        last = bisect_left([token_start for token_start, _ in self.offsets], end) - 1
        covered = self.text[self.offsets[last][1] : end] if first <= last else answer.text
        # The remaining text follows the last token that was kept.
        return None if covered.strip() else (first, last)


@DatasetReader.register("elmo_squad")
class SquadReader(TaskReader):
    """
    Reads the JSON files of SQuAD 1.1. Of SQuAD 2.0, only questions with answers can be read, see
    `skip_invalid`. Errors name the question, as in `train.json, data[3], paragraphs[0], qas[2] (id
    5733be284776f41900661182)`.

    Every question is an instance with the fields `question`, `passage`, `span_start` and `span_end` (the
    first and the last token of the first answer) and `metadata` (`id`; `question` and `passage` as in the
    file; `token_offsets`, start and end (exclusive) of each passage token's characters; `answers`, the texts
    of all answers). The span consists of the fewest tokens that cover the answer.

    # Parameters

    tokenizer : `Tokenizer`, optional (default = `RuleBasedTokenizer()`)
        A tokenizer that sets the character offsets of its tokens.
    max_passage_tokens : `int`, optional
        Number of tokens after which passages are cut. Questions whose first answer is not in the remaining
        part are left out and counted. For training: questions that are left out are not measured either, so
        validation needs a `validation_dataset_reader` without it.
    require_answers : `bool`, optional (default = `True`)
        Refuse questions without answers. Set it to `False` for files to predict from: instances then have no
        `span_start` and `span_end`, and answers, if a question has them, are measured but not learned from.

    The other parameters are those of `TaskReader`, whose records are questions here.
    """

    tokenizer: Tokenizer

    def __init__(
        self,
        tokenizer: Optional[Tokenizer] = None,
        max_passage_tokens: Optional[int] = None,
        require_answers: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.tokenizer = tokenizer or RuleBasedTokenizer()
        self._max_passage_tokens = max_passage_tokens
        self._require_answers = require_answers
        self._latest_passage: Optional[TokenizedPassage] = None

    def text_to_instance(
        self,
        question: str,
        passage: Union[str, TokenizedPassage],
        answers: Sequence[Answer] = (),
        question_id: Optional[str] = None,
        tokenizer: Optional[Tokenizer] = None,
        place: str = "The passage",
    ) -> Instance:
        """Make an instance. `tokenizer` replaces the reader's own. Texts are not cut."""
        tokenizer = tokenizer or self.tokenizer
        if isinstance(passage, str):
            passage = TokenizedPassage.from_text(passage, tokenizer)
        question_tokens = tokenizer.tokenize(question)
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
        if answers and self._require_answers:
            tokens = passage.covering_tokens(answers[0])
            if tokens is None:
                raise ConfigurationError(
                    f"{place}: the tokenizer makes no token of the answer '{answers[0].text}', expected at "
                    "least one. Use another tokenizer."
                )
            fields["span_start"], fields["span_end"] = (
                IndexField(index, passage.field) for index in tokens
            )
        return Instance(fields)

    def _records(self, file_path: Union[str, PathLike]) -> Iterator[SquadRecord]:
        return squad_records(file_path)

    def _instances(self, record: SquadRecord, left_out: Counter) -> Iterable[Instance]:
        id_, question, text, answers = record.checked(self._require_answers)
        # Questions about a passage are adjacent, and share its field: indexed characters are most of the
        # memory of instances.
        passage = self._latest_passage
        if passage is None or passage.text != text:
            passage = TokenizedPassage.from_text(text, self.tokenizer, self._max_passage_tokens)
            self._latest_passage = passage
        is_cut = self._max_passage_tokens is not None and self._require_answers
        if is_cut and passage.covering_tokens(answers[0]) is None:
            maximum = f"max_passage_tokens, {self._max_passage_tokens}"
            left_out[f"questions with an answer beyond {maximum}"] += 1
            return
        yield self.text_to_instance(question, passage, answers, id_, place=record.place)
