"""Reads questions about passages."""

import logging
from collections import Counter
from os import PathLike
from typing import Any, Dict, Iterable, Iterator, List, Optional, Sequence, Union

from allennlp.common.checks import ConfigurationError
from allennlp.data import DatasetReader, Instance
from allennlp.data.fields import Field, IndexField, MetadataField, TextField
from allennlp.data.token_indexers import TokenIndexer
from allennlp.data.tokenizers import Token, Tokenizer

from elmo_plugin.tasks.rule_based_tokenizer import RuleBasedTokenizer
from elmo_plugin.tasks.squad.squad_file import Answer, SquadRecord, squad_records
from elmo_plugin.tasks.squad.tokenized_passage import TokenizedPassage
from elmo_plugin.tasks.task_reader import TaskReader

logger = logging.getLogger(__name__)


@DatasetReader.register("elmo_squad")
class SquadReader(TaskReader):
    """
    Reads the JSON files of SQuAD 1.1. Files of SQuAD 2.0 can be read as far as their questions have answers,
    see `skip_invalid`.

    Every question is an instance with its passage, with the fields `question`, `passage`, `span_start` and
    `span_end` (the first and the last token of the first answer) and `metadata` (`id`; `question` and
    `passage` as they are in the file; `token_offsets`, of each passage token its first character in the
    passage and the one after its last; `answers`, the texts of all answers; `answer_is_whole_tokens`,
    whether the first answer starts and ends where tokens do).

    The span is that of the fewest tokens that cover the answer. How many answers are not whole tokens is
    logged.

    Registered as a `DatasetReader` with name `elmo_squad`.

    # Parameters

    tokenizer : `Tokenizer`, optional (default = `RuleBasedTokenizer()`)
        One that says where in the text its tokens stand.
    max_passage_tokens : `int`, optional
        Passages are cut after so many tokens, and questions whose first answer is not in the rest are left
        out and counted. For training: what is left out is not measured either, so that validation needs a
        `validation_dataset_reader` without it.
    max_question_tokens : `int`, optional
        Questions are cut after so many tokens.
    require_answers : `bool`, optional (default = `True`)
        Refuse questions without answers. `False` is for files to predict from. Questions that are marked as
        impossible are refused in any case.

    The others are those of `TaskReader`, whose units are questions here.

    # Raises

    `ConfigurationError` if a maximum is not at least 1; and, while reading, for a file that is missing, not
    UTF-8, no JSON (line and column are named) or of another kind, an empty passage or question, an id that
    occurs twice, an impossible question, and an answer that is not where it says. The question is named, as
    in `train.json: data[3].paragraphs[0].qas[2] (id 5733be284776f41900661182)`.
    """

    tokenizer: Tokenizer

    def __init__(
        self,
        token_indexers: Optional[Dict[str, TokenIndexer]] = None,
        tokenizer: Optional[Tokenizer] = None,
        max_passage_tokens: Optional[int] = None,
        max_question_tokens: Optional[int] = None,
        require_answers: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(token_indexers, **kwargs)
        _check_maximum("max_passage_tokens", max_passage_tokens)
        _check_maximum("max_question_tokens", max_question_tokens)
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
        # Parameters

        question, passage : `str`
            Never cut here: the reader's maxima are for files.
        answers : `Sequence[Answer]`, optional
            Where in the passage they are.
        question_id : `str`, optional
        tokenizer : `Tokenizer`, optional (default = the reader's)

        # Raises

        `ConfigurationError` if question or passage has no tokens, or the tokenizer does not say where they
        stand.
        """
        tokenizer = tokenizer or self.tokenizer
        return _instance(
            question,
            tokenizer.tokenize(question),
            TokenizedPassage.from_text(passage, tokenizer),
            answers or (),
            question_id,
        )

    def _read(self, file_path: Union[str, PathLike]) -> Iterable[Instance]:
        num_answers, num_in_tokens = 0, 0
        for instance in super()._read(file_path):
            if "span_start" in instance:
                num_answers += 1
                num_in_tokens += not instance["metadata"]["answer_is_whole_tokens"]
            yield instance
        logger.info(
            "%s: %d of %d answers start or end inside of a token",
            file_path,
            num_in_tokens,
            num_answers,
        )

    def _units(self, file_path: Union[str, PathLike]) -> Iterator[SquadRecord]:
        return squad_records(file_path)

    def _instances(self, unit: SquadRecord, left_out: Counter) -> Iterable[Instance]:
        question = unit.checked(self._require_answers)
        passage = self._tokenized(question.passage)
        if question.answers and passage.covering_tokens(*_characters(question.answers[0])) is None:
            if self._max_passage_tokens is None:
                raise ConfigurationError(
                    f"{question.place}: the tokenizer makes no token of the answer "
                    f"'{question.answers[0].text}', expected at least one. Use another tokenizer."
                )
            left_out[
                f"questions with an answer beyond max_passage_tokens, {self._max_passage_tokens}"
            ] += 1
            return
        question_tokens = self.tokenizer.tokenize(question.question)[: self._max_question_tokens]
        yield _instance(question.question, question_tokens, passage, question.answers, question.id)

    def _tokenized(self, passage: str) -> TokenizedPassage:
        # Questions about a passage stand together. They share its field, of which the indexed characters
        # are most of the memory that instances take.
        if self._latest_passage is None or self._latest_passage.text != passage:
            self._latest_passage = TokenizedPassage.from_text(
                passage, self.tokenizer, self._max_passage_tokens
            )
        return self._latest_passage


def _instance(
    question: str,
    question_tokens: List[Token],
    passage: TokenizedPassage,
    answers: Sequence[Answer],
    question_id: Optional[str],
) -> Instance:
    if not question_tokens:
        raise ConfigurationError("Found a question without tokens, expected at least one token.")
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
        characters = _characters(answers[0])
        span = passage.covering_tokens(*characters)
        if span is None:
            raise ConfigurationError(
                f"Found the answer {answers[0]}, expected a part of the passage with tokens in it."
            )
        fields["span_start"] = IndexField(span[0], passage.field)
        fields["span_end"] = IndexField(span[1], passage.field)
        metadata["answer_is_whole_tokens"] = passage.characters_of(*span) == characters
    return Instance(fields)


def _characters(answer: Answer) -> tuple:
    return answer.start, answer.end


def _check_maximum(key: str, value: Optional[int]) -> None:
    if value is not None and value < 1:
        raise ConfigurationError(
            f"{key} is {value}, expected at least 1. Leave it out for no maximum."
        )
