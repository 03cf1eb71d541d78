"""Read sentences with predicates and their semantic roles."""

import logging
import re
from collections import Counter
from os import PathLike
from typing import Any, Dict, Iterable, Iterator, List, NamedTuple, Optional, Type, Union

from allennlp.common.checks import ConfigurationError
from allennlp.data import DatasetReader, Instance
from allennlp.data.fields import Field, MetadataField, SequenceLabelField, TextField
from allennlp.data.token_indexers import TokenIndexer
from allennlp.data.tokenizers import Token

from elmo_plugin.tasks.conll import (
    MIN_COLUMNS,
    Conll2012Document,
    Conll2012Sentence,
    ConllSentence,
    SentencePlace,
    read_conll_2012,
    split_columns,
)
from elmo_plugin.tasks.reading import TaskReader, check_tokens
from elmo_plugin.tasks.tags import Span, TagField, check_tags, spans_to_tags

logger = logging.getLogger(__name__)

# `(ARG0*`, `*`, `*)` and `(ARG0*)`.
_CELL = re.compile(r"(?:\((?P<label>[^()*]+))?\*(?P<end>\))?")
_EXPECTED = "each span as (LABEL* on its first word, * between and *) on its last, or (LABEL*)"
_PREDICATE_LABEL = "V"
_NO_LEMMA = "-"

# What CoNLL-2012's files without the licensed text have in place of each word.
_PLACEHOLDER = "[WORD]"


class PredicateFrame(NamedTuple):
    """
    A predicate of a sentence, and the BIO tags of its argument column.

    # Parameters

    predicate_index : `int`
        The word that the predicate is known by.
    lemma : `str`
        As column 7 has it.
    tags : `List[str]`
        One for each word: `B-ARG0`, `I-ARG0`, `B-V`, `O`...
    """

    predicate_index: int
    lemma: str
    tags: List[str]


class NoPredicateError(ConfigurationError):
    """An argument column has no `V`, so that nothing says whose arguments it holds."""


def read_predicate_frame(
    sentence: Conll2012Sentence,
    document: Conll2012Document,
    number: int,
    column_of_predicate: Dict[int, int],
) -> PredicateFrame:
    """
    The predicate of an argument column of a sentence.

    The predicate's word is the first of the column's `V` span that has a lemma: with a particle the span is
    longer than the word (`carry out`). Lemmas elsewhere are left alone: OntoNotes also has them on words that
    have a word sense but are no predicates.

    # Parameters

    number : `int`
        Of the column; 0 is the first argument column.
    column_of_predicate : `Dict[int, int]`
        For the predicates of columns read before, by their words' indices, the numbers of the columns.

    # Raises

    `ConfigurationError` naming file, line, column and document: if brackets are malformed, nested or not
    closed; if the column has more than one `V`, or its `V` has no word with a lemma, or is that of a column
    before it. `NoPredicateError`, one of them, if it has no `V`.
    """
    column = _Column(sentence, document, number)
    spans = _read_spans(sentence.arguments[number], column)
    index = _find_predicate(spans, sentence, column)
    if index in column_of_predicate:
        raise column.error(
            index,
            f"found the predicate '{sentence.words[index]}', which column "
            f"{MIN_COLUMNS + column_of_predicate[index]} has too, expected one column for each predicate",
        )
    tags = spans_to_tags(spans, len(sentence.words), "BIO")
    return PredicateFrame(index, sentence.predicate_lemmas[index], tags)


class _Column(NamedTuple):
    """An argument column, to be named in errors."""

    sentence: Conll2012Sentence
    document: Conll2012Document
    number: int  # 0 is the first argument column

    def error(
        self,
        index: int,
        problem: str,
        error_class: Type[ConfigurationError] = ConfigurationError,
    ) -> ConfigurationError:
        """`index`: the word on whose line the problem is."""
        return error_class(
            f"{self.sentence.place.of_token(index)}, column {MIN_COLUMNS + self.number}, document "
            f"{self.document.name}, part {self.document.part}: {problem}. Correct the argument column."
        )


