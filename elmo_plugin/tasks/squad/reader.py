"""Read questions about passages, from files and from JSON."""

import zlib
from bisect import bisect_left, bisect_right
from collections import Counter
from typing import (
    Annotated,
    Any,
    Dict,
    Iterable,
    Iterator,
    List,
    NamedTuple,
    Optional,
    Sequence,
    Tuple,
    Union,
)

import torch
from allennlp.common.util import JsonDict
from allennlp.data import DatasetReader, Instance
from allennlp.data.fields import Field, MetadataField, TensorField, TextField
from allennlp.data.tokenizers import Tokenizer
from allennlp.predictors import Predictor
from pydantic import BaseModel, BeforeValidator, StrictInt, StringConstraints, ValidationError

from elmo_plugin.bilm.model_files import local_path
from elmo_plugin.errors import ConfigurationError, advising, check_positive
from elmo_plugin.files.json_input import get_text, shown_json
from elmo_plugin.files.text import FileName, open_text, parse_json, unreadable
from elmo_plugin.tasks.predicting import TaskPredictor
from elmo_plugin.tasks.reading import TaskReader, character_offsets, checked_words

_SHAPE = (
    'SQuAD 1.1: {"data": [{"paragraphs": [{"context": "...", "qas": [{"id": "...", "question": "...", '
    '"answers": [{"text": "...", "answer_start": 0}]}]}]}]}'
)
_ADVICE = 'Correct the file, or give the reader "skip_invalid": true.'

# Not only white space, and valid Unicode, as all of pydantic's texts.
Text = Annotated[str, StringConstraints(pattern=r"\S")]


class Answer(BaseModel):
    """A part of a passage: its text, and the character of the passage at which it starts."""

    text: Text
    answer_start: StrictInt


class SquadQuestion(BaseModel):
    """A question in a file. Keys that SQuAD 1.1 does not have are ignored."""

    id: Annotated[Text, BeforeValidator(lambda id_: str(id_) if isinstance(id_, int) else id_)]
    question: Text
    answers: List[Answer] = []


class _Paragraph(BaseModel):
    context: Text
    qas: List[Any]  # validated one by one: an invalid question does not prevent reading the others


class _Article(BaseModel):
    paragraphs: List[_Paragraph]


class _File(BaseModel):
    data: List[_Article]


class SquadRecord(NamedTuple):
    """A question in a file, not yet validated."""

    article: str  # its file and position
    passage: str
    question: Any  # the member of `qas`

    def checked(self) -> SquadQuestion:
        """Return the question. Raise `ConfigurationError` if an answer is not at its place in the passage."""
        try:
            question = SquadQuestion.model_validate(self.question)
        except ValidationError as error:
            raise ConfigurationError(f"{_fault(error)}, expected a question of {_SHAPE}") from error
        for index, answer in enumerate(question.answers):
            start = answer.answer_start
            found = self.passage[start : start + len(answer.text)] if start >= 0 else ""
            if found != answer.text:
                elsewhere = self.passage.find(answer.text)
                hint = f" (the text is at {elsewhere})" if elsewhere >= 0 else ""
                raise ConfigurationError(
                    f"'answers[{index}]' is {shown_json(answer.text)} with 'answer_start' {start}, where the "
                    f"passage of {len(self.passage)} characters has {shown_json(found)}; expected the "
                    f"character, counted from 0, at which the text starts{hint}"
                )
        return question


def _fault(error: ValidationError) -> str:
    """Return the first problem: what was found where, and why it is wrong."""
    problem = error.errors()[0]
    place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in problem["loc"])
    is_missing = problem["type"] == "missing"
    found = "missing" if is_missing else f"{shown_json(problem['input'])} ({problem['msg']})"
    return f"'{place.lstrip('.')}' is {found}" if place else f"found {found}"


