"""Read sentences with predicates and their semantic roles."""

import logging
import re
from collections import Counter
from os import PathLike
from typing import Any, Callable, Dict, Iterable, Iterator, List, NamedTuple, Optional, Union

from allennlp.data import DatasetReader, Instance
from allennlp.data.fields import Field, MetadataField, SequenceLabelField, TextField
from allennlp.data.tokenizers import Token

from elmo_plugin.errors import ConfigurationError
from elmo_plugin.tasks.conll import (
    MIN_COLUMNS,
    Conll2012Document,
    Conll2012Sentence,
    ConllSentence,
    SentencePlace,
    read_conll_2012,
)
from elmo_plugin.tasks.reading import TaskReader, checked_words
from elmo_plugin.tasks.tags import Span, TagField, check_tags, spans_to_tags

logger = logging.getLogger(__name__)

# `(ARG0*`, `*`, `*)` and `(ARG0*)`.
_CELL = re.compile(r"(?:\((?P<label>[^()*]+))?\*(?P<end>\))?")
_EXPECTED = "each span as (LABEL* on its first word, * between and *) on its last, or (LABEL*)"
_NO_LEMMA = "-"

# The placeholder of words in CoNLL-2012's files without the licensed text.
_PLACEHOLDER = "[WORD]"

_Fault = Callable[[int, str], ConfigurationError]
"""From the word on whose line a problem is, and the problem, to the error."""


class PredicateFrame(NamedTuple):
    """A predicate of a sentence, and the BIO tags of its argument column."""

    predicate_index: int
    lemma: str
    tags: List[str]


class NoPredicateError(ConfigurationError):
    """Raised for an argument column without `V`, whose predicate is unknown."""


def read_predicate_frame(
    sentence: Conll2012Sentence, number: int, column_of_predicate: Dict[int, int]
) -> PredicateFrame:
    """
    Return the predicate of an argument column of a sentence; `number` 0 is the first such column.

    The predicate's word is the first word with a lemma in the column's `V` span, which is longer than the
    word if there is a particle (`carry out`). Lemmas elsewhere are ignored: OntoNotes also has them on words
    that have a word sense but are not predicates.

    # Raises

    `ConfigurationError` if brackets are malformed, nested or not closed; if the column has more than one `V`,
    or its `V` has no word with a lemma, or an earlier column has the same `V`, see `column_of_predicate`.
    `NoPredicateError`, a subclass, if it has no `V`.
    """

    def fault(index: int, problem: str) -> ConfigurationError:
        place = sentence.place.of_token(index, MIN_COLUMNS + number)
        return ConfigurationError(f"{place}: {problem}. Correct the argument column.")

    spans = _read_spans(sentence.arguments[number], sentence.place.first_line, fault)
    index = _find_predicate(spans, sentence, fault)
    if index in column_of_predicate:
        raise fault(
            index,
            f"found the predicate '{sentence.words[index]}', which column "
            f"{MIN_COLUMNS + column_of_predicate[index]} has too, expected one column for each predicate",
        )
    tags = spans_to_tags(spans, len(sentence.words), "BIO")
    return PredicateFrame(index, sentence.predicate_lemmas[index], tags)


def _read_spans(cells: List[str], first_line: int, fault: _Fault) -> List[Span]:
    spans: List[Span] = []
    label: Optional[str] = None  # of the open span
    start = 0
    for index, cell in enumerate(cells):
        match = _CELL.fullmatch(cell)
        if match is None:
            raise fault(index, f"found '{cell}', expected {_EXPECTED}")
        if match["label"] is not None:
            if label is not None:
                raise fault(
                    index,
                    f"found '{cell}' before the end of the span ({label}* of line {first_line + start}, "
                    "expected spans that neither nest nor cross",
                )
            label, start = match["label"], index
        if match["end"] is not None:
            if label is None:
                raise fault(index, f"found '{cell}' outside of a span, expected {_EXPECTED}")
            spans.append(Span(start, index + 1, label))
            label = None
    if label is not None:
        opened = f"({label}* of line {first_line + start}"
        raise fault(len(cells) - 1, f"found no end of the span {opened}, expected {_EXPECTED}")
    return spans


def _find_predicate(spans: List[Span], sentence: Conll2012Sentence, fault: _Fault) -> int:
    predicates = [span for span in spans if span.label == "V"]
    expected = "expected one span (V*) on the predicate"
    if not predicates:
        error = fault(0, f"found no predicate in the sentence's column, {expected}")
        raise NoPredicateError(error.message)
    if len(predicates) > 1:
        raise fault(
            predicates[1].start,
            f"found a second span (V* in the sentence's column, {expected} (its other parts are C-V)",
        )
    [(start, end, _)] = predicates
    for index in range(start, end):
        if sentence.predicate_lemmas[index] != _NO_LEMMA:
            return index
    raise fault(
        start,
        f"found the predicate '{sentence.words[start]}' without a lemma in column 7, expected "
        "as many words with a predicate lemma as there are argument columns",
    )


