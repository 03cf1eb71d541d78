"""Read sentences with predicates and their semantic roles, from files and from JSON."""

import logging
import re
from collections import Counter
from typing import Any, Dict, Iterable, Iterator, List, Optional, Set, Tuple

from allennlp.common.util import JsonDict
from allennlp.data import DatasetReader, Instance
from allennlp.data.fields import Field, MetadataField, SequenceLabelField, TextField
from allennlp.data.tokenizers import Token
from allennlp.predictors import Predictor

from elmo_plugin.errors import ConfigurationError
from elmo_plugin.files.json_input import find_key, shown_json
from elmo_plugin.files.text import FileName
from elmo_plugin.tasks.conll import (
    FIRST_ARGUMENTS,
    Conll2012Sentence,
    ConllSentence,
    read_conll_2012,
)
from elmo_plugin.tasks.predicting import SentencePredictor, bracketed, described_span
from elmo_plugin.tasks.reading import TaskReader, character_offsets, checked_words
from elmo_plugin.tasks.tags import Span, TagField, spans_to_tags, tags_to_spans

logger = logging.getLogger(__name__)

# `(ARG0*`, `*`, `*)` and `(ARG0*)`; where spans nest, `(ARG0(ARG1*)` and `*))`, too.
_CELL = re.compile(r"(?P<starts>(?:\([^()*]+)*)\*(?P<ends>\)*)")
_EXPECTED = "each span as (LABEL* on its first word, * between and *) on its last, or (LABEL*)"
_PREDICATE = "V"
_NO_LEMMA = "-"


class ArgumentColumn:
    """
    The arguments of one predicate of a sentence. Column 0 is the first of the sentence. Raises
    `ConfigurationError` if brackets are malformed or do not match.

    # Attributes

    spans : `List[Span]`
        Spans that do not overlap: one `V`, and of the others the outer ones, without those that overlap `V`.
        Of several spans `V`, it is the one of the predicate's word.
    candidates : `List[int]`
        The words that may be the predicate, the likeliest first: those with a lemma in a span `V`, which is
        longer than one word if there is a particle (`carry out`); if none has a lemma, the first of each.
        Lemmas elsewhere are ignored: OntoNotes also has them on words that have a word sense but are not
        predicates.
    predicate_index : `Optional[int]`
        The predicate's word: the first candidate, or the one that was given. `None` if there is no `V`.
    oddities : `List[str]`
        A description of each span that was left out, of a predicate without a lemma, and of one that was
        given in place of the first candidate.
    """

    def __init__(
        self, sentence: Conll2012Sentence, number: int, predicate_index: Optional[int] = None
    ) -> None:
        self.sentence = sentence
        self.number = number
        self.spans: List[Span] = []
        self.candidates: List[int] = []
        self.predicate_index: Optional[int] = None
        self.oddities: List[str] = []
        spans = sorted(self._all_spans(), key=lambda span: (span.start, -span.end))
        predicates = [span for span in spans if span.label == _PREDICATE]
        if predicates:
            lemmas = sentence.predicate_lemmas
            with_lemma = [
                (index, span)
                for span in predicates
                for index in range(span.start, span.end)
                if lemmas[index] != _NO_LEMMA
            ]
            candidates = with_lemma or [(span.start, span) for span in predicates]
            self.candidates = [index for index, _ in candidates]
            place = 0 if predicate_index is None else self.candidates.index(predicate_index)
            self.predicate_index, predicate = candidates[place]
            if place > 0:
                self.oddities.append("predicates that are another word of their spans (V* read")
            self.spans.append(predicate)
            self.oddities += ["further spans (V* left out"] * (len(predicates) - 1)
            if not with_lemma:
                self.oddities.append("predicates without a lemma read")
        for span in spans:
            if span.label == _PREDICATE:
                continue
            if any(span.start < kept.end and kept.start < span.end for kept in self.spans):
                self.oddities.append("nested spans left out")
            else:
                self.spans.append(span)

    @classmethod
    def of_sentence(cls, sentence: Conll2012Sentence) -> List["ArgumentColumn"]:
        """
        Return the columns of a sentence. A predicate is the first candidate of its column that no other
        column has taken, where those with few candidates choose first; or the first one, if all are taken.
        """
        columns = [cls(sentence, number) for number in range(len(sentence.arguments))]
        taken: Set[int] = set()
        for column in sorted(columns, key=lambda column: len(column.candidates)):
            free = [index for index in column.candidates if index not in taken]
            if free:
                taken.add(free[0])
                if free[0] != column.predicate_index:
                    columns[column.number] = cls(sentence, column.number, free[0])
        return columns

    def fault(self, index: int, problem: str) -> ConfigurationError:
        """Return the error for a problem on the line of a word."""
        place = self.sentence.place.of_token(index, FIRST_ARGUMENTS + 1 + self.number)
        return ConfigurationError(f"{place}: {problem}. Correct the argument column.")

    def _all_spans(self) -> List[Span]:
        """Return all spans of the column, which may nest."""
        spans: List[Span] = []
        open_spans: List[Tuple[int, str]] = []  # start and label
        for index, cell in enumerate(self.sentence.arguments[self.number]):
            match = _CELL.fullmatch(cell)
            if match is None:
                raise self.fault(index, f"found '{cell}', expected {_EXPECTED}")
            open_spans += [(index, label) for label in match["starts"].split("(")[1:]]
            for _ in match["ends"]:
                if not open_spans:
                    raise self.fault(index, f"found '{cell}' without a start, expected {_EXPECTED}")
                start, label = open_spans.pop()
                spans.append(Span(start, index + 1, label))
        for start, label in open_spans:
            raise self.fault(start, f"found no end of the span ({label}*, expected {_EXPECTED}")
        return spans


