"""Read sentences with named entities."""

import logging
from collections import Counter
from os import PathLike
from pathlib import PurePath
from typing import Any, Dict, Iterable, Iterator, List, Optional, Sequence, Tuple, Union

from allennlp.data import DatasetReader, Instance
from allennlp.data.fields import Field, MetadataField, TextField
from allennlp.data.tokenizers import Token

from elmo_plugin.errors import ConfigurationError
from elmo_plugin.tasks.checks import check_choice
from elmo_plugin.tasks.conll import ConllSentence, SentencePlace, read_conll_sentences
from elmo_plugin.tasks.reading import TaskReader, character_offsets, checked_words
from elmo_plugin.tasks.tags import (
    LABEL_SCHEMES,
    SCHEME_RULES,
    TagField,
    find_tag_fault,
    spans_to_tags,
    tags_to_spans,
)

logger = logging.getLogger(__name__)

# A sentence, the scheme of its tags, and the classes that they do not mark.
_Record = Tuple[ConllSentence, str, List[str]]


@DatasetReader.register("elmo_ner")
class NerReader(TaskReader):
    """
    Reads files in CoNLL format: one token per line, columns separated by spaces or tabs, a blank line after
    each sentence, `-DOCSTART-` lines between documents. The first column is the token and the last its tag:
    `TOKEN POS CHUNK TAG` as in CoNLL-2003, `TOKEN TAG`, or any other number of columns.

    Every sentence is an instance with the fields `tokens`, `tags` and `metadata` (`words`;
    `character_offsets`, one `(start, end)` per token, if the tokens have them; and `unmarked`, the classes
    that its file does not mark, if there are any).

    # Parameters

    input_scheme : `str`, optional
        The tag scheme of the files: `IOB1` (CoNLL-2003 as published), `BIO` (also called IOB2) or `BIOUL`. By
        default the scheme in which all tags of a file are possible is detected and logged, for each file
        separately. If no scheme fits, a warning says how many sentences each one fits, and sentences that do
        not fit the best one are invalid.
    label_scheme : `str`, optional (default = `"BIOUL"`)
        The scheme of the tags that the model learns: `BIO` or `BIOUL`. It must be that of the model.
    unmarked : `Dict[str, List[str]]`, optional
        Classes that some files do not mark, such as `{"uner_ewt/*.conll": ["MISC"]}`, so that files with
        different classes can be combined: a token that such a file tags `O` may be in an entity of these
        classes. The model is neither trained nor measured there as if it were not. Keys are patterns of
        `PurePath.match`, compared with the end of a file's path.

    The other parameters are those of `TaskReader`, whose records are sentences here.
    """

    def __init__(
        self,
        input_scheme: Optional[str] = None,
        label_scheme: str = "BIOUL",
        unmarked: Optional[Dict[str, List[str]]] = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if input_scheme is not None:
            check_choice("input_scheme", input_scheme, SCHEME_RULES)
        check_choice("label_scheme", label_scheme, LABEL_SCHEMES)
        self._input_scheme = input_scheme
        self._label_scheme = label_scheme
        self._unmarked = unmarked or {}

    def text_to_instance(
        self,
        tokens: List[Token],
        tags: Optional[List[str]] = None,
        unmarked: Sequence[str] = (),
        place: Optional[SentencePlace] = None,
    ) -> Instance:
        """
        Make an instance. The scheme of `tags` is the reader's `label_scheme`. `unmarked` are the classes that
        they do not mark.
        """
        text_field = TextField(tokens)
        metadata: Dict[str, Any] = {"words": checked_words(tokens), **character_offsets(tokens)}
        if unmarked:
            metadata["unmarked"] = list(unmarked)
        fields: Dict[str, Field] = {"tokens": text_field, "metadata": MetadataField(metadata)}
        if tags is not None:
            fields["tags"] = TagField(tags, text_field, place)
        return Instance(fields)

    def _records(self, file_path: Union[str, PathLike]) -> Iterator[_Record]:
        scheme = self._input_scheme or _detected_scheme(file_path)
        path = PurePath(file_path)
        unmarked = [
            label for key, labels in self._unmarked.items() if path.match(key) for label in labels
        ]
        if unmarked:
            logger.info("%s: does not mark %s.", file_path, ", ".join(unmarked))
        for sentence in read_conll_sentences(file_path):
            yield sentence, scheme, unmarked

    def _instances(self, record: _Record, left_out: Counter) -> Iterable[Instance]:
        sentence, scheme, unmarked = record
        words, tags = zip(*sentence.tokens_and_tags())
        _check_tags(tags, scheme, sentence.place)
        spans = tags_to_spans(tags, scheme)
        for span in spans:
            if span.label in unmarked:
                raise ConfigurationError(
                    f"{sentence.place.of_token(span.start)}: found an entity of class {span.label}, which by "
                    "dataset_reader.unmarked this file does not mark. Correct the tag, or the patterns and "
                    "classes of unmarked."
                )
        label_tags = spans_to_tags(spans, len(tags), self._label_scheme)
        tokens = [Token(word) for word in words]
        yield self.text_to_instance(tokens, label_tags, unmarked, sentence.place)


def _check_tags(tags: Sequence[str], scheme: str, place: SentencePlace) -> None:
    """Raise `ConfigurationError` for the first tag of a sentence that is impossible in a scheme."""
    fault = find_tag_fault(tags, scheme)
    if fault is None:
        return
    index, description = fault
    fitting = [other for other in SCHEME_RULES if find_tag_fault(tags, other) is None]
    advice = "Correct the tag."
    if fitting:
        advice = (
            f"This sentence is possible in {' and '.join(fitting)}: if that is its scheme, give the "
            f'reader "input_scheme": "{fitting[0]}". If not, correct the tag.'
        )
    raise ConfigurationError(
        f"{place.of_token(index)}: found {description}, impossible in the {scheme} scheme: a token outside "
        f"of spans is tagged O, {SCHEME_RULES[scheme]}. {advice}"
    )


def _detected_scheme(file_path: Union[str, PathLike]) -> str:
    """Read a file, and return and log the scheme in which most of its sentences are possible."""
    num_tagged = 0
    num_possible = dict.fromkeys(SCHEME_RULES, 0)
    for sentence in read_conll_sentences(file_path):
        tags = sentence.last_column()
        if set(tags) != {"O"}:
            num_tagged += 1
            for scheme in num_possible:
                num_possible[scheme] += find_tag_fault(tags, scheme) is None
    best = max(num_possible, key=num_possible.__getitem__)
    if num_tagged == 0:
        logger.info("%s: all tags are O, which is the same in all schemes.", file_path)
    elif num_possible[best] == num_tagged:
        logger.info("%s: found tags in the %s scheme.", file_path, best)
    else:
        logger.warning(
            "%s: found tags that fit no scheme; of %d sentences with tags %s. Reading them as %s. Give "
            'the reader "input_scheme" if another one is right, and correct the tags that do not fit.',
            file_path,
            num_tagged,
            ", ".join(f"{count} fit {name}" for name, count in num_possible.items()),
            best,
        )
    return best