def _read_spans(cells: List[str], column: _Column) -> List[Span]:
    spans: List[Span] = []
    label: Optional[str] = None  # of the open span
    start = 0
    for index, cell in enumerate(cells):
        match = _CELL.fullmatch(cell)
        if match is None:
            raise column.error(index, f"found '{cell}', expected {_EXPECTED}")
        if match["label"] is not None:
            if label is not None:
                raise column.error(
                    index,
                    f"found '{cell}' before the end of the span {_opened(label, start, column)}, "
                    "expected spans that neither nest nor cross",
                )
            label, start = match["label"], index
        if match["end"] is not None:
            if label is None:
                raise column.error(index, f"found '{cell}' outside of a span, expected {_EXPECTED}")
            spans.append(Span(start, index + 1, label))
            label = None
    if label is not None:
        raise column.error(
            len(cells) - 1,
            f"found no end of the span {_opened(label, start, column)}, expected {_EXPECTED}",
        )
    return spans


def _opened(label: str, start: int, column: _Column) -> str:
    return f"({label}* of line {column.sentence.place.first_line + start}"


def _find_predicate(spans: List[Span], sentence: Conll2012Sentence, column: _Column) -> int:
    predicates = [span for span in spans if span.label == _PREDICATE_LABEL]
    expected = f"one span ({_PREDICATE_LABEL}*) on the predicate"
    if not predicates:
        raise column.error(
            0, f"found no predicate in the sentence's column, expected {expected}", NoPredicateError
        )
    if len(predicates) > 1:
        raise column.error(
            predicates[1].start,
            f"found a second span ({_PREDICATE_LABEL}* in the sentence's column, expected {expected} "
            f"(its other parts are C-{_PREDICATE_LABEL})",
        )
    [predicate] = predicates
    for index in range(predicate.start, predicate.end):
        if sentence.predicate_lemmas[index] != _NO_LEMMA:
            return index
    raise column.error(
        predicate.start,
        f"found the predicate '{sentence.words[predicate.start]}' without a lemma in column 7, expected "
        "as many words with a predicate lemma as there are argument columns",
    )