class TokenizedPassage(NamedTuple):
    """
    A text, the field of its tokens, which all questions about it share, and start and end (exclusive) of each
    token's characters in the text, also of tokens that the field lacks because it was cut.
    """

    text: str
    field: TextField
    offsets: List[Tuple[int, int]]

    @classmethod
    def from_text(
        cls, text: str, tokenizer: Tokenizer, max_tokens: Optional[int] = None
    ) -> "TokenizedPassage":
        """
        Tokenize a text. The tokenizer must set character offsets. The field is cut after `max_tokens` tokens.
        """
        tokens = tokenizer.tokenize(text)
        checked_words(tokens, "passage")
        offsets = character_offsets(tokens)
        if offsets is None:
            raise ConfigurationError(
                f"The tokenizer {type(tokenizer).__name__} does not give the position of each token in the "
                "passage, expected character offsets: answers are cut from the passage. Use another "
                "tokenizer, such as elmo_rule_based."
            )
        return cls(text, TextField(tokens[:max_tokens]), offsets)

    def covering_tokens(self, answer: Answer) -> Optional[Tuple[int, int]]:
        """
        Return the first and the last of the fewest tokens that cover an answer, without what the tokenizer
        leaves out, such as white space; `None` if there are none, or if the field lacks one of them.
        """
        start, end = answer.answer_start, answer.answer_start + len(answer.text)
        first = bisect_right([token_end for _, token_end in self.offsets], start)
        last = bisect_left([token_start for token_start, _ in self.offsets], end) - 1
        is_in_field = first <= last < self.field.sequence_length()
        return (first, last) if is_in_field else None

    def answer_spans(self, answers: Sequence[Answer]) -> List[Tuple[int, int]]:
        """Return the `covering_tokens` of answers, of those that have some, each once."""
        spans = dict.fromkeys(map(self.covering_tokens, answers))
        return [span for span in spans if span is not None]


