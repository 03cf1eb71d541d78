"""Predicates and their arguments, from the columns of CoNLL-2012."""

import re
from typing import Dict, List, NamedTuple, Optional, Type

from allennlp.common.checks import ConfigurationError

from elmo_plugin.tasks.conll_2012 import MIN_COLUMNS, Conll2012Document, Conll2012Sentence
from elmo_plugin.tasks.tag_schemes import Span, spans_to_tags

# `(ARG0*`, `*`, `*)` and `(ARG0*)`.
_CELL = re.compile(r"(?:\((?P<label>[^()*]+))?\*(?P<end>\))?")
_EXPECTED = "each span as (LABEL* on its first word, * between and *) on its last, or (LABEL*)"
_PREDICATE_LABEL = "V"
_NO_LEMMA = "-"


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
