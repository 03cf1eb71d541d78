"""Reads sentences with predicates and their semantic roles."""

import logging
from collections import Counter
from os import PathLike
from typing import Any, Dict, Iterable, Iterator, List, Optional, Union

from allennlp.common.checks import ConfigurationError
from allennlp.data import DatasetReader, Instance
from allennlp.data.fields import Field, MetadataField, SequenceLabelField, TextField
from allennlp.data.token_indexers import TokenIndexer
from allennlp.data.tokenizers import Token

from elmo_plugin.tasks.conll_2012 import (
    Conll2012Document,
    Conll2012Sentence,
    read_conll_2012,
    split_columns,
)
from elmo_plugin.tasks.conll_file import ConllSentence, SentencePlace
from elmo_plugin.tasks.srl.argument_columns import (
    NoPredicateError,
    PredicateFrame,
    read_predicate_frame,
)
from elmo_plugin.tasks.tag_field import TagField
from elmo_plugin.tasks.tag_schemes import SCHEME_RULES, find_tag_fault
from elmo_plugin.tasks.task_reader import TaskReader

logger = logging.getLogger(__name__)

# What CoNLL-2012's files without the licensed text have in place of each word.
_PLACEHOLDER = "[WORD]"


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

    The others are those of `TaskReader`, whose units are documents here. `skip_invalid` leaves out a
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
        if not tokens:
            raise ConfigurationError(
                "Found a sentence without tokens, expected at least one token."
            )
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
            _check_tags(tags, place)
            fields["tags"] = TagField(tags, text_field, self._label_namespace, place)
        return Instance(fields)

    def _units(self, file_path: Union[str, PathLike]) -> Iterator[Conll2012Document]:
        return read_conll_2012(file_path)

    def _instances(self, unit: Conll2012Document, left_out: Counter) -> Iterable[Instance]:
        instances: List[Instance] = []
        num_skipped = 0
        for unsplit_sentence in unit.unsplit_sentences():
            sentence = self._checked_sentence(unsplit_sentence, unit, left_out)
            if sentence is None:
                continue
            if not sentence.arguments:
                left_out["sentences without a predicate"] += 1
            tokens = [Token(word) for word in sentence.words]
            frames = self._checked_frames(sentence, unit, left_out)
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


def _check_tags(tags: List[str], place: Optional[SentencePlace]) -> None:
    fault = find_tag_fault(tags, "BIO")
    if fault is not None:
        where = place.of_token(fault.token_index) if place else f"Token {fault.token_index}"
        raise ConfigurationError(
            f"{where}: found {fault.description}, impossible in the BIO scheme: {SCHEME_RULES['BIO']}. "
            "Correct the tag."
        )


def _check_words(sentence: Conll2012Sentence, document: Conll2012Document) -> None:
    for index, word in enumerate(sentence.words):
        if word == _PLACEHOLDER or not word.strip():
            raise ConfigurationError(
                f"{sentence.place.of_token(index)}, column 4, document {document.name}, part "
                f"{document.part}: found '{word}', expected a word. CoNLL-2012's skeleton files "
                f"(*_skel) have {_PLACEHOLDER} for each: run the script that comes with them, which puts in "
                "the words of OntoNotes."
            )