@DatasetReader.register("elmo_squad")
class SquadReader(TaskReader):
    """
    Reads the JSON files of SQuAD 1.1. Of SQuAD 2.0, only questions with answers can be read, see
    `skip_invalid`. Errors name the question, as in `train.json, data[3], paragraphs[0], qas[2] (id
    5733be284776f41900661182)`.

    Every question is an instance with the fields `question`, `passage`, `answer_spans` `(num_answers, 2)`
    (the first and the last of the fewest tokens that cover an answer, of answers at different places; those
    of which the tokenizer makes no token are left out, unless all are, which is an error) and
    `metadata` (`id`; `question` and `passage` as in the file; `token_offsets`, start and end (exclusive) of
    the characters of each token of the whole passage; `answers`, the texts of all answers; `article`, its
    position in the file).

    # Parameters

    max_passage_tokens : `int`, optional
        Number of tokens after which passages are cut. Questions without an answer in the remaining part are
        left out and counted. For training: questions that are left out are not measured either, so
        validation needs a `validation_dataset_reader` without it.

    The other parameters are those of `TaskReader`, whose records are questions here. The tokenizer must give
    the character offsets of its tokens.
    """

    def __init__(self, max_passage_tokens: Optional[int] = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        check_positive("max_passage_tokens", max_passage_tokens)
        self._max_passage_tokens = max_passage_tokens
        self._latest_passage: Optional[TokenizedPassage] = None

    def text_to_instance(
        self,
        question: str,
        passage: Union[str, TokenizedPassage],
        answers: Sequence[Answer] = (),
        question_id: Optional[str] = None,
        tokenizer: Optional[Tokenizer] = None,
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
        if answers:
            spans = passage.answer_spans(answers)
            if not spans:
                raise ConfigurationError(
                    f"the tokenizer makes no token of the answer '{answers[0].text}', expected at "
                    "least one. Use another tokenizer."
                )
            fields["answer_spans"] = TensorField(torch.tensor(spans), padding_value=-1)
        return Instance(fields)

    def _records(self, file_path: FileName) -> Iterator[Tuple[str, SquadRecord]]:
        """
        Yield the questions of a file with their places: position in the file, and id if there is one. Raise
        `ConfigurationError` if it has another structure.
        """
        with open_text(local_path("data file", file_path), str(file_path)) as file:
            try:
                data = file.read()
            except (OSError, EOFError, zlib.error) as error:  # a damaged .gz
                raise unreadable(file_path, error) from error
        try:
            content = _File.model_validate(parse_json(data.decode("utf-8-sig")))
        except ValueError as error:
            found = f"found no JSON in UTF-8 ({error})"
            if isinstance(error, ValidationError):
                found = _fault(error)
            raise ConfigurationError(
                f"{file_path}: {found}, expected {_SHAPE}. Correct the file, or give the path of such a file."
            ) from error
        for article_number, article in enumerate(content.data):
            article_place = f"{file_path}, data[{article_number}]"
            for paragraph_number, paragraph in enumerate(article.paragraphs):
                for number, question in enumerate(paragraph.qas):
                    id_ = question.get("id") if isinstance(question, dict) else None
                    name = f" (id {id_})" if isinstance(id_, (str, int)) else ""
                    position = f"paragraphs[{paragraph_number}], qas[{number}]{name}"
                    record = SquadRecord(article_place, paragraph.context, question)
                    yield f"{article_place}, {position}", record

    def _instances(self, record: SquadRecord, counts: Counter) -> Iterable[Instance]:
        text = record.passage
        with advising(_ADVICE):
            question = record.checked()
            if not question.answers:
                raise ConfigurationError(
                    "found no answers, as in SQuAD 2.0, expected at least one to learn from or to "
                    "measure with"
                )
        # Questions about a passage are adjacent, and share its field: indexed characters are most of the
        # memory of instances.
        passage = self._latest_passage
        if passage is None or passage.text != text:
            passage = TokenizedPassage.from_text(text, self.tokenizer, self._max_passage_tokens)
            self._latest_passage = passage
        is_cut = self._max_passage_tokens is not None
        if is_cut and not passage.answer_spans(question.answers):
            maximum = f"max_passage_tokens, {self._max_passage_tokens}"
            counts[f"questions with all answers beyond {maximum} left out"] += 1
            return
        instance = self.text_to_instance(question.question, passage, question.answers, question.id)
        instance["metadata"].metadata["article"] = record.article
        yield instance


@Predictor.register("elmo_squad")
class SquadPredictor(TaskPredictor):
    """
    Predicts from `{"passage": "It rained in Paris.", "question": "Where did it rain?"}`. The output has

    - `question` as given, and `id` for a question of a file that has them;
    - `best_span_text`, the answer: an exact part of the passage;
    - `start_char` and `end_char`, its characters in the passage, `end_char` exclusive;
    - `start` and `end`, its tokens, `end` exclusive, and `passage_words`, the tokens of the passage;
    - `probability`, the probability of its start times that of its end, each over all tokens of the passage.
    """

    example = '{"passage": "It rained in Paris.", "question": "Where did it rain?"}'

    def predict(self, question: str, passage: str) -> JsonDict:
        """Return the answer to a question."""
        return self.predict_json({"question": question, "passage": passage})

    def instances_from_json(self, inputs: JsonDict) -> List[Instance]:
        passage, question = (get_text(inputs, key, self.example) for key in ("passage", "question"))
        return [self._dataset_reader.text_to_instance(question, passage, tokenizer=self.tokenizer)]

    def readable_output(self, instances: List[Instance], outputs: List[JsonDict]) -> JsonDict:
        [instance], [output] = instances, outputs
        metadata = instance["metadata"].metadata
        first, last = output["best_span"]
        return {
            **({} if metadata["id"] is None else {"id": metadata["id"]}),
            "question": metadata["question"],
            "best_span_text": output["best_span_text"],
            "start_char": metadata["token_offsets"][first][0],
            "end_char": metadata["token_offsets"][last][1],
            "start": first,
            "end": last + 1,
            "probability": output["span_probability"],
            "passage_words": [token.text for token in instance["passage"]],
        }