@DatasetReader.register("elmo_srl")
class SrlReader(TaskReader):
    """
    Reads the `*.gold_conll` files of CoNLL-2012, a file or all below a folder: columns of a word number 3
    (from 0), its lemma and frameset if it is a predicate (6 and 7), and from number 11 on the arguments of
    each predicate of the sentence.

    Each predicate of each sentence is an instance, with the fields `tokens`, `predicate_indicator` (1 on the
    predicate's word, 0 on the others), `tags` (BIO) and `metadata` (`words`; `predicate_index`; `lemma`, from
    a file). Sentences without a predicate are left out, and counted. So are argument columns without a `V`,
    of which nothing says whose arguments they are: `metadata` of the first instance of each document has
    `num_skipped_predicates`, and the model reports their sum beside the score that they are not in.

    The indicator is on one word even where the predicate's span is longer (`carry out`), as it is when a
    predicate is given for prediction.

    Registered as a `DatasetReader` with name `elmo_srl`.

    # Parameters

    label_namespace : `str`, optional (default = `"labels"`)
        The vocabulary's namespace of the tags.

    The others are those of `TaskReader`, whose records are documents here. `skip_invalid` leaves out a
    predicate for a bad argument column, a sentence for another bad line, and a document if it has no end.

    # Raises

    While reading: `ConfigurationError` for a file that is missing, not UTF-8 or of another kind; a document
    that is not complete; a line with another number of columns; words that are missing; and argument columns
    that cannot be read, see `read_predicate_frame`. File, line, column and document are named.
    """

    def __init__(
        self,
        token_indexers: Optional[Dict[str, TokenIndexer]] = None,
        label_namespace: str = "labels",
        **kwargs: Any,
    ) -> None:
        super().__init__(token_indexers, **kwargs)
        self._label_namespace = label_namespace

    def text_to_instance(
        self,
        tokens: List[Token],
        predicate_index: Optional[int] = None,
        tags: Optional[List[str]] = None,
        lemma: Optional[str] = None,
        place: Optional[SentencePlace] = None,
    ) -> Instance:
        """
        # Parameters

        tokens : `List[Token]`
            The tokens of a sentence, at least one.
        predicate_index : `int`, optional
            The token that is the predicate; `None` for a sentence without one, which has no tags to be found.
        tags : `List[str]`, optional
            BIO tags of the tokens.
        lemma : `str`, optional
            Of the predicate.
        place : `SentencePlace`, optional
            The lines on which the tokens stand, to be named in errors.

        # Raises

        `ConfigurationError` if there are no tokens, none at `predicate_index`, or the tags are impossible.
        """
        check_tokens(tokens)
        if predicate_index is not None and not 0 <= predicate_index < len(tokens):
            raise ConfigurationError(
                f"Found the predicate index {predicate_index}, expected one of 0 to {len(tokens) - 1}, the "
                "tokens of the sentence."
            )
        text_field = TextField(tokens)
        indicator = [int(index == predicate_index) for index in range(len(tokens))]
        metadata: Dict[str, Any] = {
            "words": [token.text for token in tokens],
            "predicate_index": predicate_index,
        }
        if lemma is not None:
            metadata["lemma"] = lemma
        fields: Dict[str, Field] = {
            "tokens": text_field,
            # Numbers are no labels of the vocabulary; the name only keeps AllenNLP from warning.
            "predicate_indicator": SequenceLabelField(
                indicator, text_field, "predicate_indicator_labels"
            ),
            "metadata": MetadataField(metadata),
        }
        if tags is not None:
            check_tags(tags, "BIO", place)
            fields["tags"] = TagField(tags, text_field, self._label_namespace, place)
        return Instance(fields)

    def _records(self, file_path: Union[str, PathLike]) -> Iterator[Conll2012Document]:
        return read_conll_2012(file_path)

    def _instances(self, record: Conll2012Document, left_out: Counter) -> Iterable[Instance]:
        instances: List[Instance] = []
        num_skipped = 0
        for unsplit_sentence in record.unsplit_sentences():
            sentence = self._checked_sentence(unsplit_sentence, record, left_out)
            if sentence is None:
                continue
            if not sentence.arguments:
                left_out["sentences without a predicate"] += 1
            tokens = [Token(word) for word in sentence.words]
            frames = self._checked_frames(sentence, record, left_out)
            num_skipped += len(sentence.arguments) - len(frames)
            for predicate_index, lemma, tags in frames:
                instances.append(
                    self.text_to_instance(tokens, predicate_index, tags, lemma, sentence.place)
                )
        if num_skipped and instances:
            instances[0]["metadata"].metadata["num_skipped_predicates"] = num_skipped
        return instances

    def _checked_sentence(
        self, unsplit_sentence: ConllSentence, document: Conll2012Document, left_out: Counter
    ) -> Optional[Conll2012Sentence]:
        try:
            sentence = split_columns(unsplit_sentence)
            _check_words(sentence, document)
            return sentence
        except ConfigurationError as error:
            self._raise_unless_skipped(error)
            left_out["invalid sentences"] += 1
            return None

    def _checked_frames(
        self, sentence: Conll2012Sentence, document: Conll2012Document, left_out: Counter
    ) -> List[PredicateFrame]:
        frames: List[PredicateFrame] = []
        column_of_predicate: Dict[int, int] = {}
        for number in range(len(sentence.arguments)):
            try:
                frame = read_predicate_frame(sentence, document, number, column_of_predicate)
            except NoPredicateError as error:
                logger.warning("Left out: %s", error)
                left_out["predicates without a V"] += 1
            except ConfigurationError as error:
                self._raise_unless_skipped(error)
                left_out["invalid predicates"] += 1
            else:
                column_of_predicate[frame.predicate_index] = number
                frames.append(frame)
        return frames


def _check_words(sentence: Conll2012Sentence, document: Conll2012Document) -> None:
    for index, word in enumerate(sentence.words):
        if word == _PLACEHOLDER or not word.strip():
            raise ConfigurationError(
                f"{sentence.place.of_token(index)}, column 4, document {document.name}, part "
                f"{document.part}: found '{word}', expected a word. CoNLL-2012's skeleton files "
                f"(*_skel) have {_PLACEHOLDER} for each: run the script that comes with them, which puts in "
                "the words of OntoNotes."
            )