@DatasetReader.register("elmo_srl")
class SrlReader(TaskReader):
    """
    Reads the `*.gold_conll` files of CoNLL-2012, a file or all below a folder: the columns of a word
    number 3 (from 0), its lemma if it is a predicate (6), and from number 11 on the arguments of each
    predicate of the sentence.

    Each predicate of each sentence is an instance with the fields `tokens`, `predicate_indicator` (1 at the
    predicate's word, 0 elsewhere), `tags` (BIO), `predicates` (1 at each predicate of the sentence; -1
    everywhere in all but its first instance, so that it counts once) and `metadata` (`words`,
    `character_offsets`, `predicate_index` and `gold_tags`, the names of `tags`). Sentences without a
    predicate are left out and counted. So are argument columns without a `V`, whose predicate is unknown:
    the score does not include them.

    Unusual columns are read, and counted at the end of the file. Of nested spans the outer one is kept; but
    the predicate always is, and spans around it are left out. Of several spans `V` the first one with a lemma
    that is not the predicate of another column is kept. The predicate of a `V` without a lemma is its first
    word. (AllenNLP's reader ends an outer span where an inner one starts.)

    The indicator marks one word even if the predicate's span is longer (`carry out`), as in prediction.

    # Parameters

    with_all_sentences : `bool`, optional (default = `False`)
        Read sentences without a predicate, too, for a model that learns to find predicates
        (`finder_dim`). Their tags are all `O`.

    The other parameters are those of `TaskReader`, whose records are sentences here.
    """

    def __init__(self, with_all_sentences: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._with_all_sentences = with_all_sentences

    def text_to_instance(
        self,
        tokens: List[Token],
        predicate_index: Optional[int] = None,
        tags: Optional[List[str]] = None,
        predicates: Optional[List[int]] = None,
    ) -> Instance:
        """
        Make an instance. `tags` are in BIO. `predicates` has 0 or 1 for each token, or -1 for tokens that the
        loss ignores.
        """
        metadata = {
            "words": checked_words(tokens),
            "character_offsets": character_offsets(tokens),
            "predicate_index": predicate_index,
            "gold_tags": tags,
        }
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
            fields["tags"] = TagField(tags, text_field)
        if predicates is not None:
            fields["predicates"] = SequenceLabelField(predicates, text_field, "predicates_labels")
        return Instance(fields)

    def _records(self, file_path: FileName) -> Iterator[Tuple[str, ConllSentence]]:
        for document in read_conll_2012(file_path):
            for sentence in document.unsplit:
                yield sentence.place.of_token(0), sentence

    def _instances(self, record: ConllSentence, counts: Counter) -> Iterable[Instance]:
        sentence = Conll2012Sentence.split(record)
        tokens = [Token(word) for word in sentence.words]
        columns = ArgumentColumn.of_sentence(sentence)
        indices = [column.predicate_index for column in columns]
        predicates = [int(index in indices) for index in range(len(tokens))]
        for index, column in zip(indices, columns):
            if index is None:
                logger.warning("Left out: %s", column.fault(0, "found no span (V*"))
                counts["predicates without a V left out"] += 1
                continue
            if indices.count(index) > 1:
                problem = "found a predicate with several columns, expected one for each predicate"
                raise column.fault(index, problem)
            counts.update(column.oddities)
            tags = spans_to_tags(column.spans, len(tokens), "BIO")
            yield self.text_to_instance(tokens, index, tags, predicates)
            predicates = [-1] * len(tokens)
        if not columns and self._with_all_sentences:
            tags = ["O"] * len(tokens)
            yield self.text_to_instance(tokens, tags=tags, predicates=predicates)
        elif not columns:
            counts["sentences without a predicate left out"] += 1


# The key in the metadata of a sentence whose predicates the model is to find.
_TO_BE_FOUND = "predicates_to_be_found"


@Predictor.register("elmo_srl")
class SrlPredictor(SentencePredictor):
    """
    Predicts from `{"tokens": ["The", "cat", ...], "predicates": [2, 4]}`, where `predicates` are indices of
    tokens, counted from 0, or from a `sentence` with `predicates`. The output has `words`, and

    - `predicates`, a list with, of each predicate, `predicate` (its word), `index`, `tags` (BIO, one per
      word), `arguments` (a list with `role`, `start`, `end`, token indices, `end` exclusive, and `text`; of a
      `sentence` also `start_char` and `end_char`) and `description`: `[ARG0: The cat] [V: sat] and slept`. It
      is empty if there are no predicates.

    Where no predicates are given, a model that was trained with `finder_dim` finds them.
    """

    example = '{"tokens": ["The", "cat", "sat", "and", "slept"], "predicates": [2, 4]}'

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self._model.predicate_finder is not None:
            self.example = f'{{"sentence": "The cat sat and slept."}} or {self.example}'

    def instances_of_tokens(self, tokens: List[Token], inputs: JsonDict) -> List[Instance]:
        if "predicates" not in inputs and self._model.predicate_finder is not None:
            instance = self._dataset_reader.text_to_instance(tokens)
            instance["metadata"].metadata[_TO_BE_FOUND] = True
            return [instance]
        return self._instances_of_predicates(tokens, self._get_predicates(inputs, len(tokens)))

    def complete(self, groups: List[List[Instance]]) -> None:
        """Find the predicates of all sentences that have none given, in one batched pass."""
        to_search = [group for group in groups if _TO_BE_FOUND in group[0]["metadata"].metadata]
        outputs = self._run([group[0] for group in to_search])
        for group, output in zip(to_search, outputs):
            metadata, tokens = group[0]["metadata"].metadata, group[0]["tokens"].tokens
            probabilities = output["predicate_probabilities"]
            predicates = [i for i in range(len(tokens)) if probabilities[i] > 0.5]
            group[:] = self._instances_of_predicates(tokens, predicates)
            # The text of the sentence.
            group[0]["metadata"].metadata = {**metadata, **group[0]["metadata"].metadata}

    def readable_output(self, instances: List[Instance], outputs: List[JsonDict]) -> JsonDict:
        metadata = instances[0]["metadata"].metadata
        predicates = []
        for instance, output in zip(instances, outputs):
            index = instance["metadata"].metadata["predicate_index"]
            if index is not None:
                predicates.append(_describe(metadata, index, output["tags"]))
        return {"words": metadata["words"], "predicates": predicates}

    def _instances_of_predicates(
        self, tokens: List[Token], predicates: List[int]
    ) -> List[Instance]:
        """Return an instance for each predicate of a sentence, and one if it has none."""
        to_instance = self._dataset_reader.text_to_instance
        return [to_instance(tokens, index) for index in predicates] or [to_instance(tokens)]

    def _get_predicates(self, inputs: JsonDict, num_tokens: int) -> List[int]:
        predicates = inputs[find_key(inputs, ["predicates"], self.example)]
        # True and False are integers to Python.
        if (
            not isinstance(predicates, list)
            or not all(type(index) is int and 0 <= index < num_tokens for index in predicates)
            or len(set(predicates)) < len(predicates)
        ):
            raise ConfigurationError(
                f"'predicates' is {shown_json(predicates)}, expected a list of different indices of the "
                f"{num_tokens} tokens, 0 to {num_tokens - 1}, as in {self.example}"
            )
        return predicates


def _describe(metadata: Dict[str, Any], index: int, tags: List[str]) -> JsonDict:
    words = metadata["words"]
    spans = tags_to_spans(tags, "BIO")
    return {
        "predicate": words[index],
        "index": index,
        "tags": tags,
        "arguments": [
            {"role": role, **described_span(metadata, start, end)} for start, end, role in spans
        ],
        "description": bracketed(words, [(start, end, f"{role}:") for start, end, role in spans]),
    }