@DatasetReader.register("elmo_srl")
class SrlReader(TaskReader):
    """
    Reads the `*.gold_conll` files of CoNLL-2012, a file or all below a folder: columns of a word number 3
    (from 0), its lemma and frameset if it is a predicate (6 and 7), and from number 11 on the arguments of
    each predicate of the sentence.

    Each predicate of each sentence is an instance with the fields `tokens`, `predicate_indicator` (1 at the
    predicate's word, 0 elsewhere), `tags` (BIO), `predicates` (1 at each predicate of the sentence; -1
    everywhere in all but its first instance, so that it counts once) and `metadata` (`words`;
    `predicate_index`; `lemma`, from a file). Sentences without a predicate are left out and counted. So are
    argument columns without a `V`, whose predicate is unknown: the `metadata` of the first instance of each
    document has `num_skipped_predicates`, and the model reports their sum next to the score, which does not
    include them.

    The indicator marks one word even if the predicate's span is longer (`carry out`), as in prediction.

    # Parameters

    with_all_sentences : `bool`, optional (default = `False`)
        Read sentences without a predicate, too, for a model that learns to find predicates
        (`finder_dim`). Their tags are all `O`.

    The other parameters are those of `TaskReader`, whose records are documents here. `skip_invalid` leaves
    out a predicate with an invalid argument column, a sentence with another invalid line, and a document
    without an end.
    """

    def __init__(
        self, label_namespace: str = "labels", with_all_sentences: bool = False, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self._label_namespace = label_namespace
        self._with_all_sentences = with_all_sentences

    def text_to_instance(
        self,
        tokens: List[Token],
        predicate_index: Optional[int] = None,
        tags: Optional[List[str]] = None,
        lemma: Optional[str] = None,
        place: Optional[SentencePlace] = None,
        predicates: Optional[List[int]] = None,
    ) -> Instance:
        """
        Make an instance. `predicate_index` is the index of the predicate's token, `lemma` its lemma, `tags`
        the BIO tags of the tokens. `predicates` has 0 or 1 for each token, or -1 for what is not to be
        learnt.
        """
        metadata: Dict[str, Any] = {
            "words": checked_words(tokens),
            "predicate_index": predicate_index,
        }
        if predicate_index is not None and not 0 <= predicate_index < len(tokens):
            raise ConfigurationError(
                f"Found the predicate index {predicate_index}, expected one of 0 to {len(tokens) - 1}, the "
                "tokens of the sentence."
            )
        if lemma is not None:
            metadata["lemma"] = lemma
        text_field = TextField(tokens)
        indicator = [int(index == predicate_index) for index in range(len(tokens))]
        fields: Dict[str, Field] = {
            "tokens": text_field,
            # The labels are numbers already; the namespace only prevents a warning of AllenNLP.
            "predicate_indicator": SequenceLabelField(
                indicator, text_field, "predicate_indicator_labels"
            ),
            "metadata": MetadataField(metadata),
        }
        if tags is not None:
            check_tags(tags, "BIO", place)
            fields["tags"] = TagField(tags, text_field, self._label_namespace, place)
        if predicates is not None:
            fields["predicates"] = SequenceLabelField(predicates, text_field, "predicates_labels")
        return Instance(fields)

    def _records(self, file_path: Union[str, PathLike]) -> Iterator[Conll2012Document]:
        return read_conll_2012(file_path)

    def _instances(self, record: Conll2012Document, left_out: Counter) -> Iterable[Instance]:
        instances: List[Instance] = []
        num_skipped = 0
        for unsplit_sentence in record.unsplit_sentences():
            sentence = self._checked_sentence(unsplit_sentence, left_out)
            if sentence is None:
                continue
            tokens = [Token(word) for word in sentence.words]
            frames = self._checked_frames(sentence, left_out)
            num_skipped += len(sentence.arguments) - len(frames)
            found = {frame.predicate_index for frame in frames}
            predicates = [int(index in found) for index in range(len(tokens))]
            for predicate_index, lemma, tags in frames:
                instances.append(
                    self.text_to_instance(
                        tokens, predicate_index, tags, lemma, sentence.place, predicates
                    )
                )
                predicates = [-1] * len(tokens)
            if not sentence.arguments and self._with_all_sentences:
                tags = ["O"] * len(tokens)
                instances.append(self.text_to_instance(tokens, tags=tags, predicates=predicates))
            elif not sentence.arguments:
                left_out["sentences without a predicate"] += 1
        if num_skipped and instances:
            instances[0]["metadata"].metadata["num_skipped_predicates"] = num_skipped
        return instances

    def _checked_sentence(
        self, unsplit_sentence: ConllSentence, left_out: Counter
    ) -> Optional[Conll2012Sentence]:
        try:
            sentence = Conll2012Sentence.split(unsplit_sentence)
            for index, word in enumerate(sentence.words):
                if word == _PLACEHOLDER or not word.strip():
                    raise ConfigurationError(
                        f"{sentence.place.of_token(index, column=4)}: found '{word}', expected a word. "
                        f"CoNLL-2012's skeleton files (*_skel) have {_PLACEHOLDER} for each: run the script "
                        "that comes with them, which inserts the words of OntoNotes."
                    )
            return sentence
        except ConfigurationError as error:
            self._raise_unless_skipped(error)
            left_out["invalid sentences"] += 1
            return None

    def _checked_frames(
        self, sentence: Conll2012Sentence, left_out: Counter
    ) -> List[PredicateFrame]:
        frames: List[PredicateFrame] = []
        column_of_predicate: Dict[int, int] = {}
        for number in range(len(sentence.arguments)):
            try:
                frame = read_predicate_frame(sentence, number, column_of_predicate)
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
